"""The ASGI application: a service with its doors, as long as the process serves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from app.backing import State
from app.http.routes import Application
from app.service import Service, tracing_of
from app.settings import Settings
from app.sharing import state_of


def create_app(
    settings: Settings,
    *,
    config: Path | None = None,
    flags: dict[str, dict[str, Any]] | None = None,
    state: State | None = None,
) -> "App":
    """The ASGI application for these settings; the arguments are those of ``Service``."""
    return App(settings, config=config, flags=flags, state=state)


class App(Application):
    """The ASGI application with what the process needs to know of it."""

    def __init__(
        self,
        settings: Settings,
        *,
        config: Path | None,
        flags: dict[str, dict[str, Any]] | None,
        state: State | None,
    ) -> None:
        self._state = state
        self._settings = settings
        self._config = config
        self._flags = flags
        self.service: Service | None = None
        self.draining = False
        super().__init__(
            endpoint=lambda: self.service.endpoint if self.service is not None else None,
            is_ready=lambda: self.service is not None and not self.draining,
            metadata=lambda path: self.service.metadata(path) if self.service else None,
            landing=lambda: self.service.landing() if self.service else None,
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
        service = Service(
            self._settings,
            config=self._config,
            flags=self._flags,
            state=self._state or state_of(self._settings.state),
            tracing=tracing_of(self._settings),
        )
        await service.start()
        service.registry.settle()
        self.service = service
        try:
            yield
        finally:
            self.draining = True
            await service.stop()
            self.service = None
