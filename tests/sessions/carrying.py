"""A server without sockets, whose clients stall, drop and come back exactly when a test says so."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from app.backing import State
from app.http.responses import CONNECTION_EXTENSION
from app.service import Service
from app.settings import Settings
from app.state.memory import MemoryStore
from tests.sessions.conftest import CONFIG
from tests.support.toolfiles import write
from tests.support.waiting import DEFAULT_S

TOOLS: Final = '''
import asyncio
from pathlib import Path

from pydantic import BaseModel

from app import Context, tool


class City(BaseModel):
    """A form."""

    city: str


@tool
async def follow(ctx: Context, folder: str) -> str:
    """Say each file 1, 2, ... as it appears, until there is one named end."""
    said, files = 0, Path(folder)
    while True:
        if (files / str(said + 1)).exists():
            said += 1
            ctx.log("info", {"said": said})
        elif (files / "end").exists():
            return f"the end after {said}"
        await asyncio.sleep(0.005)


@tool(asks=["elicitation"])
async def ask(ctx: Context) -> str:
    """Ask for a city."""
    said = await ctx.elicit("city", "Which one?", City)
    return said.action
'''
BOTH: Final = b"application/json, text/event-stream"


async def until(probe: Callable[[], object], what: str) -> None:
    """Wait until something is true.

    Raises:
        AssertionError: It is not in time.
    """
    try:
        async with asyncio.timeout(DEFAULT_S):
            while not probe():  # noqa: ASYNC110  # what is waited for has no event
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


class Writes(MemoryStore):
    """A store that tells what was written, and takes its time where a test wants that.

    Attributes:
        calls: Of each write: its lifetime and owner.
        slow_s: How long a write takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[float, str | None]] = []
        self.slow_s = 0.0

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        self.calls.append((ttl_s, owner))
        await asyncio.sleep(self.slow_s)
        await super().set(name, value, ttl_s=ttl_s, owner=owner)


class Client:
    """One exchange of a client, and its connection (``ClientConnection``).

    Attributes:
        reads: While it is not set, nothing that is sent is taken.
        on_end: Awaited before the last bytes are taken.
    """

    refused = False

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.status = 0
        self.text = ""
        self.is_aborted = False
        self.is_over = False
        self.blocked = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.on_end: Callable[[], Any] | None = None
        self.task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._callback: Callable[[], None] | None = None

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        if callback is not None and self._gone.is_set():
            asyncio.get_running_loop().call_soon(self.leave)

    def abort(self) -> None:
        self.is_aborted = True
        self.leave()

    def take_body(self) -> bytes | None:
        return None

    def respond(self, status: int, headers: bytes, body: bytes) -> bool:  # noqa: ARG002  # all in ASGI's way
        return False

    def leave(self) -> None:
        """Drop the connection."""
        self._gone.set()
        self.reads.set()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """What the server says."""
        self.blocked += 1
        await self.reads.wait()
        self.blocked -= 1
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.head = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        is_last = not message.get("more_body", False)
        if is_last and self.on_end is not None:
            await self.on_end()
        self.text += message.get("body", b"").decode()
        self.is_over = self.is_over or is_last

    @property
    def ids(self) -> list[str]:
        """Of the events so far."""
        return [line[4:] for line in self.text.splitlines() if line.startswith("id: ")]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages so far."""
        lines = self.text.splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    async def done(self) -> None:
        """Wait for the end of the exchange; what it raises is raised here."""
        assert self.task is not None
        async with asyncio.timeout(DEFAULT_S):
            await self.task


class Carrying:
    """A server and one session with it.

    Attributes:
        folder: Of the tool ``follow``.
    """

    def __init__(self, service: Service, state: State, folder: Path) -> None:
        self.service = service
        self.state = state
        self.folder = folder
        self.writes: Any = state.replays
        self.token = ""

    def exchange(
        self, body: Any = None, method: str = "POST", client: Client | None = None, **headers: str
    ) -> Client:
        """Begin one; the client may be prepared."""
        client = client or Client()
        lines = {b"host": b"localhost", b"accept": BOTH, b"content-type": b"application/json"}
        if self.token:
            lines[b"mcp-session-id"] = self.token.encode()
        lines |= {name.replace("_", "-").encode(): at.encode() for name, at in headers.items()}
        content = b"" if body is None else json.dumps(body).encode()
        taken = iter([{"type": "http.request", "body": content, "more_body": False}])

        async def receive() -> MutableMapping[str, Any]:
            for message in taken:
                return message
            await asyncio.Event().wait()
            raise AssertionError

        scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "query_string": b"",
            "headers": list(lines.items()),
            "client": ("127.0.0.1", 1),
            "extensions": {CONNECTION_EXTENSION: client},
        }
        client.task = asyncio.create_task(self.service.endpoint(scope, receive, client.send))
        return client

    async def open(self, **headers: str) -> None:
        """``initialize``."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"},
        }
        self.token = ""
        client = self.exchange(_message("initialize", params), "POST", None, **headers)
        await client.done()
        self.token = client.head["mcp-session-id"]

    def call(self, tool: str = "follow", client: Client | None = None) -> Client:
        """Begin a call."""
        arguments = {"folder": str(self.folder)} if tool == "follow" else {}
        params = {"name": tool, "arguments": arguments}
        return self.exchange(_message("tools/call", params), client=client)

    def come_back(self, last: str, **headers: str) -> Client:
        """GET with ``Last-Event-ID``."""
        return self.exchange(None, "GET", None, last_event_id=last, **headers)

    def say(self, name: object) -> None:
        """Let the tool say something, or ``end``."""
        (self.folder / str(name)).touch()

    async def called(self) -> None:
        """Wait until no tool runs."""
        endings = self.service.executor._endings  # nothing else tells that
        await until(lambda: not endings.running, "the tool's end")


def _message(method: str, params: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@contextlib.asynccontextmanager
async def carrying(tmp_path: Path, **sections: dict[str, Any]) -> AsyncIterator[Carrying]:
    """A server with these settings."""
    write(tmp_path / "tools" / "follow.py", TOOLS)
    (tmp_path / "said").mkdir()
    state = State()
    state.replays = Writes()
    settings = Settings.model_validate(
        {
            **CONFIG,
            "tools": {"directory": str(tmp_path / "tools"), "reload": False},
            "secrets": {"keys": ["k" * 32]},
            "execution": {"silence_s": 0.01, "keep_alive_s": 0.5},
            **sections,
        }
    )
    service = Service(settings, state=state)
    await service.start()
    try:
        service.registry.settle()
        carries = Carrying(service, state, tmp_path / "said")
        await carries.open()
        yield carries
    finally:
        await service.stop()
