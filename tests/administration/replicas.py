"""Replicas in one event loop, with lines to a shared store and bus that can be cut and slowed."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import httpx2

from app.admin.serving import bind_admin
from app.auth.api_keys import hash_key, make_key
from app.backing import State
from app.fleet.fleet import Fleet as Member
from app.fleet.keeping import DOCUMENT, EPOCH
from app.http.serving import Server, make_server
from app.server import App, create_app
from app.settings import Settings
from app.state.interface import Kept, StoreUnavailable
from app.state.local_bus import LocalBus
from app.state.memory import MemoryStore
from tests.support.client import McpClient
from tests.support.waiting import eventually

T = TypeVar("T")

TOOLS: Final = Path(__file__).parent / "tools"
ADMIN_KEY: Final = make_key("root")
KEYS: Final = {name: make_key(name) for name in ("ada", "bob", "eve")}
CONFIG: Final[Mapping[str, Any]] = {
    "server": {"name": "one-of-many", "port": 0},
    "tools": {"directory": TOOLS, "reload": False},
    "execution": {"keep_alive_s": 0.2},
    "admin": {"port": 0, "keys": [{"id": "root", "hash": hash_key(ADMIN_KEY)}]},
    "auth": {
        "api_keys": [
            {"id": name, "hash": hash_key(key), "tenant": "acme" if name == "ada" else None}
            for name, key in KEYS.items()
        ],
        "allow_unauthenticated": True,
    },
    "limits": {"rates": [], "list_rates": []},
    "secrets": {"keys": ["k" * 32]},
}


class Line:
    """The way of one replica to the store: while it is cut, nobody answers."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_cut = False
        self.is_full = False

    def _pass(self) -> MemoryStore:
        if self.is_cut:
            raise StoreUnavailable("cut")
        return self._store

    async def get(self, name: str) -> bytes | None:
        return await self._pass().get(name)

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        await self._pass().set(name, value, ttl_s=ttl_s, owner=owner)

    async def replace(
        self,
        name: str,
        before: bytes | None,
        after: bytes,
        *,
        ttl_s: float,
        owner: str | None = None,
    ) -> bool:
        return await self._pass().replace(name, before, after, ttl_s=ttl_s, owner=owner)

    async def take(
        self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None
    ) -> Kept | None:
        return await self._pass().take(name, value, ttl_s=ttl_s, owner=owner)

    async def delete(self, name: str) -> None:
        await self._pass().delete(name)

    def admit(self, quotas: Any) -> Any:
        return self._pass().admit(quotas)


class Wire:
    """The way of one replica to the bus: while it is cut, it neither hears nor is heard."""

    def __init__(self, bus: LocalBus) -> None:
        self._bus = bus
        self._returns: list[Callable[[], None]] = []
        self.is_cut = False
        self.delay_s = 0.0

    def subscribe(self, topic: str, hear: Callable[[bytes], None]) -> Callable[[], None]:
        def pass_on(message: bytes) -> None:
            if self.is_cut:
                return
            if self.delay_s:
                asyncio.get_running_loop().call_later(self.delay_s, hear, message)
            else:
                hear(message)

        return self._bus.subscribe(topic, pass_on)

    async def publish(self, topic: str, message: bytes) -> None:
        if self.is_cut:
            raise StoreUnavailable("cut")
        await self._bus.publish(topic, message)

    def on_return(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._returns.append(callback)
        return lambda: self._returns.remove(callback)

    def mend(self) -> None:
        self.is_cut = False
        for callback in tuple(self._returns):
            callback()


class LinkedState(State):
    """The state of one replica, over its own line and wire."""

    is_shared = True

    def __init__(self, control: MemoryStore, bus: LocalBus) -> None:
        super().__init__()
        self.line, self.wire = Line(control), Wire(bus)
        self.control, self.bus = self.line, self.wire


@dataclass
class Replica:
    """One server of the fleet.

    Attributes:
        admin: Base URL of its administrative listener.
    """

    app: App
    state: LinkedState
    admin: str
    server: Server | None = None
    url: str = ""

    @property
    def fleet(self) -> Member:
        """It among the others."""
        assert self.app.service is not None
        return self.app.service.fleet

    @property
    def id(self) -> str:
        return self.fleet.replica

    @property
    def client(self) -> McpClient:
        parts = urlsplit(self.url)
        return McpClient(parts.hostname or "", parts.port or 0)

    def names(self, key: str | None = None) -> set[str]:
        """The tools that a caller finds on it."""
        return set(self.client.tools(headers={"X-API-Key": KEYS[key]} if key else {}))

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = ADMIN_KEY, **how: Any
    ) -> httpx2.Response:
        """Ask its administrative listener."""
        headers = how.pop("headers", {})
        if key is not None:
            headers = {"Authorization": f"Bearer {key}", **headers}
        url = f"{self.admin}/{path}" if path == "healthz" else f"{self.admin}/admin/v1/{path}"
        # Without TLS: reading the authorities of the system takes longer than most requests.
        with httpx2.Client(trust_env=False, timeout=10, verify=False) as client:
            return client.request(method, url, json=body, headers=headers, **how)

    def does(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Have something done; it must be done everywhere."""
        response = self.ask(method, path, body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def status(self) -> dict[str, Any]:
        return self.does("GET", "status")


class Fleet:
    """Replicas that share a store and a bus.

    Args:
        configs: What is special about each replica's settings.
        control: Outlives the fleet, as a store does.
    """

    def __init__(self, *configs: Mapping[str, Any], control: MemoryStore | None = None) -> None:
        self.control = MemoryStore() if control is None else control
        self._bus = LocalBus()
        self._configs = configs or ({}, {}, {})
        self.replicas: list[Replica] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        eventually(self._know_each_other, "the replicas know of each other")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for replica in self.replicas:
            assert replica.server is not None
            replica.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def __getitem__(self, number: int) -> Replica:
        return self.replicas[number]

    def __len__(self) -> int:
        return len(self.replicas)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_listening = asyncio.Event()
        serving = []
        for config in self._configs:
            replica = self._make(config)
            self.replicas.append(replica)
            assert replica.server is not None
            serving.append(asyncio.create_task(replica.server.serve()))
        while any(not replica.url for replica in self.replicas):
            await self._is_listening.wait()
            self._is_listening.clear()
        self._ready.set()
        await asyncio.gather(*serving)

    def _make(self, config: Mapping[str, Any]) -> Replica:
        merged = {key: {**value, **config.get(key, {})} for key, value in CONFIG.items()}
        merged |= {key: value for key, value in config.items() if key not in merged}
        settings = Settings.model_validate(merged)
        state = LinkedState(self.control, self._bus)
        socket = bind_admin(settings.admin)
        assert socket is not None
        host, port = socket.getsockname()[:2]
        app = create_app(settings, state=state, admin=socket)
        replica = Replica(app, state, f"http://{host}:{port}")

        def listening(host: str, port: int) -> None:
            replica.url = f"http://{host}:{port}/mcp"
            self._is_listening.set()

        replica.server = make_server(app, settings.server, on_listening=listening)
        return replica

    def _know_each_other(self) -> bool:
        return all(
            len(self.run(replica.fleet.members.living)) == len(self) for replica in self.replicas
        )

    def run(self, do: Callable[[], T]) -> T:
        """Do something in the loop of the replicas."""

        async def done() -> T:
            return do()

        return self.wait_for(done())

    def wait_for(self, coming: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives, in the loop of the replicas."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coming, self._loop).result(10)

    def flush(self) -> None:
        """The store forgets everything."""
        for name in (DOCUMENT, EPOCH):
            self.wait_for(self.control.delete(name))
