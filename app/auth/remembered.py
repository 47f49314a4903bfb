"""Tokens that were checked, by the hash of their text, so that a call need not check again."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from app.auth.caller import Caller
from app.auth.source import Source

MAX_TOKENS: Final = 10_000
MAX_BYTES: Final = 32 * 1024 * 1024
"""Of the entries' sizes (see ``Entry``); claims in memory are some times as large."""


@dataclass(slots=True)
class Entry:
    """One checked token.

    Attributes:
        until: POSIX time from which it must be checked again.
        generation: Of the issuer's keys when it was checked.
        size: Bytes of the token, or characters of its claims, whichever are more.
    """

    caller: Caller
    source: Source
    until: float
    generation: int
    size: int


class Remembered:
    """A bounded number of checked tokens; the oldest give way."""

    def __init__(self, max_tokens: int = MAX_TOKENS, max_bytes: int = MAX_BYTES) -> None:
        self._max_tokens, self._max_bytes = max_tokens, max_bytes
        self._entries: dict[bytes, Entry] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes, now: float) -> Entry | None:
        """The entry of a token that still counts."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if now < entry.until and entry.generation == entry.source.issuer.generation:
            return entry
        self.forget(digest)
        return None

    def put(self, digest: bytes, entry: Entry) -> None:
        """Remember a token."""
        self.forget(digest)
        self._entries[digest] = entry
        self._bytes += entry.size
        while len(self._entries) > self._max_tokens or self._bytes > self._max_bytes:
            self.forget(next(iter(self._entries)))

    def forget(self, digest: bytes) -> None:
        """Forget a token, if it is there."""
        entry = self._entries.pop(digest, None)
        if entry is not None:
            self._bytes -= entry.size

    def forget_all(self, is_over: Callable[[Caller], bool]) -> None:
        """Forget the tokens of these callers."""
        over = [digest for digest, entry in self._entries.items() if is_over(entry.caller)]
        for digest in over:
            self.forget(digest)

    def take_over(self, previous: "Remembered", sources: Iterable[Source]) -> None:
        """Take the entries of another memory that count under new settings."""
        kept = frozenset(sources)
        for digest, entry in previous._entries.items():  # noqa: SLF001  # another of its kind
            if entry.source in kept:
                self.put(digest, entry)
