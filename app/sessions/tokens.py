"""Sessions of the ``initialize`` era: what was settled, carried by the client as a sealed token.

Any replica reads it. What cannot be in the token, because it changes, is in the store: that a
session has ended, and the level of its log messages.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from app.legacy.initialize import Opening
from app.legacy.revisions import REVISIONS, Revision
from app.principal import Principal
from app.protocol.errors import NotFound, Unavailable
from app.protocol.jsonrpc import canonical, dumps, loads
from app.protocol.schema import Implementation
from app.protocol.sealed import KeyRing, Sealer, Unopened
from app.state.interface import Store, StoreUnavailable

MAX_TOKEN_CHARACTERS: Final = 2048
MAX_NAME_CHARACTERS: Final = 64
PURPOSE: Final = "legacy session 1"
DEFAULT_LEVEL: Final = "info"
"""Of log messages, until the client asks for another one."""

_ENDED: Final = b"ended"


class Session(NamedTuple):
    """What client and server have settled.

    Attributes:
        id: Unguessable; not the token.
        capabilities: As ``ClientCapabilities`` of 2026-07-28.
        client: For display alone.
        expires_at: POSIX time.
    """

    id: str
    revision: Revision
    capabilities: Mapping[str, Any]
    client: Implementation
    expires_at: float


class Sessions:
    """Opens and ends the sessions of one fleet.

    Args:
        ttl_s: How long a session lasts.
        clock: Gives POSIX time.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        keys: KeyRing,
        store: Store,
        *,
        ttl_s: float,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._sealer = Sealer(keys, purpose=PURPOSE, max_characters=MAX_TOKEN_CHARACTERS)
        self._store = store
        self._ttl_s = ttl_s
        self._clock = clock
        self._random = random

    def begin(self, opening: Opening, principal: Principal) -> str:
        """The token of a new session (``Mcp-Session-Id``): visible ASCII, at most 2 KiB."""
        client = opening.client
        expires_at = self._clock() + self._ttl_s
        content = [
            self._random(16).hex(),
            opening.revision.version,
            opening.capabilities,
            client.name[:MAX_NAME_CHARACTERS],
            client.version[:MAX_NAME_CHARACTERS],
            expires_at,
        ]
        return self._sealer.seal(
            dumps(content),
            bound_to=_binding(principal),
            expires_at=expires_at,
            nonce=self._random(12),
        )

    async def find(self, token: str, principal: Principal) -> Session:
        """The session of a token.

        Raises:
            NotFound: It has ended or expired, is another caller's, or was never one: the client
                has to open a new one.
            Unavailable: Nobody can say whether it has ended.
        """
        try:
            opened = self._sealer.open(token, bound_to=_binding(principal), now=self._clock())
        except Unopened:
            raise _unknown() from None
        id, version, capabilities, name, client_version, expires_at = loads(opened)
        session = Session(
            id, REVISIONS[version], capabilities, Implementation(name, client_version), expires_at
        )
        try:
            ended = await self._store.get(_end_name(session))
        except StoreUnavailable as error:
            raise Unavailable("Sessions cannot be looked up now.", retry_after_s=2) from error
        if ended is not None:
            raise _unknown()
        return session

    async def end(self, session: Session) -> None:
        """The session counts no longer, on no replica.

        Raises:
            Unavailable: It could not be written down.
        """
        await self._write(_end_name(session), _ENDED, session)

    async def set_level(self, session: Session, level: str) -> None:
        """The mildest level of log messages that the client wants from now on.

        Raises:
            Unavailable: It could not be written down.
        """
        await self._write(_level_name(session), level.encode(), session)

    async def level(self, session: Session) -> str:
        """What ``set_level`` has set; where nobody can say, what it is at first."""
        try:
            level = await self._store.get(_level_name(session))
        except StoreUnavailable:
            return DEFAULT_LEVEL
        return DEFAULT_LEVEL if level is None else level.decode()

    async def _write(self, name: str, value: bytes, session: Session) -> None:
        ttl_s = max(1.0, session.expires_at - self._clock())
        try:
            await self._store.set(name, value, ttl_s=ttl_s)
        except StoreUnavailable as error:
            raise Unavailable("That cannot be written down now.", retry_after_s=2) from error


def _unknown() -> NotFound:
    return NotFound(
        "There is no such session: it has ended or expired. Open a new one with initialize."
    )


def _binding(principal: Principal) -> bytes:
    return hashlib.sha256(canonical(["session", *principal.identity])).digest()


def _end_name(session: Session) -> str:
    return f"session-ended:{session.id}"


def _level_name(session: Session) -> str:
    return f"session-level:{session.id}"
