"""The directory of recordings: one file each, bounded in number, size and age.

Several processes may share it: each writes and tidies under one lock, and looks at what is there
every time. Names have the instant, the id and a digest of the tool's name, so that tidying reads
no file. Links, and files of other names, are none of ours.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from app.recording.recording import Unusable

MAX_FILE_BYTES: Final = 1 << 30
CLOCK_SLACK_S: Final = 60.0
"""Clocks of machines that share a directory may differ by this much."""

_NAME: Final = re.compile(r"([0-9]{8}T[0-9]{12}Z)-([0-9a-f]{16})-([0-9a-f]{8})\.rec")
_DRAFT: Final = re.compile(r"\.[0-9a-f]{16}\.draft")
_LOCK: Final = ".lock"
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class Gone(Unusable):
    """A file that is not there any more, or never was."""


class Sealed(NamedTuple):
    """A recording that is ready to be written.

    Attributes:
        at: POSIX time of the call.
    """

    id: str
    tool: str
    at: float
    data: bytes


class Entry(NamedTuple):
    """A file that is there.

    Attributes:
        at: Instant of the call in UTC, as a text that sorts like it.
        tool: Digest of the tool's name.
    """

    name: str
    at: str
    id: str
    tool: str
    size: int


class Folder:
    """Keeps recordings in a directory.

    When one bound is reached, the tool that takes most of it loses its oldest recording: one
    tool that fails all the time does not push out those of the others.

    Args:
        clock: Gives POSIX time.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_recordings: int,
        max_bytes: int,
        max_age_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self._max_recordings = max_recordings
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock

    def prepare(self) -> None:
        """Make the directory, for this user alone, and try whether it can be written.

        Raises:
            OSError: It cannot.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked() as directory:
            probe = f".{os.urandom(8).hex()}.draft"
            _write(directory, probe, b"")
            os.unlink(probe, dir_fd=directory)

    def keep(self, recordings: Iterable[Sealed]) -> tuple[list[str], OSError | None]:
        """Write recordings, each whole or not at all, and let go of what is too much or too old.

        Returns:
            Ids of those that were written, and why another one was not.
        """
        kept: list[str] = []
        problem = None
        try:
            with self._locked() as directory:
                present = self._tidied(directory)
                for recording in recordings:
                    try:
                        entry = _entry_of(_name_of(recording), len(recording.data))
                        self._make_room(directory, present, entry)
                        _put(directory, entry, recording.data)
                        present.append(entry)
                        kept.append(recording.id)
                    except OSError as error:
                        problem = error
        except OSError as error:
            problem = error
        return kept, problem

    def entries(self) -> list[Entry]:
        """What is there, oldest first.

        Raises:
            OSError: It cannot be looked at.
        """
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return sorted(_look(directory)[0])
        finally:
            os.close(directory)

    def read(self, entry: Entry) -> bytes:
        """The bytes of a file.

        Raises:
            Unusable: It cannot be read.
        """
        return read_file(self.path / entry.name, follow=False)

    def _tidied(self, directory: int) -> list[Entry]:
        """What is there and may stay."""
        found, drafts = _look(directory)
        for name in drafts:  # nobody else writes now: their writers have died
            _unlink(directory, name)
        oldest = _instant(self._clock() - self._max_age_s)
        for entry in found:
            if entry.at < oldest:
                _unlink(directory, entry.name)
        return [entry for entry in found if entry.at >= oldest]

    def _make_room(self, directory: int, present: list[Entry], coming: Entry) -> None:
        now = _instant(self._clock() + CLOCK_SLACK_S)
        total = coming.size + sum(entry.size for entry in present)
        while present:
            if len(present) + 1 > self._max_recordings:
                share = Counter(entry.tool for entry in (coming, *present))
            elif total > self._max_bytes:
                share = Counter()
                for entry in (coming, *present):
                    share[entry.tool] += entry.size
            else:
                return
            largest = max(
                {entry.tool for entry in present},
                key=lambda tool: (share[tool], tool == coming.tool, tool),
            )
            # What claims to be of the future was written before the clock went back.
            victim = min(
                (entry for entry in present if entry.tool == largest),
                key=lambda entry: (entry.at <= now, entry.at),
            )
            _unlink(directory, victim.name)
            present.remove(victim)
            total -= victim.size

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The descriptor of the directory, while nobody else writes there."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600, dir_fd=directory)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield directory
            finally:
                os.close(lock)
        finally:
            os.close(directory)


def read_file(path: Path, *, follow: bool = True) -> bytes:
    """The bytes of a regular file.

    Raises:
        Unusable: It cannot be read, or is no such file.
    """
    try:
        # Without waiting for a pipe that nobody writes to.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
        with os.fdopen(os.open(path, flags), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
                raise Unusable("it is no regular file, or far too large")
            return file.read()
    except FileNotFoundError as error:
        raise Gone(f"it cannot be read: {error.strerror}") from None
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from None


def _look(directory: int) -> tuple[list[Entry], list[str]]:
    """Recordings, and drafts, of which only whoever has the lock can say what they are."""
    found, drafts = [], []
    with os.scandir(directory) as listing:
        for each in listing:
            if _DRAFT.fullmatch(each.name):
                drafts.append(each.name)
            elif _NAME.fullmatch(each.name):
                try:
                    about = each.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # another process was quicker
                if stat.S_ISREG(about.st_mode):
                    found.append(_entry_of(each.name, about.st_size))
    return found, drafts


def _put(directory: int, entry: Entry, data: bytes) -> None:
    draft = f".{entry.id}.draft"
    try:
        # Without fsync: a file that a power cut leaves half written does not open.
        _write(directory, draft, data)
        os.rename(draft, entry.name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        _unlink(directory, draft)
        raise


def _name_of(recording: Sealed) -> str:
    tool = hashlib.sha256(recording.tool.encode()).hexdigest()[:8]
    return f"{_instant(recording.at)}-{recording.id}-{tool}.rec"


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%S%fZ")


def _entry_of(name: str, size: int) -> Entry:
    at, id, rest = name.split("-")
    return Entry(name, at, id, rest.removesuffix(".rec"), size)


def _write(directory: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]


def _unlink(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
