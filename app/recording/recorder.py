"""Keeps calls while the server serves: a short queue, and one thread that writes.

What a call costs here is one entry of the queue. Where the thread cannot follow, or the disk
refuses, recordings are dropped and counted, and the log says so now and then; no call ever waits,
or fails, for its recording.
"""

import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from app.observability.logs import printable
from app.recording.folder import Folder, Sealed
from app.recording.gathering import Finished, Gatherer, TooLarge
from app.recording.vault import Vault

MAX_WAITING: Final = 256
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Calls that wait to be written, and about what they take."""

BATCH: Final = 32
REST: Final = 4
"""The thread rests this many times as long as it has worked, so that a flood of failing calls
leaves the processor to the calls."""

TIDY_S: Final = 600.0
LOG_S: Final = 60.0
log = structlog.get_logger()


class Recorder:
    """Keeps calls of one process.

    Args:
        clock: Gives seconds that only go forward.

    Attributes:
        kept: How many were written.
        dropped: How many were not, by reason: ``behind``, ``too_large``, ``failed``.
    """

    def __init__(
        self,
        folder: Folder,
        vault: Vault,
        gatherer: Gatherer,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._vault = vault
        self._gatherer = gatherer
        self._clock = clock
        self._queue: queue.SimpleQueue[tuple[str, Finished, int] | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recordings", daemon=True)
        self._told: Counter[str] = Counter()
        self._told_at: dict[str, float] = {}
        self._problem = ""
        self.kept = 0
        self.dropped: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Write what waits, as far as there is time."""
        self._stopping.set()
        self._queue.put(None)
        self._thread.join(timeout_s)

    def keep(self, finished: Finished) -> str | None:
        """Take a call that has ended, and say by which name it will be found; None: it is dropped.

        Never waits, never raises.
        """
        size = finished.weight
        with self._lock:
            is_full = self._queue.qsize() >= MAX_WAITING
            if is_full or self._waiting_bytes + size > MAX_WAITING_BYTES:
                self.dropped["behind"] += 1
                return None
            self._waiting_bytes += size
        id = finished.error_id or secrets.token_hex(8)
        self._queue.put((id, finished, size))
        return id

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            began = self._clock()
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001  # the thread must outlive a bug of ours
                self._drop("failed", len(batch), type(error).__name__)
            self._tell()
            self._stopping.wait(REST * (self._clock() - began))

    def _take(self) -> list[tuple[str, Finished]] | None:
        """Some that wait; none of them: it is time to tidy up; None: the end."""
        batch: list[tuple[str, Finished]] = []
        try:
            while len(batch) < BATCH:
                item = self._queue.get(timeout=TIDY_S) if not batch else self._queue.get_nowait()
                if item is None:
                    if not batch:
                        return None
                    self._queue.put(None)
                    break
                id, finished, size = item
                batch.append((id, finished))
                with self._lock:
                    self._waiting_bytes -= size
        except queue.Empty:
            pass
        return batch

    def _write(self, batch: list[tuple[str, Finished]]) -> None:
        sealed, calls = [], dict(batch)
        for id, finished in batch:
            try:
                data = self._vault.seal(self._gatherer.gather(finished, id))
            except TooLarge:
                self._drop("too_large")
            except Exception as error:  # noqa: BLE001  # of its data, or a bug of ours: others go on
                # The kind alone: the text of an error may quote the call.
                self._drop("failed", problem=type(error).__name__)
            else:
                sealed.append(Sealed(id, finished.tool, finished.began, data))
        kept, problem = self._folder.keep(sealed)
        for id in kept:
            call = calls[id]
            log.info(
                "call_recorded",
                recording=id,
                tool=call.tool,
                outcome=call.outcome,
                request_id=printable(str(call.request_id)),
            )
        self.kept += len(kept)
        if problem is not None:
            lost = len(sealed) - len(kept)
            self._drop("failed", lost, problem.strerror or type(problem).__name__)

    def _drop(self, reason: str, count: int = 1, problem: str = "") -> None:
        with self._lock:
            self.dropped[reason] += count
        self._problem = problem or self._problem

    def _tell(self) -> None:
        """Say in the log what was dropped, not more often than now and then."""
        now = self._clock()
        for reason, count in list(self.dropped.items()):
            told_at = self._told_at.get(reason)
            lost = count - self._told[reason]
            if lost and (told_at is None or now - told_at >= LOG_S):
                self._told[reason], self._told_at[reason] = count, now
                problem = self._problem if reason == "failed" else None
                log.warning("recordings_dropped", reason=reason, count=lost, problem=problem)
