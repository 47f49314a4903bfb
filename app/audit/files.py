"""The files of the record: their names, opening them, their ends, and when they go.

A process writes files of its own, one after the other, which nobody else opens for writing. Their
names say who wrote them, when that began, and their number among its files.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from app.audit.chain import MAX_LINE_BYTES, BadLine, Line, take_apart

_NAME: Final = re.compile(r"(?P<writer>[A-Za-z0-9._-]{1,128})\.(?P<part>[0-9]{6,9})\.jsonl\Z")
_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Part(NamedTuple):
    """The name of a file: ``part`` counts the files of a writer from 1."""

    writer: str
    part: int

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.writer}.{self.part:06d}.jsonl"

    @classmethod
    def of(cls, name: str) -> Self | None:
        """None: it is no file of a record."""
        found = _NAME.match(name)
        return None if found is None else cls(found["writer"], int(found["part"]))


class Tail(NamedTuple):
    """How a file ends.

    Attributes:
        line: Its last whole line; None: there is none that could be read.
        is_torn: Whether something stands behind that, of a line that was not finished.
    """

    line: Line | None
    is_torn: bool


def writer_name(replica: str, pid: int, began: float, salt: str) -> str:
    """The name of a process among those that write.

    Args:
        replica: Of the server, such as its host.
        began: POSIX time.
        salt: Tells apart what the others do not.
    """
    plain = re.sub(r"[^A-Za-z0-9.-]", "-", replica)[:64].strip(".-") or "server"
    return f"{plain}_{pid}_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(began))}_{salt}"


def parts_in(directory: Path) -> list[Part]:
    """The files of a folder, by writer and number.

    Raises:
        OSError: It cannot be read.
    """
    found = (Part.of(entry.name) for entry in os.scandir(directory) if is_plain(entry))
    return sorted(part for part in found if part is not None)


def is_plain(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a file, and no link to one."""
    return entry.is_file(follow_symlinks=False)


def tail_of(path: Path) -> Tail:
    """How a file ends.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * MAX_LINE_BYTES))
        data = file.read()
    whole, _, rest = data.rpartition(b"\n")
    last = whole.rpartition(b"\n")[2]
    try:
        return Tail(take_apart(last) if last else None, bool(rest))
    except BadLine:
        return Tail(None, bool(rest))


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends; what is far too long comes in pieces without one.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield line


class OpenFile:
    """The file that is being written.

    Args:
        directory: Descriptor of the folder.

    Raises:
        OSError: It cannot be made: there is one of this name, or a link, or no right to.
    """

    def __init__(self, directory: int, part: Part) -> None:
        self.part = part
        self._directory = directory
        self.size = 0
        self.is_torn = False
        self._descriptor = os.open(part.name, _FLAGS, _MODE, dir_fd=directory)
        try:
            # Held as long as the process lives: who deletes old files can tell this one is in use.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise
        own = os.fstat(self._descriptor)
        self._identity = own.st_dev, own.st_ino

    def write(self, data: bytes, *, syncs: bool = False) -> None:
        """Append all or nothing.

        Args:
            syncs: Whether it must be on the disk.

        Raises:
            OSError: Nothing was appended, or ``is_torn`` and nothing may be any more.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if syncs:
                os.fdatasync(self._descriptor)
        except OSError:
            if len(rest) < len(data):
                self._cut()
            raise
        self.size += len(data)

    def _cut(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self.is_torn = True

    @property
    def is_ours(self) -> bool:
        """Whether it is still there under its name, and nobody else has written to it."""
        try:
            named = os.stat(self.part.name, dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return False
        return named.st_size == self.size and (named.st_dev, named.st_ino) == self._identity

    def close(self) -> None:
        """Be done with it."""
        os.close(self._descriptor)


def open_directory(path: Path) -> int:
    """A descriptor of the folder, which is made if it is not there.

    Raises:
        OSError: It cannot be made or opened, or nothing can be written in it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, DIRECTORY_FLAGS)
    if not os.access(path, os.W_OK | os.X_OK):
        os.close(descriptor)
        raise PermissionError(13, "Permission denied", str(path))
    return descriptor


def is_in_use(path: Path) -> bool:
    """Whether the process that writes a file lives; True too where that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return True
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
