"""Keeps several processes that serve running, and ends them together."""

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final

import structlog

from app.cli.exits import Exit

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
"""Before a worker is replaced that has not lived for long."""

STEADY_S: Final = 10.0
"""Who has served for that long starts with the shortest pause again."""

DEATHS: Final = 5
DEATHS_WITHIN_S: Final = 60.0
"""More deaths of each worker than so many within this time are a crash loop."""

FATAL: Final = (Exit.STARTUP, Exit.CONFIGURATION, Exit.TOOLS, Exit.BIND)
"""With these a worker says itself why it could not start."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Start = Callable[[], tuple[SpawnProcess, Connection]]
"""Starts a worker. It says something on the connection when it serves."""

log = structlog.get_logger()


class Place:
    """Of one worker and those that replace it.

    Attributes:
        serving_since: When it began to serve; None: it has not.
        start_at: When the next one is to be started, while there is none.
    """

    def __init__(self) -> None:
        self.worker: SpawnProcess | None = None
        self.says: Connection | None = None
        self.serving_since: float | None = None
        self.start_at = 0.0
        self._failures = 0

    def start(self, start: Start) -> None:
        self.worker, self.says = start()

    def hear(self, now: float) -> None:
        """The worker serves; or it has ended, which is another's to notice."""
        assert self.says is not None
        with contextlib.suppress(EOFError, OSError):
            self.says.recv_bytes()
            self.serving_since = now
        self._hang_up()

    def bury(self, now: float) -> int:
        """Forget a worker that has ended, and plan the next one. Returns its exit code."""
        assert self.worker is not None
        self.worker.join()
        code = self.worker.exitcode or 0
        self.worker.close()
        self.worker = None
        self._hang_up()
        self.plan(now)
        return code

    def plan(self, now: float) -> None:
        """When the next one is to be started: the sooner, the longer the last one has served."""
        is_steady = self.serving_since is not None and now - self.serving_since > STEADY_S
        self._failures = 0 if is_steady else min(self._failures + 1, 10)
        self.serving_since = None
        self.start_at = now + min(FIRST_PAUSE_S * 2**self._failures, LONGEST_PAUSE_S)

    def _hang_up(self) -> None:
        if self.says is not None:
            self.says.close()
            self.says = None


class Supervisor:
    """Starts workers, replaces those that die, and passes the end on to all of them at once.

    Args:
        end_s: How long a worker may take to end; then it is killed.
        on_end: Called when the end begins, before workers are told.
    """

    def __init__(
        self, count: int, start: Start, *, end_s: float, on_end: Callable[[], None]
    ) -> None:
        self._places = [Place() for _ in range(count)]
        self._start = start
        self._end_s = end_s
        self._on_end = on_end
        self._signals: deque[int] = deque()
        self._deaths: deque[float] = deque()
        self._code = Exit.OK
        self._end_at: float | None = None
        self._passed_on: int | None = None

    def run(self) -> Exit:
        """Until every worker has ended. Returns the exit code of the whole."""
        with self._woken_by_signals() as wakes:
            try:
                while self._end_at is None or self._workers():
                    self._start_due()
                    self._wait(wakes)
            finally:  # whatever happens: nobody would end them afterwards
                self._kill()
        return self._code

    def _workers(self) -> list[SpawnProcess]:
        return [place.worker for place in self._places if place.worker is not None]

    def _start_due(self) -> None:
        for place in self._places:
            now = time.monotonic()
            if place.worker is None and self._end_at is None and place.start_at <= now:
                try:
                    place.start(self._start)
                except OSError as error:  # no memory, too many processes or open files
                    log.error("worker_not_started", problem=str(error))  # noqa: TRY400  # not ours
                    place.plan(now)
                    self._count(now)

    def _wait(self, wakes: socket.socket) -> None:
        """For a signal, a worker that says something or ends, or time to do something."""
        until = [place.start_at for place in self._places if place.worker is None]
        if self._end_at is not None:
            until = [self._end_at]
        timeout_s = max(0.0, min(until) - time.monotonic()) if until else None
        sources: list[Connection | socket.socket | int] = [wakes]
        for place in self._places:
            if place.worker is not None:
                sources.append(place.worker.sentinel)
            if place.says is not None:
                sources.append(place.says)
        ready = wait(sources, timeout_s)
        now = time.monotonic()
        if wakes in ready:
            wakes.recv(4096)
        while self._signals:
            self._end(self._signals.popleft())
        for place in self._places:
            if place.says in ready:
                place.hear(now)
            if place.worker is not None and place.worker.sentinel in ready:
                self._has_ended(place, now)
        if self._end_at is not None and now >= self._end_at:
            self._kill()

    def _has_ended(self, place: Place, now: float) -> None:
        assert place.worker is not None
        pid, was_serving = place.worker.pid, place.serving_since is not None
        code = place.bury(now)
        if self._end_at is not None:
            # One that had no handler yet ends by the signal itself.
            if code not in (Exit.OK, -signal.SIGTERM, -signal.SIGINT):
                self._fail(code)
            return
        log.error("worker_died", pid=pid, exit_code=code)
        others = any(each.serving_since is not None for each in self._places)
        if code in FATAL and not was_serving and not others:  # the next one would fail alike
            self._fail(code)
            self._end(signal.SIGINT)
        else:
            self._count(now)

    def _count(self, now: float) -> None:
        """A worker more has died, or could not be started: is that a crash loop?"""
        self._deaths.append(now)
        while self._deaths[0] < now - DEATHS_WITHIN_S:
            self._deaths.popleft()
        if len(self._deaths) > DEATHS * len(self._places):
            log.error("workers_keep_dying", deaths=len(self._deaths), within_s=DEATHS_WITHIN_S)
            self._fail(Exit.WORKERS)
            self._end(signal.SIGINT)

    def _fail(self, code: int) -> None:
        if self._code == Exit.OK:
            try:
                self._code = Exit(code)
            except ValueError:  # a signal, or a code that is not ours
                self._code = Exit.WORKERS

    def _end(self, number: int) -> None:
        """Pass a signal on. The second one says that there is no time for a drain window."""
        if self._end_at is None:
            self._end_at = time.monotonic() + self._end_s
            self._on_end()
            is_orderly = number == signal.SIGTERM
        else:
            is_orderly = number == signal.SIGTERM and self._passed_on != signal.SIGTERM
        self._passed_on = signal.SIGTERM if is_orderly else signal.SIGINT
        for worker in self._workers():
            assert worker.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, self._passed_on)

    def _kill(self) -> None:
        for place in self._places:
            if place.worker is not None:
                log.error("worker_killed", pid=place.worker.pid)
                place.worker.kill()
                place.bury(time.monotonic())
                self._fail(Exit.STUCK)

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        reads, writes = socket.socketpair()
        with reads, writes:
            reads.setblocking(False)
            writes.setblocking(False)
            before = signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
            for number in SIGNALS:  # for good: the process ends afterwards
                signal.signal(number, lambda number, _: self._signals.append(number))
            try:
                yield reads
            finally:
                signal.set_wakeup_fd(before)
