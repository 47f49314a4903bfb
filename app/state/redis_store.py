"""A store in Redis or Valkey, which the servers of a fleet share."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from redis.crc import key_slot

from app.state.entries import ENTRY_BYTES, PART_OF_NOBODY, PART_OF_ONE
from app.state.interface import Kept, Quota, StoreFull, StoreUnavailable, Wait
from app.state.memory import MAX_BYTES, MAX_ENTRIES
from app.state.redis_link import Link
from app.state.redis_scripts import ADMIT, DISMISS, RESERVE, RESTORE, WRITE

ANONYMOUS_LEDGERS: Final = 16
"""Into so many parts anonymous names are divided, each of which lies in one slot of a cluster."""

_NOBODY: Final = "nobody"


class RedisStore:
    """Implements ``app.state.interface.Store``.

    How much there can be is for the server's ``maxmemory`` to say. Of that nobody gets more than in
    memory: what an owner has is written in a ledger beside its entries, and anonymous names of
    quotas in ledgers of their own. In a cluster a ledger may lie elsewhere than the entry, so it is
    written first, and put right where nothing came of it.

    Args:
        prefix: Of every key of this store.
        max_entries, max_bytes: Of which an owner gets a part, as of ``MemoryStore``.
    """

    def __init__(
        self,
        link: Link,
        prefix: str,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._link = link
        self._prefix = prefix
        self._values = f"{prefix}v:"
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_anonymous = max(1, max_entries // PART_OF_NOBODY // ANONYMOUS_LEDGERS)

    # Values. Each is stored behind the name of its owner, who has to be told when it goes.

    async def get(self, name: str) -> bytes | None:
        key = self._values + name
        found = await self._link.command(key, "GET", key)
        return None if found is None else self._value(key, found)

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        if await self._write("set", name, value, ttl_s=ttl_s, owner=owner) != 1:
            raise self._link.distrust(self._values + name)

    async def replace(
        self,
        name: str,
        before: bytes | None,
        after: bytes,
        *,
        ttl_s: float,
        owner: str | None = None,
    ) -> bool:
        how = "new" if before is None else "replace"
        written = await self._write(
            how, name, after, ttl_s=ttl_s, owner=owner, before=before or b""
        )
        return bool(written)

    async def take(
        self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None
    ) -> Kept | None:
        written = await self._write("take", name, value, ttl_s=ttl_s, owner=owner)
        match written:
            case 1:
                return None
            case [found, int(left_ms)]:
                return Kept(self._value(self._values + name, found), max(0, left_ms) / 1000)
        raise self._link.distrust(self._values + name)

    async def delete(self, name: str) -> None:
        key = self._values + name
        found = await self._link.command(key, "GETDEL", key)
        if found is None:
            return
        if not isinstance(found, bytes) or b"\n" not in found:
            raise self._link.distrust(key)
        owner = found.partition(b"\n")[0].decode()
        if owner:
            # If that fails, it takes room until its time is over.
            with contextlib.suppress(StoreUnavailable):
                await self._link.run(RESTORE, self._ledger(owner), name)

    def _value(self, key: str, found: Any) -> bytes:
        if not isinstance(found, bytes):
            raise self._link.distrust(key)
        if b"\n" not in found:
            # Somebody else has written there. The connection is well: to give it up would fail
            # what all others ask, again each time that this is read.
            raise StoreUnavailable(f"what lies at {key[:100]} was not written by this server")
        return found.partition(b"\n")[2]

    async def _write(
        self,
        how: str,
        name: str,
        value: bytes,
        *,
        ttl_s: float,
        owner: str | None,
        before: bytes = b"",
    ) -> Any:
        """What the script ``WRITE`` returns."""
        owned = "" if owner is None else owner or _NOBODY
        key, head = self._values + name, owned.encode() + b"\n"
        write = (how, head + value, max(1, round(ttl_s * 1000)), head + before)
        if owner is None:
            written = await self._link.run(WRITE, [key], *write)
        else:
            part = PART_OF_ONE if owner else PART_OF_NOBODY
            size = len(name) + len(value) + ENTRY_BYTES
            most = (max(1, self._max_entries // part), self._max_bytes // part)
            ledger = self._ledger(owned)
            if not self._link.is_cluster:
                written = await self._link.run(WRITE, [key, *ledger], *write, name, size, *most)
            else:
                written = await self._write_apart(
                    key, ledger, *write, entry=(name, size), most=most
                )
        if written == -1:
            raise StoreFull("its owner has no room left in the store")
        return written

    async def _write_apart(
        self,
        key: str,
        ledger: Sequence[str],
        *write: bytes | str | int,
        entry: tuple[str, int],
        most: tuple[int, int],
    ) -> Any:
        """The same with a ledger in another slot."""
        had = await self._link.run(RESERVE, ledger, *entry, write[2], *most)
        if had == 0:
            return -1
        written = None
        try:
            written = await self._link.run(WRITE, [key], *write)
        finally:
            if written != 1:  # in a task of its own, for whoever was cancelled
                back = [part for part in had if part]
                await asyncio.shield(self._restore(ledger, entry[0], *back))
        return written

    async def _restore(self, ledger: Sequence[str], *said: bytes | str) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._link.run(RESTORE, ledger, *said)

    def _ledger(self, owner: str) -> list[str]:
        # In braces: both keys are in one slot of a cluster.
        return [f"{self._prefix}{{{owner}}}:sizes", f"{self._prefix}{{{owner}}}:ends"]

    # Quotas.

    async def admit(self, quotas: Sequence[Quota]) -> Wait | None:
        link = self._link
        if not link.is_cluster:
            answer = await self._admit(range(len(quotas)), quotas)
            return None if isinstance(answer, int) else answer
        by_slot: dict[int, list[int]] = {}
        for place, quota in enumerate(quotas):
            by_slot.setdefault(key_slot(self._window(quota).encode()), []).append(place)
        answers = await asyncio.gather(
            *(self._admit(places, quotas) for places in by_slot.values()), return_exceptions=True
        )
        failed = [each for each in answers if isinstance(each, BaseException)]
        waits = [each for each in answers if isinstance(each, Wait)]
        if not failed and not waits:
            return None
        # All or none: take back what the other slots have counted.
        for places, each in zip(by_slot.values(), answers, strict=True):
            if isinstance(each, int):
                keys = [self._window(quotas[place]) for place in places]
                with contextlib.suppress(StoreUnavailable):
                    await link.run(DISMISS, keys, each)
        if failed:
            raise failed[0]
        return max(waits, key=lambda wait: wait.seconds)

    async def _admit(self, places: Sequence[int], quotas: Sequence[Quota]) -> Wait | int:
        """Of quotas in one slot. Returns the instant of the admission."""
        keys: list[str] = []
        ledgers: list[str] = []
        arguments: list[str | int] = []
        for place in places:
            quota = quotas[place]
            keys.append(self._window(quota))
            at = 0
            if quota.is_anonymous:
                ledger = f"{self._prefix}{_part(quota.name)}:names"
                if ledger not in ledgers:
                    ledgers.append(ledger)
                at = len(places) + 1 + ledgers.index(ledger)
            arguments += quota.capacity, round(quota.period_s * 1_000_000), at
        arguments += self._max_anonymous, len(places)
        answer = await self._link.run(ADMIT, keys + ledgers, *arguments)
        match answer:
            case -1:
                raise StoreUnavailable("there is no room for more anonymous callers")
            case int():
                return answer
            case [int(refusing), int(wait_us)] if refusing < len(places):
                return Wait(places[refusing], max(wait_us, 1) / 1_000_000)
        raise self._link.distrust(keys[0])

    def _window(self, quota: Quota) -> str:
        part = _part(quota.name) if quota.is_anonymous else ""
        return f"{self._prefix}w:{part}{quota.name}"


def _part(name: str) -> str:
    """Which of the parts an anonymous name belongs to, in braces: that is what its slot goes by."""
    return f"{{anonymous-{key_slot(name.encode()) % ANONYMOUS_LEDGERS}}}"
