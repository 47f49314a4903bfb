"""The ASGI application: a service with its doors, as long as the process serves."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from app.admin.operations import Console
from app.admin.serving import administration, bind_admin
from app.backing import State
from app.http.routes import Application
from app.observability.exposition import exposition
from app.service import Service
from app.settings import Settings
from app.sharing import state_of


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
    """The ASGI application with what the process needs to know of it."""

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
        self._replica = replica
        self._admin = admin
        self._metrics = metrics
        self.service: Service | None = None
        self._is_ending = False
        self._is_drained = False
        super().__init__(
            endpoint=lambda: self.service.endpoint if self.service is not None else None,
            is_ready=lambda: self.service is not None and not self.draining,
            metadata=lambda path: self.service.metadata(path) if self.service else None,
            landing=lambda: self.service.landing() if self.service else None,
            lifespan=self._lifespan,
        )

    @property
    def draining(self) -> bool:
        """Whether no further requests are wanted."""
        return self._is_ending or self._is_drained

    def begin_drain(self) -> None:
        """Readiness turns off; whatever comes is served all the same."""
        self._is_drained = True

    def end_drain(self) -> None:
        """Readiness turns on again."""
        self._is_drained = False

    def drain(self) -> None:
        """Readiness turns off, listeners are told goodbye, and running calls get their grace."""
        self._is_ending = True
        if self.service is not None:
            self.service.hub.shut_down()
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
            replica=self._replica,
            door=self,
        )
        await service.start()
        service.registry.settle()
        self.service = service
        listener = self._admin or bind_admin(self._settings.admin)
        metrics = exposition(self._metrics)
        try:
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
            readiness=lambda: {"ready": not self.draining},
            is_lasting=service.is_lasting,
        )
