"""The ``lifespan()`` of tool modules: their connections, opened before and closed after use."""

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog

from app.registry.loader import LoadedFile
from app.registry.tool import Tool

TIMEOUT_S: Final = 30.0
"""How long a module may take to get ready, and to close."""

log = structlog.get_logger()


class LifespanError(Exception):
    """A module that did not get ready; the text says why."""


def settings_of(file: LoadedFile, tools: Iterable[Tool]) -> dict[str, Any]:
    """What configures the connections of a file: the settings of all its tools, in name order."""
    settings: dict[str, Any] = {}
    for tool in tools:
        if tool.source is file:
            settings |= tool.settings
    return settings


class Lifespan:
    """A module's ``lifespan()``, entered and left in one task of its own.

    Attributes:
        settings: Given to a ``lifespan`` that takes a parameter.
    """

    def __init__(self, file: LoadedFile, settings: Mapping[str, Any]) -> None:
        self._file = file
        self.settings = settings
        self._leave = asyncio.Event()
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"lifespan of {file.path}")

    async def _run(self) -> None:
        lifespan = self._file.module.lifespan
        try:
            takes_settings = bool(inspect.signature(lifespan).parameters)
            manager = lifespan(self.settings) if takes_settings else lifespan()
            async with manager as value:
                self._file.lifespan_value = value
                if not self._entered.done():
                    self._entered.set_result(None)
                await self._leave.wait()
        except BaseException as error:  # sys.exit() in it must not end the server
            if not self._entered.done():
                self._entered.set_exception(LifespanError(f"{type(error).__name__}: {error}"))
            elif not isinstance(error, asyncio.CancelledError):
                log.exception("lifespan_failed", file=self._file.path)

    async def enter(self) -> None:
        """Wait until the module is ready.

        Raises:
            LifespanError: What the module raised, or that it took too long.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._entered
        except TimeoutError:
            self._task.cancel()
            raise LifespanError(f"it did not yield within {TIMEOUT_S:g} s") from None

    async def exit(self, timeout_s: float = TIMEOUT_S) -> None:
        """Close what the module opened; what does not close in time is left behind."""
        self._leave.set()
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            self._task.cancel()
            log.error("lifespan_did_not_end", file=self._file.path)
