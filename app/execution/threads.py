"""Worker threads for synchronous tools.

A thread cannot be stopped. At the deadline it is abandoned: its slot goes to the next call at
once, it is counted while it lives, and it never keeps the process from ending.
"""

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from app.protocol.errors import Unavailable

QUEUE_PER_THREAD: Final = 10
"""Calls that may wait for each thread; more are refused at once rather than late."""

Work = Callable[[], Any]
Done = Callable[[Any, BaseException | None], None]


class ThreadCall:
    """A synchronous function on its way through the pool."""

    __slots__ = ("abandoned", "context", "done", "ended", "started", "work")

    def __init__(self, work: Work, done: Done) -> None:
        self.work = work
        self.done = done
        self.context = contextvars.copy_context()
        self.started = False
        self.abandoned = False
        self.ended = False


class ThreadWorkers:
    """A pool whose every counter is touched in the event loop alone.

    Args:
        threads: Calls that run at once.
        max_abandoned: Abandoned threads that may be alive; then calls are refused.
    """

    def __init__(self, *, threads: int, max_abandoned: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._max_abandoned = max_abandoned
        self._idle: list[_Worker] = []
        self._waiting: deque[ThreadCall] = deque()
        self.running = 0
        self.abandoned = 0

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread."""
        return len(self._waiting)

    def submit(self, work: Work, done: Done) -> ThreadCall:
        """Run ``work`` in a thread; ``done(result, error)`` is called in the event loop.

        Raises:
            Unavailable: Every thread is taken and the queue is full.
        """
        if self.abandoned >= self._max_abandoned:
            raise Unavailable(
                "Too many abandoned calls still run.",
                retry_after_s=5,
                setting="execution.max_abandoned_threads",
            )
        call = ThreadCall(work, done)
        if self.running < self._threads:
            self._start(call)
        elif len(self._waiting) < self._threads * QUEUE_PER_THREAD:
            self._waiting.append(call)
        else:
            raise Unavailable("All workers are busy.", retry_after_s=1, setting="execution.threads")
        return call

    def abandon(self, call: ThreadCall) -> bool:
        """Stop waiting for a call. Returns whether a thread goes on with it."""
        if not call.started:
            if call in self._waiting:
                self._waiting.remove(call)
            return False
        if not call.abandoned:
            call.abandoned = True
            self.running -= 1
            self.abandoned += 1
            self._next()
        return True

    def stop(self) -> None:
        """Let the idle threads end. Those that run are daemons and end with the process."""
        self._waiting.clear()
        for worker in self._idle:
            worker.inbox.put(None)
        self._idle.clear()

    def _start(self, call: ThreadCall) -> None:
        call.started = True
        self.running += 1
        worker = self._idle.pop() if self._idle else _Worker(self._loop, self._finished)
        worker.inbox.put(call)

    def _next(self) -> None:
        if self._waiting and self.running < self._threads:
            self._start(self._waiting.popleft())

    def _finished(
        self, worker: "_Worker", call: ThreadCall, result: Any, error: BaseException | None
    ) -> None:
        call.ended = True
        if call.abandoned:
            self.abandoned -= 1
        else:
            self.running -= 1
        if len(self._idle) < self._threads:
            self._idle.append(worker)
        else:
            worker.inbox.put(None)
        try:
            call.done(result, error)
        finally:
            # Both lead back to whoever holds the call: a ring that only the collector would free.
            del call.work, call.done
            self._next()


class _Worker(threading.Thread):
    def __init__(self, loop: asyncio.AbstractEventLoop, finished: Callable[..., None]) -> None:
        super().__init__(name="tool", daemon=True)
        self.inbox: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()
        self._loop = loop
        self._report = finished
        self.start()

    def run(self) -> None:
        while (call := self.inbox.get()) is not None:
            result, error = None, None
            try:
                result = call.context.run(call.work)
            except BaseException as raised:  # noqa: BLE001  # SystemExit of a tool must not end the worker
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._report, self, call, result, error)
            except RuntimeError:  # the loop has closed: nobody waits any more
                return
            del call, result, error
