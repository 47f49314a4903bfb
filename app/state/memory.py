"""A store in the memory of this process: for one server, until it ends."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from app.state.interface import Quota, StoreUnavailable, Wait
from app.state.windows import Windows

MAX_ENTRIES: Final = 100_000


class MemoryStore:
    """Implements ``app.state.interface.Store``.

    Args:
        clock: Seconds that only grow.
        max_entries: A new name beyond this many living ones is refused with ``StoreUnavailable``:
            dropping another would undo what somebody was promised, such as a revocation. So is a
            new name of a quota beyond as many of those.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, max_entries: int = MAX_ENTRIES
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._entries: dict[str, tuple[float, bytes]] = {}
        self._windows = Windows(max_entries)

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, name: str) -> bytes | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        until, value = entry
        if until <= self._clock():
            del self._entries[name]
            return None
        return value

    async def set(self, name: str, value: bytes, *, ttl_s: float) -> None:
        now = self._clock()
        if name not in self._entries and len(self._entries) >= self._max_entries:
            self._forget_dead(now)
            if len(self._entries) >= self._max_entries:
                raise StoreUnavailable(f"the store is full ({self._max_entries} entries)")
        self._entries[name] = (now + ttl_s, value)

    async def replace(self, name: str, before: bytes | None, after: bytes, *, ttl_s: float) -> bool:
        # One step, because nothing in here waits for anything.
        if await self.get(name) != before:
            return False
        await self.set(name, after, ttl_s=ttl_s)
        return True

    async def delete(self, name: str) -> None:
        self._entries.pop(name, None)

    def admit(self, quotas: Sequence[Quota]) -> Wait | None:
        return self._windows.admit(quotas, self._clock())

    def _forget_dead(self, now: float) -> None:
        self._entries = {name: entry for name, entry in self._entries.items() if entry[0] > now}
