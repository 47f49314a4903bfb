"""A service with all of its doors in this process, and a witness who holds answers back."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from app.backing import State
from app.http.responses import CONNECTION_EXTENSION
from app.methods.discover import server_messages
from app.methods.observing import Ended
from app.protocol.headers import HeaderMap
from app.service import Service
from app.settings import Settings
from app.stdio.channel import Channel
from app.stdio.door import Door
from app.stdio.older import OlderRevisions
from tests.sessions.carrying import Client, until
from tests.support.client import body_of, encode, meta, modern_request
from tests.support.toolfiles import write

TIMEOUT_MS: Final = "mcp-tool-server/timeoutMs"
TURNS: Final = 30
TOOLS: Final = '''
import asyncio

from app import Context, ToolError, tool

READS = {"read_only": True}
gate = asyncio.Event()


@tool
async def echo(text: str) -> str:
    """Give it back."""
    return text


@tool
async def spoils(things: dict) -> int:
    """Change what it was given."""
    things.clear()
    return 0


@tool
async def complains() -> str:
    """Say what is wrong."""
    raise ToolError("Not today.")


@tool
async def breaks() -> str:
    """Fail."""
    raise ValueError("broken")


@tool
async def sleeps(ctx: Context) -> str:
    """Wait for ever."""
    ctx.progress(1)
    await asyncio.Event().wait()


@tool(max_concurrent=1)
async def narrow() -> str:
    """Wait at the gate."""
    await gate.wait()
    return "through"


@tool(annotations=READS, cache_ttl_s=60)
async def kept() -> str:
    """Kept."""
    return "kept"


@tool(annotations={"idempotent": True}, retries=2)
async def flaky() -> str:
    """Fail for a passing reason."""
    raise ToolError("Closed.", retryable=True)


@tool
async def rare() -> str:
    """Called once."""
    return "once"


@tool
async def secret() -> str:
    """For some."""
    return "s"


@tool
async def hidden() -> str:
    """For few."""
    return "h"
'''
SETTINGS: Final[dict[str, Any]] = {
    "auth": {"allow_unauthenticated": True},
    "tools": {"reload": False},
    "policies": [
        {
            "name": "scoped",
            "tools": ["secret"],
            "requires": {"scopes": ["s"]},
            "otherwise": "challenge",
        },
        {"tools": ["hidden"], "requires": {"roles": ["r"]}, "otherwise": "hide"},
        {"tools": ["*"]},
    ],
    "limits": {"rates": [{"tools": ["rare"], "bucket": "tool", "capacity": 1, "period_s": 3600}]},
    "execution": {"silence_s": 60},
}


class Witness:
    """An observer.

    Attributes:
        seen: What it was told.
        holds: Whether answers wait for ``release``.
    """

    needs_arguments = True

    def __init__(self) -> None:
        self.seen: list[Ended] = []
        self.holds = True
        self._waiting: list[asyncio.Future[None]] = []

    def ended(self, ended: Ended) -> asyncio.Future[None] | None:
        """Take notice."""
        self.seen.append(ended)
        if not self.holds:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def release(self) -> None:
        """Let what waits go, and whatever comes."""
        self.holds = False
        for future in self._waiting:
            future.set_result(None)
        self._waiting.clear()


class Sent(Protocol):
    """A call that was sent."""

    async def answers(self) -> list[dict[str, Any]]:
        """The responses that have left so far."""
        ...

    async def cancel(self) -> None:
        """Say that nobody waits any more, in the manner of this door."""
        ...


class EachDoor(Protocol):
    """A door, as a test uses it."""

    async def send(self, params: dict[str, Any], **about: Any) -> Sent:
        """Send a call; ``about`` are members of its ``_meta``."""
        ...


class Http:
    """POST on its own.

    Args:
        accept: Media types.
    """

    def __init__(self, service: Service, *, accept: str) -> None:
        self._service = service
        self._accept = accept

    async def send(self, params: dict[str, Any], **about: Any) -> Sent:
        """A modern request."""
        changes = {"Accept": self._accept, "Mcp-Name": str(params.get("name", "none"))}
        about_it = meta(**about, progressToken="p")
        request = modern_request("tools/call", params, changes, meta_=about_it)
        return Exchanged(self._service, request.headers, request.body)


class OldHttp:
    """POST of a client that has opened a session, or has not."""

    def __init__(self, service: Service, *, opens: bool, batch: bool = False) -> None:
        self._service = service
        self._opens = opens
        self._batch = batch
        self._token: str | None = None

    async def send(self, params: dict[str, Any], **about: Any) -> Sent:
        """An old request."""
        version = "2025-03-26" if self._batch else "2025-11-25"
        headers = [("Accept", "application/json, text/event-stream")]
        if self._opens:
            headers.append(("Mcp-Session-Id", await self._session(version)))
        if not self._batch:
            headers.append(("MCP-Protocol-Version", version))
        call = old_request("tools/call", {**params, "_meta": about})
        body = encode([call] if self._batch else call)
        return Exchanged(self._service, headers, body, token=self._token)

    async def _session(self, version: str) -> str:
        if self._token is None:
            opening = encode(old_request("initialize", opening_of(version)))
            sent = Exchanged(self._service, [("Accept", "application/json")], opening)
            await sent.client.done()
            self._token = sent.client.head["mcp-session-id"]
        return self._token


class Exchanged:
    """One exchange over HTTP, without sockets."""

    def __init__(
        self, service: Service, headers: Any, body: bytes, *, token: str | None = None
    ) -> None:
        self.client = Client()
        self._service = service
        self._token = token
        taken = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> MutableMapping[str, Any]:
            for message in taken:
                return message
            await asyncio.Event().wait()
            raise AssertionError

        lines = {name.lower().encode(): _bytes(value) for name, value in headers}
        lines |= {b"host": b"localhost", b"content-type": b"application/json"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": list(lines.items()),
            "client": ("192.0.2.1", 1),
            "extensions": {CONNECTION_EXTENSION: self.client},
        }
        self.client.task = asyncio.create_task(service.endpoint(scope, receive, self.client.send))

    async def answers(self) -> list[dict[str, Any]]:
        """As of ``Sent``."""
        text = self.client.text
        if text.startswith(("{", "[")):
            found = orjson.loads(text)
            return found if isinstance(found, list) else [found]
        return [message for message in self.client.messages if "method" not in message]

    async def cancel(self) -> None:
        """As of ``Sent``: a modern client goes, one with a session says so."""
        if self._token is None:
            self.client.leave()
            return
        notification = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1},
        }
        headers = [("Accept", "application/json"), ("Mcp-Session-Id", self._token)]
        await Exchanged(self._service, headers, encode(notification)).client.done()


class Stdio:
    """The pipes of a client.

    Args:
        old: The revision in which it speaks; None: the modern one.
        batch: Whether each request comes as a batch of one.
    """

    def __init__(
        self, door: Door, channel: Channel, output: int, *, old: str | None, batch: bool = False
    ) -> None:
        self.door = door
        self._channel = channel
        self._output = output
        self._old = old
        self._batch = batch
        self._said = b""
        self._id = 100

    async def open(self) -> None:
        """``initialize``, where that is spoken."""
        if self._old is not None:
            self.door.take(encode(old_request("initialize", opening_of(self._old))))
            await until(lambda: not self.door._tasks, "the session")
            await self.said()
            self._said = b""

    async def send(self, params: dict[str, Any], **about: Any) -> Sent:
        """One line."""
        self._id += 1
        if self._old is None:
            about_it = meta(**about, progressToken="p")
            message = body_of("tools/call", params, id=self._id, meta_=about_it)
        else:
            message = old_request("tools/call", {**params, "_meta": about}, self._id)
        self.door.take(encode([message] if self._batch else message))
        return Line(self, self._id)

    async def said(self) -> list[dict[str, Any]]:
        """Every message so far."""
        await self._channel.flush(5)
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self._output, 1 << 16)
        lines = [orjson.loads(line) for line in self._said.splitlines()]
        return [each for line in lines for each in (line if isinstance(line, list) else [line])]


class Line:
    """A call that went over stdio."""

    def __init__(self, stdio: Stdio, id: int) -> None:
        self._stdio = stdio
        self._id = id

    async def answers(self) -> list[dict[str, Any]]:
        """As of ``Sent``."""
        return [message for message in await self._stdio.said() if message.get("id") == self._id]

    async def cancel(self) -> None:
        """As of ``Sent``."""
        params = {"requestId": self._id}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self._stdio.door.take(encode(message))


class House:
    """The service, the witness, and the module of the tools."""

    def __init__(self, service: Service, witness: Witness) -> None:
        self.service = service
        self.witness = witness

    @property
    def module(self) -> Any:
        """Of the tools."""
        return self.service.registry.catalog.tools["echo"].source.module


DOORS: Final = (
    "HTTP",
    "HTTP, as a stream",
    "a session over HTTP",
    "HTTP without a session",
    "a batch over HTTP",
    "stdio",
    "a session over stdio",
    "a batch over stdio",
)
"""Every way that a call can come in."""


@contextlib.asynccontextmanager
async def house(folder: Path, *observers: Any, state: State | None = None) -> AsyncIterator[House]:
    """The service; a witness observes it, and so do others."""
    write(folder / "tools.py", TOOLS)
    settings = Settings.model_validate(
        {**SETTINGS, "tools": {"directory": folder, "reload": False}}
    )
    witness = Witness()
    service = Service(settings, log_problems=False, state=state, observers=[witness, *observers])
    await service.start()
    try:
        yield House(service, witness)
    finally:
        witness.release()
        await service.stop()


@contextlib.asynccontextmanager
async def opened(house: House, name: str) -> AsyncIterator[EachDoor]:
    """One of ``DOORS``."""
    service = house.service
    match name:
        case "HTTP":
            yield Http(service, accept="application/json, text/event-stream")
        case "HTTP, as a stream":
            yield Http(service, accept="text/event-stream")
        case "a session over HTTP":
            yield OldHttp(service, opens=True)
        case "HTTP without a session":
            yield OldHttp(service, opens=False)
        case "a batch over HTTP":
            yield OldHttp(service, opens=True, batch=True)
        case _:
            old = {"stdio": None, "a session over stdio": "2025-11-25"}.get(name, "2025-03-26")
            async with _stdio(house, old=old, batch="batch" in name) as stdio:
                yield stdio


@contextlib.asynccontextmanager
async def _stdio(house: House, *, old: str | None, batch: bool) -> AsyncIterator[Stdio]:
    source, from_client = os.pipe()
    output, sink = os.pipe()
    os.set_blocking(output, False)
    service, credential = house.service, HeaderMap(())
    channel = Channel(source, sink, max_line_bytes=100_000)
    older = OlderRevisions(
        service.legacy, service.hub, channel, credential, observers=service.observers
    )
    door = Door(
        channel,
        service.router,
        service.hub,
        server_messages(service.settings),
        authenticator=lambda: service.endpoint.authenticator,
        credential=credential,
        max_line_bytes=100_000,
        legacy=older,
        observers=service.observers,
    )
    stdio = Stdio(door, channel, output, old=old, batch=batch)
    await stdio.open()
    try:
        yield stdio
    finally:
        house.witness.release()
        await door.finish(0.1, service.executor.give_up)
        await older.close()
        await channel.flush(5)
        for descriptor in (source, from_client, output, sink):
            os.close(descriptor)


def old_request(method: str, params: dict[str, Any], id: int = 1) -> dict[str, Any]:
    """A request without a modern ``_meta``."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def opening_of(version: str) -> dict[str, Any]:
    """The params of ``initialize``."""
    info = {"name": "c", "version": "1"}
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": info}


async def turns() -> None:
    """Let everything that can happen do so."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
