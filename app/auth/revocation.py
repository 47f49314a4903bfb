"""Credentials that count no longer before their time, on a list that servers share."""

import hashlib
import time
from collections.abc import Callable
from typing import Final

from app.state.interface import Store

MARGIN_S: Final = 300.0
"""A revocation outlives its token by the largest leeway that an issuer can have."""


class Revocations:
    """The list, kept in a store.

    Args:
        clock: POSIX time.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def revoke(self, issuer: str, token_id: str, until: float) -> None:
        """Let a credential count no longer.

        Args:
            issuer: Who made it; ``api-key`` for a key of this server's own.
            token_id: ``jti`` of the token, or the id of the key.
            until: POSIX time at which it would expire, after which it needs no entry.

        Raises:
            StoreUnavailable: It was not written down.
        """
        ttl_s = until + MARGIN_S - self._clock()
        if ttl_s > 0:
            await self._store.set(_name(issuer, token_id), b"1", ttl_s=ttl_s)

    async def is_revoked(self, issuer: str, token_id: str) -> bool:
        """Whether a credential is on the list.

        Raises:
            StoreUnavailable: Nobody can say now.
        """
        return await self._store.get(_name(issuer, token_id)) is not None


def _name(issuer: str, token_id: str) -> str:
    # Hashed: both are of any length, and of any characters.
    pair = f"{len(issuer)}:{issuer}{token_id}".encode("utf-8", "surrogatepass")
    return "revoked:" + hashlib.sha256(pair).hexdigest()
