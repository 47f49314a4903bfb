"""The ASGI application: a service with its doors, as long as the process serves."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import structlog
from starlette.applications import Starlette

from app.admin.operations import Console
from app.admin.serving import administration, bind_admin
from app.backing import State
from app.http.health import Readiness
from app.http.routes import Application
from app.membership import new_replica_id
from app.observability.exposition import exposition
from app.service import Service, tracing_of
from app.settings import Settings
from app.sharing import state_of

log = structlog.get_logger()


def create_app(
    settings: Settings,
    *,
    config: Path | None = None,
    flags: dict[str, dict[str, Any]] | None = None,
    state: State | None = None,
    replica: str | None = None,
    admin: socket.socket | None = None,
    metrics: Path | None = None,
) -> "App":
    """The ASGI application for these settings; most arguments are those of ``Service``.

    Args:
        replica: Id of this server, which its workers share; None: a new one.
        admin: The socket of the administrative listener, which workers share; None: it is bound
            here, if there is to be one.
        metrics: The folder in which workers share what they count; None: there are no others.
    """
    return App(
        settings,
        config=config,
        flags=flags,
        state=state,
        replica=replica,
        admin=admin,
        metrics=metrics,
    )


class App(Application):
    """The ASGI application with what the process needs to know of it.

    Attributes:
        replica: Name of this process among those of a fleet.
        on_drain: Told when answers become the last ones of their connections, and when no more.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        config: Path | None,
        flags: dict[str, dict[str, Any]] | None,
        state: State | None,
        replica: str | None,
        admin: socket.socket | None,
        metrics: Path | None,
    ) -> None:
        self._state = state
        self._settings = settings
        self._config = config
        self._flags = flags
        self.replica = replica or new_replica_id()
        self._admin = admin
        self._metrics = metrics
        self.service: Service | None = None
        self.on_drain: Callable[[bool], None] = lambda _: None
        self._drained_since: float | None = None
        self._is_ending = False
        super().__init__(
            endpoint=lambda: self.service.endpoint if self.service is not None else None,
            readiness=self.readiness,
            metadata=lambda path: self.service.metadata(path) if self.service else None,
            landing=lambda: self.service.landing() if self.service else None,
            lifespan=self._lifespan,
        )

    def readiness(self) -> Readiness:
        """Whether requests should be sent here, and why not."""
        service = self.service
        if service is None:
            return Readiness(ready=False, reasons=("The tools are not loaded.",))
        reasons = []
        if self._is_ending:
            reasons.append("The server is about to stop.")
        elif self.is_draining:
            reasons.append("The server is drained.")
        if service.state.is_required and service.state.problem:
            reasons.append("The shared state cannot be used; the log says why.")
        elif service.state.is_required and not service.fleet.is_informed:
            reasons.append("What administrators have decided is not known yet.")
        # Of a server alone there is nobody to compare with.
        detail = service.fleet.detail() if service.state.is_shared else {}
        return Readiness(not reasons, tuple(reasons), detail)

    @property
    def is_draining(self) -> bool:
        """Whether requests are served, but should go elsewhere."""
        return self._drained_since is not None

    def begin_drain(self) -> None:
        """Let requests go elsewhere: readiness turns off, and what comes all the same is served.

        Listeners are told goodbye one after another, within the drain window. Once begun, calling
        it again changes nothing.
        """
        if self._drained_since is None:
            self._drained_since = asyncio.get_running_loop().time()
            window_s = self._settings.server.drain_window_s
            listeners = 0
            if self.service is not None:
                listeners = self.service.hub.open_streams
                self.service.hub.drain(window_s)
            self.on_drain(True)
            if window_s or not self._is_ending:
                log.info("draining", window_s=window_s, listeners=listeners, stops=self._is_ending)

    def end_drain(self) -> None:
        """Take requests again. Where the process is about to end it is too late for that."""
        if self._drained_since is not None and not self._is_ending:
            self._drained_since = None
            if self.service is not None:
                self.service.hub.reopen()
            self.on_drain(False)
            log.info("drain_ended")

    # What its server tells (app.http.serving.Served).

    def begin_end(self) -> float:
        """The process was asked to end: drain for good.

        Returns:
            Seconds until the socket should close. Who was drained before has had a part of them.
        """
        self._is_ending = True
        self.begin_drain()
        assert self._drained_since is not None
        gone_s = asyncio.get_running_loop().time() - self._drained_since
        return max(0.0, self._settings.server.drain_window_s - gone_s)

    def stop(self) -> None:
        """The socket closes now: listeners are told goodbye, and running calls get their grace."""
        self.begin_end()
        if self.service is not None:
            self.service.hub.shut_down()
            self.service.legacy.dialogues.ask_nobody()
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.server.shutdown_grace_s, self.service.executor.give_up)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        state = self._state or state_of(self._settings.state)
        service = Service(
            self._settings,
            config=self._config,
            flags=self._flags,
            state=state,
            tracing=tracing_of(self._settings),
            replica=self.replica,
            door=self,
        )
        await service.start()
        service.registry.settle()
        self.service = service
        if self.is_draining:  # it was drained before it began, as a worker that replaces another
            service.hub.drain(0.0)
        try:
            listener = self._admin or bind_admin(self._settings.admin)
            metrics = exposition(self._metrics)
            async with (
                metrics.sharing(),
                administration(self._console(service), self._settings.admin, listener, metrics),
            ):
                yield
        finally:
            self._is_ending = True
            await service.stop()
            self.service = None

    def _console(self, service: Service) -> Console:
        return Console(
            service.fleet,
            service.registry,
            authenticator=lambda: service.endpoint.authenticator,
            administrators=lambda: service.administrators,
            readiness=lambda: self.readiness().own,
            is_lasting=service.is_lasting,
        )
