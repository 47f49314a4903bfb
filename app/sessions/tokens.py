"""Sessions of the ``initialize`` era: what was settled, carried by the client as a sealed token.

Any replica reads it. What cannot be in the token, because it changes, is in the store: that a
session has ended, or the level of its log messages.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
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

REMEMBERED: Final = 1024
"""Tokens that were opened lately and need not be opened again."""

_ENDED: Final = b"ended"


class Session(NamedTuple):
    """What client and server have settled.

    Attributes:
        id: Unguessable; not the token.
        capabilities: As ``ClientCapabilities`` of 2026-07-28.
        client: For display alone.
        expires_at: POSIX time.
        level: The mildest level of log messages that the client wants.
    """

    id: str
    revision: Revision
    capabilities: Mapping[str, Any]
    client: Implementation
    expires_at: float
    level: str = DEFAULT_LEVEL


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
        self._opened: OrderedDict[tuple[str, tuple[str | None, str | None]], Session] = (
            OrderedDict()
        )

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
        return await self.refreshed(self._open(token, principal))

    async def refreshed(self, session: Session) -> Session:
        """A session with what has changed since it was opened. Errors as of ``find``."""
        try:
            said = await self._store.get(_name(session))
        except StoreUnavailable as error:
            raise Unavailable("Sessions cannot be looked up now.", retry_after_s=2) from error
        if said is None:
            return session
        if said == _ENDED:
            raise _unknown()
        return session._replace(level=said.decode())

    def _open(self, token: str, principal: Principal) -> Session:
        key = token, principal.identity
        session = self._opened.get(key)
        if session is not None:
            if session.expires_at <= self._clock():
                raise _unknown()
            return session
        try:
            opened = self._sealer.open(token, bound_to=_binding(principal), now=self._clock())
        except Unopened:
            raise _unknown() from None
        id, version, capabilities, name, client_version, expires_at = loads(opened)
        client = Implementation(name, client_version)
        session = Session(id, REVISIONS[version], capabilities, client, expires_at)
        if len(self._opened) >= REMEMBERED:
            self._opened.popitem(last=False)
        self._opened[key] = session
        return session

    async def end(self, session: Session) -> None:
        """The session counts no longer, on no replica.

        Raises:
            Unavailable: It could not be written down.
        """
        await self._write(_ENDED, session)

    async def set_level(self, session: Session, level: str) -> None:
        """The mildest level of log messages that the client wants from now on.

        Raises:
            Unavailable: It could not be written down.
        """
        await self._write(level.encode(), session)

    async def _write(self, value: bytes, session: Session) -> None:
        ttl_s = max(1.0, session.expires_at - self._clock())
        try:
            await self._store.set(_name(session), value, ttl_s=ttl_s)
        except StoreUnavailable as error:
            raise Unavailable("That cannot be written down now.", retry_after_s=2) from error


def _unknown() -> NotFound:
    return NotFound(
        "There is no such session: it has ended or expired. Open a new one with initialize."
    )


def _binding(principal: Principal) -> bytes:
    return hashlib.sha256(canonical(["session", *principal.identity])).digest()


def _name(session: Session) -> str:
    # One entry: a session that has ended needs no level.
    return f"session:{session.id}"
