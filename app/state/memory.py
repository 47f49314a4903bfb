"""A store in the memory of this process: for one server, until it ends."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from app.state.entries import Entries
from app.state.interface import Kept, Quota, Wait
from app.state.windows import Windows

MAX_ENTRIES: Final = 100_000
MAX_BYTES: Final = 256 * 1024 * 1024


class MemoryStore:
    """Implements ``app.state.interface.Store``.

    Args:
        clock: Seconds that only grow.
        max_entries: A new name beyond this many living ones is refused with ``StoreFull``. So is a
            new name of a quota beyond as many of those.
        max_bytes: Likewise for the size of all names and values.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._entries = Entries(max_entries, max_bytes)
        self._windows = Windows(max_entries)

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, name: str) -> bytes | None:
        return self._entries.get(name, self._clock())

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        now = self._clock()
        self._entries.set(name, value, now + ttl_s, owner, now)

    async def replace(
        self,
        name: str,
        before: bytes | None,
        after: bytes,
        *,
        ttl_s: float,
        owner: str | None = None,
    ) -> bool:
        # One step, because nothing in here waits for anything.
        if await self.get(name) != before:
            return False
        await self.set(name, after, ttl_s=ttl_s, owner=owner)
        return True

    async def take(
        self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None
    ) -> Kept | None:
        while not await self.replace(name, None, value, ttl_s=ttl_s, owner=owner):
            now = self._clock()
            found, until = self._entries.get(name, now), self._entries.until(name)
            if found is not None:
                return Kept(found, until - now)
        return None

    async def delete(self, name: str) -> None:
        self._entries.delete(name)

    def admit(self, quotas: Sequence[Quota]) -> Wait | None:
        return self._windows.admit(quotas, self._clock())
