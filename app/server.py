"""Composition root: the only place that wires the parts together."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import structlog
from starlette.applications import Starlette

from app.auth.authenticator import LOOK_S, Authenticator
from app.auth.challenge import Challenge
from app.auth.metadata import metadata_paths, resource_metadata
from app.auth.revocation import Revocations
from app.execution.endings import Endings
from app.execution.executor import Executor
from app.execution.processes.pool import Processes
from app.execution.results import ResultEncoder
from app.execution.watchdog import Watchdog
from app.http.endpoint import Endpoint
from app.http.routes import Application
from app.methods.discover import Discover
from app.methods.router import Router
from app.methods.subscriptions import Hub, Listen, Stream
from app.methods.tools import CallTool, ListTools
from app.principal import Principal
from app.protocol.errors import Refusal, Unauthorized
from app.protocol.headers import HeaderMap
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.catalog import Catalog
from app.registry.live import Registry
from app.registry.tool import Tool
from app.registry.watcher import changes
from app.reloading import reloaded_settings
from app.settings import Settings
from app.state.memory import MemoryStore
from app.version import server_version

WATCH_STOP_S: Final = 2.0
LOOK_AT_ONCE: Final = 50
"""Listeners whose credentials are looked at without a pause for others."""
log = structlog.get_logger()


def server_messages(settings: Settings) -> ServerMessages:
    """The messages of a server with these settings."""
    info: dict[str, Any] = {"name": settings.server.name, "version": server_version()}
    if settings.server.title:
        info["title"] = settings.server.title
    return ServerMessages(info)


def key_ring(settings: Settings) -> KeyRing:
    """The configured keys, or one that lives as long as the process."""
    keys = [key.get_secret_value().encode() for key in settings.secrets.keys]
    return KeyRing(keys or [secrets.token_bytes(32)])


class Service:
    """Everything behind the doors of one process: registry, executor, router, listeners.

    Args:
        config: The configuration file to watch, if any.
        flags: Command line values, which stay in force when the file changes.
        enforce: False for somebody at the machine's own keyboard: no rule applies.
        log_problems: Whether problems with tools go to the log.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        config: Path | None = None,
        flags: dict[str, dict[str, Any]] | None = None,
        enforce: bool = True,
        log_problems: bool = True,
    ) -> None:
        self.settings = settings
        self._config = config
        self._flags = flags
        messages = server_messages(settings)
        self.revocations = Revocations(MemoryStore())
        self._next_authenticator: Authenticator | None = None
        self.hub = Hub(
            limit=settings.limits.listen_streams,
            keep_alive_s=settings.execution.keep_alive_s,
            look=self._look,
            renew=self._renew,
            next_edge=lambda: self.registry.catalog.next_edge,
            clock=time.time,
        )
        encoder = ResultEncoder(messages, max_bytes=settings.execution.max_result_bytes)
        endings = Endings(encoder, end=self._call_ended)
        processes = Processes(settings.execution, endings, log_level=settings.logging.level)
        self.registry = Registry(
            settings,
            messages=messages,
            keys=key_ring(settings),
            on_swap=self._swap,
            on_change=self.hub.publish,
            isolation=processes,
            enforce=enforce,
            log_problems=log_problems,
        )
        self.executor = Executor(
            settings, endings, begin=self.registry.begin_call, processes=processes
        )
        self.router = Router(
            {
                "server/discover": Discover(settings, messages, self.registry.list_ttl_ms),
                "tools/list": ListTools(self._catalog, time.time),
                "tools/call": CallTool(
                    self._catalog,
                    self.executor,
                    encoder,
                    clock=time.time,
                    challenge=Challenge(settings),
                ),
                "subscriptions/listen": Listen(tools_change=settings.tools.reload),
            }
        )
        self.endpoint = Endpoint(
            settings, self.router, self.hub, messages, self._authenticator(settings)
        )
        self._watchdog: Watchdog | None = None
        self._stop_watching = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the tools and begin to watch them.

        Raises:
            FileNotFoundError: There is no tools folder.
        """
        await self.endpoint.authenticator.start()
        self._ending = asyncio.create_task(self._look_after_listeners(), name="listeners")
        await self.registry.start()
        self._watchdog = Watchdog(self.settings.tools.directory)
        if self.settings.tools.reload:
            self._watching = asyncio.create_task(self._watch(), name="watch tools")

    async def stop(self) -> None:
        """End what runs, in the order in which it depends on each other."""
        self.hub.shut_down()
        if self._watchdog is not None:
            self._watchdog.stop()
        self._stop_watching.set()
        if self._watching is not None:
            # A reload under way may wait for something that never comes.
            await asyncio.wait({self._watching}, timeout=WATCH_STOP_S)
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._ending is not None:
            self._ending.cancel()
        await self.endpoint.authenticator.stop()
        await self.executor.stop()
        await self.registry.stop()

    def metadata(self, path: str) -> bytes | None:
        """What a path below ``/.well-known`` says (RFC 9728); None: nothing."""
        return resource_metadata(self.settings) if path in metadata_paths(self.settings) else None

    def _catalog(self) -> Catalog:
        return self.registry.catalog

    def _look(self, principal: Principal) -> str:
        return self.registry.catalog.view(principal.grants, time.time()).fingerprint

    def _renew(self, principal: Principal) -> Principal | None:
        return self.endpoint.authenticator.renewed(principal)

    def _call_ended(self, tool: Tool) -> None:
        self.registry.end_call(tool)

    def _swap(self, settings: Settings) -> None:
        """A snapshot is published: those who call are known by the keys that go with it."""
        self.settings = settings
        if self._next_authenticator is not None:
            self.endpoint.authenticator = self._next_authenticator
            self._next_authenticator = None

    async def _watch(self) -> None:
        folder = Path(self.settings.tools.directory).resolve()  # noqa: ASYNC240  # once
        watched = self._files_of_settings
        async for changed in changes(folder, watched, stop=self._stop_watching):
            if self._stop_watching.is_set():
                return
            try:
                settings = None
                if watched() and (not changed or not changed.isdisjoint(watched())):
                    settings = reloaded_settings(self.settings, self._config, self._flags)
                await self._reload(settings)
            except (FileNotFoundError, TimeoutError) as error:
                log.error("reload_failed", problem=str(error))  # noqa: TRY400  # it may come back
            except Exception:  # the last good snapshot goes on
                log.exception("reload_failed")

    def _files_of_settings(self) -> frozenset[Path]:
        """The configuration, and the files of keys that it names."""
        auth = self.settings.auth
        files = [self._config, auth.api_keys_file, *(each.keys_file for each in auth.issuers)]
        return frozenset(file.absolute() for file in files if file is not None)

    async def _reload(self, settings: Settings | None) -> None:
        if settings is None:
            await self.registry.reload()
            return
        before = self.endpoint.authenticator
        after = self._authenticator(settings, previous=before)
        await after.start()
        self._next_authenticator = after
        try:
            await self.registry.reload(settings)
        finally:
            self._next_authenticator = None
            if self.endpoint.authenticator is after:
                await before.stop()
            else:  # the last good snapshot goes on, with its keys
                await before.start()
                await after.stop()

    def _authenticator(
        self, settings: Settings, previous: Authenticator | None = None
    ) -> Authenticator:
        return Authenticator(settings, previous=previous, revocations=self.revocations)

    async def _look_after_listeners(self) -> None:
        """A credential may be revoked before its time: ask about those of listeners again."""
        while True:
            await asyncio.sleep(LOOK_S)
            streams = self.hub.authenticated()
            while streams:
                some, streams = streams[:LOOK_AT_ONCE], streams[LOOK_AT_ONCE:]
                await asyncio.gather(*map(self._look_after, some))
                await asyncio.sleep(0)

    async def _look_after(self, stream: Stream) -> None:
        try:
            await self.endpoint.authenticator.authenticate(stream.credential or HeaderMap(()), b"")
        except Unauthorized:
            stream.refuse()
        except Refusal:
            pass  # nobody can say now


def create_app(
    settings: Settings,
    *,
    config: Path | None = None,
    flags: dict[str, dict[str, Any]] | None = None,
) -> "App":
    """The ASGI application for these settings."""
    return App(settings, config=config, flags=flags)


class App(Application):
    """The ASGI application with what the process needs to know of it."""

    def __init__(
        self, settings: Settings, *, config: Path | None, flags: dict[str, dict[str, Any]] | None
    ) -> None:
        self._settings = settings
        self._config = config
        self._flags = flags
        self.service: Service | None = None
        self.draining = False
        super().__init__(
            endpoint=lambda: self.service.endpoint if self.service is not None else None,
            is_ready=lambda: self.service is not None and not self.draining,
            metadata=lambda path: self.service.metadata(path) if self.service else None,
            lifespan=self._lifespan,
        )

    def drain(self) -> None:
        """Readiness turns off, listeners are told goodbye, and running calls get their grace."""
        self.draining = True
        if self.service is not None:
            self.service.hub.shut_down()
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.server.shutdown_grace_s, self.service.executor.give_up)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        service = Service(self._settings, config=self._config, flags=self._flags)
        await service.start()
        service.registry.settle()
        self.service = service
        try:
            yield
        finally:
            self.draining = True
            await service.stop()
            self.service = None
