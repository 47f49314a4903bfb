"""Where lines of the record go."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson
import structlog

from app.audit.chain import Chain
from app.audit.files import (
    DIRECTORY_FLAGS,
    OpenFile,
    Part,
    is_in_use,
    open_directory,
    parts_in,
    tail_of,
)
from app.settings.audit import AuditSettings

MAX_SEEN: Final = 64
"""Files of other writers whose ends a new one puts on record."""

log = structlog.get_logger()


class Mark(NamedTuple):
    """An end of a file, as records name it: what stands there cannot go without a trace.

    Attributes:
        time: Of its last record.
        torn: Whether a line that was not finished may stand behind it.
    """

    file: str
    seq: int
    hash: str
    time: str
    torn: bool = False


class Sink(Protocol):
    """Takes records. All but ``open`` is called in one thread, which may wait there.

    A sink seals the records with its chain when it writes them, so that it can add some of its own.
    A record is what ``Chain.seal`` takes.
    """

    def open(self, chain: Chain) -> None:
        """Begin.

        Raises:
            OSError: It cannot; the text is for the operator.
        """
        ...

    def write(self, records: Sequence[bytes]) -> None:
        """Write all or nothing. When this returns, killing the process loses none.

        Raises:
            OSError: Nothing was written, and the chain is where it was.
        """
        ...

    def close(self) -> None:
        """There are no more."""
        ...


class FileSink:
    """Files in a folder, one after the other.

    Args:
        writer: Name of this process among those that write.
        about: Members of the first record of each file.
        instant: Gives the present as records have it.
        clock: Gives POSIX time, against which the age of files is held.
    """

    def __init__(
        self,
        directory: Path,
        settings: AuditSettings,
        writer: str,
        about: dict[str, Any],
        *,
        instant: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = directory
        self._settings = settings
        self._writer = writer
        self._about = about
        self._instant = instant
        self._clock = clock
        self._syncs = settings.fsync == "batch"
        self._directory = -1
        self._file: OpenFile
        self._next: OpenFile | None = None
        self._is_closed = False
        self._began = 0.0
        self._last = b""

    def open(self, chain: Chain) -> None:
        """As of ``Sink``."""
        self._chain = chain
        self._directory = open_directory(self._path)
        others = parts_in(self._path)
        self._file = OpenFile(self._directory, Part(self._writer, 1))
        self._begin(self._file, {"follows": None, "saw": self._seen(others)})
        self._prune()

    def write(self, records: Sequence[bytes]) -> None:
        """As of ``Sink``."""
        chain, before = self._chain, self._chain.head
        if not self._file.is_torn and not self._file.is_ours:
            log.error("audit_file_changed", file=self._file.part.name)
            self._file.is_torn = True
        if self._is_due:
            self._rotate()
            before = chain.head
        try:
            self._file.write(chain.seal(*records), syncs=self._syncs)
        except BaseException:
            chain.head = before
            raise
        self._last = records[-1]

    def close(self) -> None:
        """As of ``Sink``."""
        if not (self._file.is_torn or self._is_closed):
            record = members(self._own("close", why="stopped"))
            self._file.write(self._chain.seal(record), syncs=self._syncs)
        self._file.close()
        os.close(self._directory)

    @property
    def _is_due(self) -> bool:
        settings, file = self._settings, self._file
        is_old = time.monotonic() - self._began >= settings.rotate_s
        return is_old or file.size >= settings.rotate_bytes or file.is_torn or self._is_closed

    def _rotate(self) -> None:
        """Close the file and begin the next. Where that fails half-way it goes on from there."""
        old, chain = self._file, self._chain
        if self._next is None:
            # Before the old one says that another follows: so there always is one.
            part = Part(self._writer, old.part.part + 1)
            try:
                self._next = OpenFile(self._directory, part)
            except FileNotFoundError:  # the folder was taken away; is there another one by now?
                self._reopen()
                self._next = OpenFile(self._directory, part)
        if not (old.is_torn or self._is_closed):
            before = chain.head
            record = members(self._own("close", why="rotated"))
            try:
                old.write(chain.seal(record), syncs=self._syncs)
            except BaseException:
                chain.head = before
                raise
            self._is_closed = True
            self._last = record
        head = chain.head
        when = time_of(self._last)
        mark = Mark(old.part.name, head.seq, head.hash.decode(), when, old.is_torn)
        self._begin(self._next, {"follows": mark._asdict(), "saw": []})
        self._file, self._next, self._is_closed = self._next, None, False
        old.close()
        self._prune()

    def _reopen(self) -> None:
        """Go on in the folder that is there now. None is made: a volume may have been there."""
        directory = os.open(self._path, DIRECTORY_FLAGS)
        os.close(self._directory)
        self._directory = directory

    def _begin(self, file: OpenFile, more: dict[str, Any]) -> None:
        before = self._chain.head
        own = self._own("open", writer=self._writer, part=file.part.part, **self._about, **more)
        record = members(own)
        try:
            file.write(self._chain.seal(record), syncs=self._syncs)
        except BaseException:
            self._chain.head = before
            raise
        self._began, self._last = time.monotonic(), record

    def _own(self, kind: str, **members: Any) -> dict[str, Any]:
        return {"time": self._instant(), "kind": kind, **members}

    def _seen(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        """Where other writers have got to: cutting that off would show."""
        newest = {part.writer: part for part in parts}
        found = []
        for part in sorted(newest.values(), key=self._touched)[-MAX_SEEN:]:
            mark = self._mark(part)
            if mark is not None:
                found.append(mark._asdict())
        return found

    def _mark(self, part: Part) -> Mark | None:
        try:
            line, is_torn = tail_of(self._path / part.name)
        except OSError:
            return None
        if line is None:
            return None
        text = str(line.record.get("time", ""))
        return Mark(part.name, line.record["seq"], line.hash.decode(), text, is_torn)

    def _touched(self, part: Part) -> float:
        try:
            return (self._path / part.name).stat().st_mtime
        except OSError:
            return 0.0

    def _prune(self) -> None:
        """Delete what is too old or too much, and put that on record before."""
        keep, keep_s = self._settings.keep_files, self._settings.keep_s
        if keep is None and keep_s is None:
            return
        try:
            parts = sorted(parts_in(self._path), key=self._touched)
            excess = 0 if keep is None else len(parts) - keep
            for number, part in enumerate(parts):
                is_old = keep_s is not None and self._clock() - self._touched(part) > keep_s
                if not (number < excess or is_old):
                    break  # oldest first: whatever is deleted is older than all that stays
                path = self._path / part.name
                if part == self._file.part or is_in_use(path):
                    continue
                mark = self._mark(part) or Mark(part.name, 0, "", "")
                self.write([members(self._own("pruned", deleted=mark._asdict()))])
                path.unlink(missing_ok=True)  # another process may be quicker
        except OSError as error:
            log.warning("audit_not_pruned", problem=str(error))


def members(record: dict[str, Any]) -> bytes:
    """As ``Chain.seal`` takes it."""
    return orjson.dumps(record)[1:-1]


def time_of(record: bytes) -> str:
    """The ``time`` of members; empty where they have none."""
    return str(orjson.loads(b"{%b}" % record).get("time", ""))
