"""Handles: values that a server keeps for a while, under names that only their owner can use.

A model carries a handle from call to call as an argument. That makes state explicit where the
protocol has no sessions.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Final

from app.protocol.jsonrpc import canonical, dumps, loads
from app.state.interface import Store, StoreFull, StoreUnavailable
from app.toolkit.errors import ToolError

MAX_VALUE_BYTES: Final = 64 * 1024
MAX_TTL_S: Final = 30 * 86_400
SECRET_BYTES: Final = 24
ATTEMPTS: Final = 20
"""How often ``update`` begins again after somebody else was faster."""


class Handles:
    """The handles of one caller, ``ctx.handles``. For async tools.

    A handle is bound to the caller (issuer and subject). Callers without a credential are all the
    same caller: for them a handle is bound to nothing but its secret, so whoever knows it can use
    it. Every method raises ``ToolError`` where the store cannot answer.

    Args:
        identity: Issuer and subject.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        store: Store,
        identity: tuple[str | None, str | None],
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._store = store
        self._identity = identity
        self._owner = owner_of(identity)
        self._random = random

    async def create(self, kind: str, value: Any, ttl_s: float) -> str:
        """Keep a value and return the handle for it, such as ``basket_f0c1...``.

        Args:
            kind: What it is, in one word; a handle of one kind is none of another.
            value: Data with a JSON form, at most 64 KiB of it.
            ttl_s: Seconds from now, and again from each ``update``; at most 30 days.

        Raises:
            ValueError: Kind, value or time is not as said.
            TypeError: The value has no JSON form.
        """
        if not kind.isidentifier() or len(kind) > 32:
            raise ValueError("kind is one word of letters, such as 'basket'")
        if not 0 < ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s must be above 0 and at most {MAX_TTL_S} (30 days)")
        handle = f"{kind}_{self._random(SECRET_BYTES).hex()}"
        entry = _entry(value, ttl_s)
        try:
            await self._store.set(self._name(kind, handle), entry, ttl_s=ttl_s, owner=self._owner)
        except StoreFull as error:
            raise _no_room(f"another {kind}") from error
        except StoreUnavailable as error:
            raise _unavailable(kind) from error
        return handle

    async def get(self, kind: str, handle: str) -> Any:
        """The value.

        Raises:
            ToolError: The handle is unknown, has expired, or belongs to somebody else: the three
                look the same.
        """
        _, value, _ = await self._entry(kind, handle)
        return value

    async def update(self, kind: str, handle: str, change: Callable[[Any], Any]) -> Any:
        """Replace the value by ``change(value)``, and return that. Its time begins anew.

        If somebody else changes the value meanwhile, ``change`` is called again with theirs, so
        it should do nothing else.

        Raises:
            ToolError: As ``get``; or others change the value without end.
            ValueError, TypeError: As ``create``.
        """
        name = self._name(kind, handle)
        for attempt in range(ATTEMPTS):
            before, value, ttl_s = await self._entry(kind, handle)
            value = change(value)
            after = _entry(value, ttl_s)
            try:
                if await self._store.replace(name, before, after, ttl_s=ttl_s, owner=self._owner):
                    return value
            except StoreFull as error:
                raise _no_room(f"a larger {kind}") from error
            except StoreUnavailable as error:
                raise _unavailable(kind) from error
            await asyncio.sleep(attempt * 0.001)
        raise ToolError(f"The {kind} is being changed by others all the time; try again.")

    async def delete(self, kind: str, handle: str) -> None:
        """Forget the value; a handle that is not there is no error."""
        try:
            await self._store.delete(self._name(kind, handle))
        except StoreUnavailable as error:
            raise _unavailable(kind) from error

    async def _entry(self, kind: str, handle: str) -> tuple[bytes, Any, float]:
        try:
            found = await self._store.get(self._name(kind, handle))
        except StoreUnavailable as error:
            raise _unavailable(kind) from error
        if found is None:
            raise ToolError(
                f"There is no such {kind}: the handle is unknown, has expired or belongs to "
                "somebody else. Create a new one."
            )
        ttl_s, value = loads(found)
        return found, value, ttl_s

    def _name(self, kind: str, handle: str) -> str:
        # Hashed with its owner: what belongs to somebody else is simply not there, and the store
        # holds no secret that could be used.
        named = canonical([*self._identity, kind, handle])
        return "handle:" + hashlib.sha256(named).hexdigest()


def owner_of(identity: tuple[str | None, str | None]) -> str:
    """As whose a store counts what is kept for a caller."""
    return "" if identity[0] is None else hashlib.sha256(canonical([*identity])).hexdigest()


def _entry(value: Any, ttl_s: float) -> bytes:
    entry = dumps([ttl_s, value])
    if len(entry) > MAX_VALUE_BYTES:
        raise ValueError(f"the value of a handle has {len(entry):,} bytes; {MAX_VALUE_BYTES:,} fit")
    return entry


def _no_room(what: str) -> ToolError:
    return ToolError(
        f"There is no room for {what}: too many are kept for you. Use one that you have, or try "
        "again when some have expired."
    )


def _unavailable(kind: str) -> ToolError:
    return ToolError(f"The {kind} cannot be reached at the moment; try again later.")
