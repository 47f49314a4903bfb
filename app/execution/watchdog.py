"""Notices that the event loop is blocked, and says by what.

An asynchronous tool that computes or waits without ``await`` holds up every request of the
process. Nothing can be done about that from outside, but whoever runs the server should know
which tool it is. Nothing here happens per call: the loop only notes the time twice a second.
"""

import asyncio
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

from app.execution.course import carry_course
from app.execution.execution import Execution
from app.execution.tasks import Tasks
from app.observability.metrics import LOOP_BLOCKED, LOOP_LAG

BEAT_S: Final = 0.5
BLOCKED_S: Final = 1.0
"""A loop that is this late is blocked."""

_CARRYING: Final = (Tasks._run.__code__, carry_course.__code__)  # noqa: SLF001  # known by its code alone
"""What runs in a task that carries a call, or goes around it."""

log = structlog.get_logger()


class Watchdog:
    """Watches the running event loop from a thread.

    Args:
        folder: Of the tools.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._beat_at = time.monotonic()
        self._told_at = 0.0
        self._stop = threading.Event()
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._timer.cancel()
        self._stop.set()

    def _beat(self) -> None:
        now = time.monotonic()
        late_s = now - self._beat_at - BEAT_S
        LOOP_LAG.observe(max(0.0, late_s))
        if late_s > BLOCKED_S:
            LOOP_BLOCKED.inc()
        if late_s > BLOCKED_S and self._told_at < self._beat_at:
            # Native code that held the interpreter's lock has kept the thread from looking too.
            self._tell(late_s, None, None)
        self._beat_at = now
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _watch(self) -> None:
        while not self._stop.wait(BEAT_S):
            beat_at = self._beat_at
            late_s = time.monotonic() - beat_at - BEAT_S
            if late_s > BLOCKED_S and self._told_at < beat_at:  # once for each time
                frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # public by its documentation
                task = asyncio.current_task(self._loop)
                if self._beat_at == beat_at:  # still blocked, by what was just found
                    name = _tool_of(task) if task is not None else None
                    self._tell(late_s, name, self._place(frame))

    def _tell(self, late_s: float, tool: str | None, place: str | None) -> None:
        self._told_at = time.monotonic()
        log.warning("event_loop_blocked", tool=tool, seconds=round(late_s, 1), place=place)

    def _place(self, frame: FrameType | None) -> str | None:
        """The innermost line of the tools folder, or else of anything."""
        innermost = frame
        while frame is not None and not frame.f_code.co_filename.startswith(self._folder):
            frame = frame.f_back
        found = frame or innermost
        return None if found is None else f"{Path(found.f_code.co_filename).name}:{found.f_lineno}"


def _tool_of(task: "asyncio.Task[Any]") -> str | None:
    """Name of the tool whose call a task carries; None: it carries none. From any thread."""
    coroutine: Any = task.get_coro()
    if getattr(coroutine, "cr_code", None) in _CARRYING and coroutine.cr_frame:
        execution: Execution = coroutine.cr_frame.f_locals["execution"]
        return execution.tool.name
    return None
