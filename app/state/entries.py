"""Values in memory: bytes by name, each for a time, within bounds of number and size."""

import heapq
from typing import Final, NamedTuple

from app.state.interface import StoreFull

ENTRY_BYTES: Final = 300
"""What an entry takes besides name and value."""

PART_OF_ONE: Final = 4
"""One owner may have this part of the room: a quarter."""

PART_OF_NOBODY: Final = 2
"""Those who are nobody in particular have half of it, together."""


class _Entry(NamedTuple):
    until: float
    value: bytes
    owner: str | None


class _Room:
    """How much is taken."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0


class Entries:
    """The values of one store.

    Args:
        max_entries, max_bytes: Beyond these a new value is refused: dropping another would undo
            what somebody was promised, such as a revocation.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: dict[str, _Entry] = {}
        self._all = _Room()
        self._rooms: dict[str, _Room] = {}
        self._ends: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str, now: float) -> bytes | None:
        """The value, or None where there is none or its time is over."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.until <= now:
            self._remove(name)
            return None
        return entry.value

    def until(self, name: str) -> float:
        """When its time is over; 0 where there is none."""
        entry = self._entries.get(name)
        return 0.0 if entry is None else entry.until

    def set(self, name: str, value: bytes, until: float, owner: str | None, now: float) -> None:
        """Put a value in place of any other.

        Raises:
            StoreFull: There is no room for it; what was there stays.
        """
        self._forget_dead(now)
        before = self._entries.get(name)
        self._remove(name)
        try:
            self._check(name, value, owner)
        except StoreFull:
            if before is not None:
                self._add(name, before)
            raise
        self._add(name, _Entry(until, value, owner))
        heapq.heappush(self._ends, (until, name))
        if len(self._ends) > 2 * len(self._entries) + 1000:  # many that were replaced
            self._ends = [(entry.until, name) for name, entry in self._entries.items()]
            heapq.heapify(self._ends)

    def delete(self, name: str) -> None:
        """Forget a value; one that is not there is no error."""
        self._remove(name)

    def _forget_dead(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            until, name = heapq.heappop(self._ends)
            entry = self._entries.get(name)
            if entry is not None and entry.until == until:
                self._remove(name)

    def _check(self, name: str, value: bytes, owner: str | None) -> None:
        size = _size(name, value)
        if self._all.count >= self._max_entries:
            raise StoreFull(f"the store is full ({self._max_entries} entries)")
        if self._all.size + size > self._max_bytes:
            raise StoreFull(f"the store is full ({self._max_bytes} bytes)")
        if owner is None:
            return
        part = PART_OF_ONE if owner else PART_OF_NOBODY
        room = self._rooms.get(owner)
        count, taken = (room.count, room.size) if room is not None else (0, 0)
        if count >= max(1, self._max_entries // part) or taken + size > self._max_bytes // part:
            raise StoreFull("its owner has no room left in the store")

    def _add(self, name: str, entry: _Entry) -> None:
        self._entries[name] = entry
        self._count(entry, 1, _size(name, entry.value))

    def _remove(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._count(entry, -1, -_size(name, entry.value))

    def _count(self, entry: _Entry, count: int, size: int) -> None:
        self._all.count += count
        self._all.size += size
        if entry.owner is not None:
            room = self._rooms.setdefault(entry.owner, _Room())
            room.count += count
            room.size += size
            if not room.count:
                del self._rooms[entry.owner]


def _size(name: str, value: bytes) -> int:
    return len(name) + len(value) + ENTRY_BYTES
