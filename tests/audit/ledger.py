"""Records written as a server writes them, and what is done to them afterwards."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from app.audit.chain import Chain, key_id
from app.audit.files import parts_in
from app.audit.records import Instants
from app.audit.sink import FileSink
from app.audit.verifying import Report, Verifier
from app.settings import AuditSettings

KEY: Final = b"k" * 32
_numbers: Final = itertools.count(1)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def text(self) -> str:
        """As records have it."""
        return Instants().encoded(self.now).decode()


class Ledger:
    """One writer.

    Args:
        settings: Of ``[audit]``, besides the directory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        key: bytes | None = KEY,
        clock: Clock | None = None,
        writer: str | None = None,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.clock = clock or Clock()
        self.writer = writer or f"here_{next(_numbers)}_now"
        chain = {"chain": "sha256"} if key is None else {"chain": "hmac-sha256", "key": key_id(key)}
        self.sink = FileSink(
            directory,
            AuditSettings(directory=directory, **settings),
            self.writer,
            chain,
            instant=self.clock.text,
            clock=self.clock,
        )
        self.chain = Chain(key)
        self.sink.open(self.chain)

    def write(self, *names: str) -> "Ledger":
        """Records of calls of tools."""
        self.sink.write([self.record(name) for name in names])
        return self

    def record(self, name: str) -> bytes:
        """One."""
        return b'"time":"%b","kind":"call","tool":"%b"' % (
            self.clock.text().encode(),
            name.encode(),
        )

    def rotate(self) -> "Ledger":
        """Let the next write begin a file."""
        self.sink._began -= 1e9
        return self

    def file(self, part: int = 1) -> Path:
        """Of its files."""
        return self.directory / f"{self.writer}.{part:06d}.jsonl"


def verified(directory: Path, *keys: bytes, demands_key: bool = False) -> Report:
    """What verifying finds; with ``KEY`` where no other key is given."""
    known = {key_id(key): key for key in keys or (KEY,)}
    return Verifier(known, demands_key=demands_key).verify(directory, parts_in(directory))


def found(directory: Path, *keys: bytes) -> list[str]:
    """The findings as sentences."""
    report = verified(directory, *keys)
    return [f"{each.file}:{each.line}: {each.text}" for each in report.findings]


def edit(path: Path, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
    """Change the lines of a file."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
