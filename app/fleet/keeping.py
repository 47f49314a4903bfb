"""The control document in the store: read cheaply, changed by compare and set, never lost.

Two keys: the document, and its epoch, which is small and is what replicas look at. The document
counts; an epoch that says something else only leads to a look at it.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from app.fleet.control import Control, Epoch, parse_control, parse_epoch
from app.state.interface import Store, StoreUnavailable

DOCUMENT: Final = "document"
EPOCH: Final = "epoch"
TTL_S: Final = 90 * 86_400.0
"""Longer than any fleet is switched off and expected to remember; while one replica lives, the
document is renewed and has no end."""
RENEW_S: Final = 3600.0
FULL_LOOK_S: Final = 10.0
"""The document itself is read this often, should the epoch not have been written after it."""
TRIES: Final = 20
"""Of a change, while others change the document as well."""
RETRY_S: Final = 0.01

Edit = Callable[[Control], Control]


class Contended(Exception):
    """So many administrators change something that this change got no turn."""


class Keeper:
    """Knows the newest document that this process has seen, and what lies in the store.

    Args:
        clock: Seconds that only grow.
        random: Gives that many random bytes.

    Attributes:
        newest: The document with the highest revision that was seen.
        has_read: Whether the store has answered at all, be it that there is no document.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self.newest = Control()
        self.has_read = False
        self._raw: bytes | None = None
        self._one = asyncio.Lock()
        self._read_at = self._renewed_at = clock()

    async def look(self, *, whole: bool = False) -> Control:
        """The newest document. One that the store has lost is written back.

        Args:
            whole: Read the document itself, whatever its epoch says.

        Raises:
            StoreUnavailable: The store does not answer.
            Unusable: What lies there is no document; it is left alone.
        """
        async with self._one:
            now = self._clock()
            is_recent = self.has_read and now - self._read_at < FULL_LOOK_S
            if is_recent and not whole and await self._store.get(EPOCH) == self._epoch_there():
                return self.newest
            await self._read()
            self._read_at = now
            if now - self._renewed_at >= RENEW_S and self._raw is not None:
                await self._store.replace(DOCUMENT, self._raw, self._raw, ttl_s=TTL_S)
                await self._tell_epoch()
                self._renewed_at = now
            return self.newest

    async def change(self, edit: Edit) -> Control:
        """Change the document in one step, whoever else changes it, and give the new one.

        Args:
            edit: From a document to another one; called again when somebody else was quicker.

        Raises:
            StoreUnavailable: Nothing was written down, or nobody knows whether it was.
            Unusable: What lies in the store is no document.
            Contended: Others were quicker each time.
            Full: There is no room for the change.
        """
        for attempt in range(TRIES):
            async with self._one:
                await self._read()
                before = self.newest
                changed = edit(before)
                if changed == before:
                    return before
                epoch = Epoch(before.revision + 1, self._random(8).hex())
                changed = changed.numbered(epoch)
                if await self._replace(changed):
                    return changed
            await asyncio.sleep(RETRY_S * (1 + attempt) * self._random(1)[0] / 256)
        raise Contended

    async def _read(self) -> None:
        raw = await self._store.get(DOCUMENT)
        self.has_read = True
        if raw is not None and raw == self._raw:
            await self._mend_epoch()
            return
        there = Control() if raw is None else parse_control(raw)
        self._raw = raw
        if there.revision >= self.newest.revision and raw is not None:
            self.newest = there
            await self._mend_epoch()
        elif self.newest.revision:
            # It was flushed, or it has come back as it was some time ago.
            await self._replace(self.newest)

    async def _replace(self, control: Control) -> bool:
        """Put a document in place of what was read; False: it is something else by now."""
        encoded = control.encode()
        if not await self._store.replace(DOCUMENT, self._raw, encoded, ttl_s=TTL_S):
            return False
        self._raw, self.newest = encoded, control
        await self._tell_epoch()
        return True

    def _epoch_there(self) -> bytes | None:
        return None if self._raw is None else self.newest.epoch.encode()

    async def _mend_epoch(self) -> None:
        """Whoever wrote the document may not have come to write its epoch."""
        told = await self._store.get(EPOCH)
        epoch = None if told is None else parse_epoch(told)
        if epoch != self.newest.epoch:
            await self._tell_epoch()

    async def _tell_epoch(self) -> None:
        try:
            await self._store.set(EPOCH, self.newest.epoch.encode(), ttl_s=TTL_S)
        except StoreUnavailable:
            return  # it is written; they find it when they read the document itself
