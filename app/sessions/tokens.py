"""Sessions of the ``initialize`` era: what was settled, carried by the client as a sealed token.

Any replica reads it. What cannot be in the token, because it changes, is kept: the level of a
session's log messages as the caller's, of whose room it takes a part; that a session has ended in
a store of its own, so that whatever callers keep, a session can be ended.
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
from app.protocol.sealed import CLOCKS_DIFFER_S, KeyRing, Sealer, Unopened
from app.state.interface import Store, StoreUnavailable
from app.toolkit.handles import owner_of

MAX_TOKEN_CHARACTERS: Final = 2048
MAX_NAME_CHARACTERS: Final = 64
PURPOSE: Final = "legacy session 1"
DEFAULT_LEVEL: Final = "info"
"""Of log messages, until the client asks for another one."""

REMEMBERED: Final = 1024
"""Tokens that need not be opened again: those used last."""


class Session(NamedTuple):
    """What client and server have settled.

    Attributes:
        id: Unguessable; not the token.
        capabilities: As ``ClientCapabilities`` of 2026-07-28.
        client: For display alone.
        expires_at: POSIX time.
        owner: As whose a store counts what is kept for it; empty: nobody in particular.
    """

    id: str
    revision: Revision
    capabilities: Mapping[str, Any]
    client: Implementation
    expires_at: float
    owner: str = ""


class Sessions:
    """Opens and ends the sessions of one fleet.

    Args:
        store: Keeps what callers have settled later.
        ended: Knows the sessions that have ended, and nothing else.
        ttl_s: How long a session lasts.
        clock: Gives POSIX time.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        keys: KeyRing,
        store: Store,
        *,
        ended: Store,
        ttl_s: float,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._sealer = Sealer(keys, purpose=PURPOSE, max_characters=MAX_TOKEN_CHARACTERS)
        self._store = store
        self._ended = ended
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
        session = self._open(token, principal)
        try:
            has_ended = await self._ended.get(_ended(session)) is not None
        except StoreUnavailable as error:
            raise _unreadable() from error
        if has_ended:
            raise _unknown()
        return session

    async def level(self, session: Session) -> str:
        """The mildest level of log messages that the client wants.

        Raises:
            Unavailable: Nobody can say.
        """
        try:
            said = await self._store.get(_level(session))
        except StoreUnavailable as error:
            raise _unreadable() from error
        return DEFAULT_LEVEL if said is None else said.decode()

    def _open(self, token: str, principal: Principal) -> Session:
        key = token, principal.identity
        session = self._opened.get(key)
        if session is not None:
            if session.expires_at <= self._clock():
                raise _unknown()
            self._opened.move_to_end(key)
            return session
        try:
            opened = self._sealer.open(token, bound_to=_binding(principal), now=self._clock())
        except Unopened:
            raise _unknown() from None
        id, version, capabilities, name, client_version, expires_at = loads(opened)
        revision = REVISIONS.get(version)
        if revision is None:  # another release has sealed it
            raise _unknown()
        client = Implementation(name, client_version)
        owner = owner_of(principal.identity)
        session = Session(id, revision, capabilities, client, expires_at, owner)
        if len(self._opened) >= REMEMBERED:
            self._opened.popitem(last=False)
        self._opened[key] = session
        return session

    async def end(self, session: Session) -> None:
        """The session counts no longer, on no replica.

        Raises:
            Unavailable: It could not be written down.
        """
        try:
            await self._ended.set(
                _ended(session), b"", ttl_s=self._left_s(session), owner=session.owner
            )
        except StoreUnavailable as error:
            raise _unwritten() from error

    async def set_level(self, session: Session, level: str) -> None:
        """The mildest level of log messages that the client wants from now on.

        Raises:
            Unavailable: It could not be written down, or too much is kept for the caller.
        """
        ttl_s = self._left_s(session)
        try:
            await self._store.set(_level(session), level.encode(), ttl_s=ttl_s, owner=session.owner)
        except StoreUnavailable as error:
            raise _unwritten() from error

    def _left_s(self, session: Session) -> float:
        return max(1.0, session.expires_at - self._clock()) + CLOCKS_DIFFER_S


def _unknown() -> NotFound:
    return NotFound(
        "There is no such session: it has ended or expired. Open a new one with initialize."
    )


def _unreadable() -> Unavailable:
    return Unavailable("Sessions cannot be looked up now.", retry_after_s=2)


def _unwritten() -> Unavailable:
    return Unavailable("That cannot be written down now.", retry_after_s=2)


def _binding(principal: Principal) -> bytes:
    return hashlib.sha256(canonical(["session", *principal.identity])).digest()


# Two names: whoever sets a level while the session is ended must not bring it back.


def _ended(session: Session) -> str:
    return f"ended:{session.id}"


def _level(session: Session) -> str:
    return f"level:{session.id}"
