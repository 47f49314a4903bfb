"""One thread that writes records: those that come together in one write, and one word back.

The event loop never waits for a disk. While nothing can be written, records wait in memory up to a
bound; beyond it they are counted, and the count is put on record. Answers do not wait then.

A byte in a pipe means: write this; one in the other: it is done. The end of either pipe means the
end. Two threads that wake each other in this way need the interpreter's lock least often; a queue
and ``call_soon_threadsafe`` cost twice as much.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

import structlog

from app.audit.sink import Sink
from app.observability.metrics import AUDIT_FAILURES

MAX_WAITING: Final = 10_000
"""Records that wait to be written; each is below a few KiB."""
RETRY_S: Final = 0.5
TELL_S: Final = 60.0
"""While nothing can be written the log says so this often."""
STOP_S: Final = 3.0
GATHER_TURNS: Final = 2
"""Turns of the event loop for which a batch is left open. In so many a call that has just been read
comes to its end, if its tool waits for nothing: with 16 clients a write serves twice as many.
"""

_WAKE: Final = b"."

Written = asyncio.Future[bool]
"""Whether records were written; false: the answer goes without waiting longer."""

T = TypeVar("T")
log = structlog.get_logger()


class Writer(Generic[T]):
    """Writes records of one process. All but its thread belongs to the event loop.

    Args:
        make: Makes a record of what is put. For a whole batch at once, which takes half the time;
            what has to wait for longer is made a record at once, so that it holds on to nothing.
        gap: Makes the record of so many that are lost.
        patience_s: How long answers wait for a write.

    Attributes:
        is_failing: Whether nothing can be written at the moment.
        unrecorded: Answers that have left before their record was written, ever.
        lost: Records that were never written, ever.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        make: Callable[[T], bytes],
        gap: Callable[[int], bytes],
        patience_s: float,
    ) -> None:
        self._sink = sink
        self._make = make
        self._gap = gap
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._gathered: list[T] = []
        self._waiting: list[bytes] = []
        self._written: Written | None = None
        self._under_way: tuple[list[bytes], Written | None] | None = None
        self._since = 0.0
        self._is_scheduled = False
        self._watch: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._told_at = 0.0
        self._is_stopping = False
        self._lost = 0
        self.is_failing = False
        self.unrecorded = 0
        self.lost = 0
        self._handed: Sequence[bytes] = ()
        self._problem: str | None = None
        self._orders, self._order = os.pipe()
        self._reports, self._report = os.pipe()
        self._loop.add_reader(self._reports, self._heard)
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # No executor's: the end of the process must not wait for a disk that hangs.
        threading.Thread(target=self._run, name="audit", daemon=True).start()

    def put(self, what: T) -> Written | None:
        """Have a record of it written.

        Returns:
            What its answer waits for; None: nothing can be written now, and it does not.
        """
        waiting = self._waiting
        if self._is_stopping:
            return None
        if len(waiting) >= MAX_WAITING:
            self._lost += 1  # until these are written: then this is put on record
            self.lost += 1
            self._leave_without(1)
            return None
        if self.is_failing:
            waiting += self._made([what])
            self._leave_without(1)
            return None
        if self._written is None:
            self._written = self._loop.create_future()
        if self._under_way is not None:
            waiting += self._made([what])
            return self._written
        self._gathered.append(what)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._gather, GATHER_TURNS)
        return self._written

    async def stop(self) -> None:
        """Write what waits, if that is possible in time, and end."""
        if self._is_stopping:
            return
        self._is_stopping = True
        deadline = self._loop.time() + STOP_S
        while self._is_behind and self._loop.time() < deadline:
            if self._under_way is None:
                self._hand_over()
            await asyncio.sleep(0.005)
        os.close(self._order)
        self._order = -1
        await asyncio.wait([self._ended], timeout=max(0.1, deadline - self._loop.time()))
        for timer in (self._watch, self._retry):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._reports)
        os.close(self._reports)
        batch, written = self._under_way or ([], None)
        if self._is_behind or not self._ended.done():
            self.lost += len(self._gathered) + len(self._waiting) + len(batch)
            log.error("audit_unfinished", lost=self.lost, unrecorded=self.unrecorded)
        self._resolve(written, False)
        self._resolve(self._written, False)

    # In the event loop.

    @property
    def _is_behind(self) -> bool:
        return bool(self._gathered or self._waiting or self._under_way)

    def _made(self, gathered: Sequence[T]) -> list[bytes]:
        make, records = self._make, []
        for what in gathered:
            try:
                records.append(make(what))
            except Exception:  # a bug of ours, which must not cost the others their records
                log.exception("audit_record_failed")
                self.lost += 1
                records.append(self._gap(1))
        return records

    def _gather(self, turns: int) -> None:
        """Write after so many more turns."""
        if turns:
            self._loop.call_soon(self._gather, turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        self._is_scheduled = False
        if self._under_way is not None or self._order < 0:
            return
        batch, self._waiting = self._waiting, []
        gathered, self._gathered = self._gathered, []
        batch += self._made(gathered)
        if batch:
            if self._lost:
                batch.append(self._gap(self._lost))
                self._lost = 0
            self._under_way, self._written = (batch, self._written), None
            self._since = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_later(self._patience_s / 2, self._look)
            self._handed = batch
            os.write(self._order, _WAKE)

    def _heard(self) -> None:
        """The thread has written, or has ended."""
        if os.read(self._reports, 1):
            self._done(self._problem)
        else:
            self._loop.remove_reader(self._reports)
            self._ended.set_result(None)

    def _look(self) -> None:
        """Does the write under way take too long?"""
        self._watch = None
        if self._under_way is None:
            return
        self._watch = self._loop.call_later(self._patience_s / 2, self._look)
        if self._loop.time() - self._since >= self._patience_s:
            self._fail(f"a write takes longer than {self._patience_s:g} s")

    def _done(self, problem: str | None) -> None:
        """A write has ended."""
        assert self._under_way is not None
        batch, written = self._under_way
        self._under_way = None
        if problem is None:
            if self.is_failing:
                self.is_failing = False
                log.warning("audit_recovered", unrecorded=self.unrecorded, lost=self.lost)
            self._resolve(written, True)
            self._hand_over()
            return
        self._waiting = batch + self._waiting
        self._fail(problem, written)
        self._retry = self._loop.call_later(RETRY_S, self._hand_over)

    def _fail(self, problem: str, written: Written | None = None) -> None:
        """Nothing can be written: answers go on without."""
        if not self.is_failing:
            self.is_failing = True
            self._told_at = self._loop.time() - TELL_S
            under_way = 0 if self._under_way is None else len(self._under_way[0])
            self._leave_without(under_way + len(self._waiting))
        if self._loop.time() - self._told_at >= TELL_S:
            self._told_at = self._loop.time()
            log.error("audit_failing", problem=problem, unrecorded=self.unrecorded, lost=self.lost)
        if self._under_way is not None:
            written = self._under_way[1]
        self._resolve(written, False)
        self._resolve(self._written, False)
        self._written = None

    def _leave_without(self, answers: int) -> None:
        self.unrecorded += answers
        AUDIT_FAILURES.add(answers)

    @staticmethod
    def _resolve(written: Written | None, outcome: bool) -> None:
        if written is not None and not written.done():
            written.set_result(outcome)

    # In the thread.

    def _run(self) -> None:
        while os.read(self._orders, 1):
            self._problem = self._write(self._handed)
            with suppress(BrokenPipeError):  # nobody waits any more
                os.write(self._report, _WAKE)
        try:
            self._sink.close()
        except OSError as error:
            log.warning("audit_not_closed", problem=error.strerror or str(error))
        os.close(self._orders)
        os.close(self._report)

    def _write(self, batch: Sequence[bytes]) -> str | None:
        """What is wrong, if anything."""
        try:
            self._sink.write(batch)
        except OSError as error:
            return error.strerror or str(error)
        except Exception as error:  # a bug of ours, or of a sink
            log.exception("audit_write_failed")
            return type(error).__name__
        return None
