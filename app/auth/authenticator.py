"""From a request's credential to its principal."""

import math
import time
from collections.abc import Callable
from typing import Final

from app.auth.api_keys import ISSUER as API_KEY
from app.auth.api_keys import PREFIX, ApiKeys, all_api_keys
from app.auth.caller import Caller
from app.auth.challenge import Challenge
from app.auth.client_secret import secret_of
from app.auth.credentials import Credential, digest_of, find_credential, other_scheme
from app.auth.login import Login
from app.auth.problems import IssuerBusy, IssuerUnavailable, Malformed, Refused, Revoked
from app.auth.remembered import Entry, Remembered
from app.auth.revocation import Revocations
from app.auth.source import Checked, Source, static_keys
from app.auth.tokens import MAX_TOKEN_BYTES, read_unverified
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import ProtocolError
from app.protocol.headers import HeaderMap
from app.settings import Settings
from app.state.interface import StoreUnavailable

LOOK_S: Final = 5.0
"""A revocation that another server wrote down counts here after this long at the latest."""
MAX_OPAQUE_BYTES: Final = 4096
"""A token that says something by itself may be longer; see ``MAX_TOKEN_BYTES``."""
STORE_RETRY_S: Final = 5.0

_BEARER: Final = b"Bearer "
_KEY: Final = _BEARER + PREFIX


class Authenticator:
    """Decides who calls.

    Args:
        previous: On a change of the settings, the one before. Issuers whose settings are equal
            keep their keys, and their tokens stay remembered; the previous one may go on
            answering until it is stopped.
        revocations: A list that is asked besides ``[auth] revoked``.
        clock: POSIX time.

    Attributes:
        challenge: Writes the refusals.

    Raises:
        UnusableFile: ``api_keys_file`` or a ``keys_file`` cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        previous: "Authenticator | None" = None,
        revocations: Revocations | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        auth = settings.auth
        self._configured = auth.is_configured
        self._open = auth.is_open
        self._revoked = frozenset(auth.revoked)
        self._revocations = revocations
        self._clock = clock
        self.challenge = Challenge(settings)
        self.keys: ApiKeys = ApiKeys(
            all_api_keys(auth.api_keys, auth.api_keys_file, auth.clearances),
            auth.revoked,
            previous.keys if previous is not None else None,
        )
        self.sources: dict[str, Source] = {
            issuer.issuer: self._source(settings, number, previous)
            for number, issuer in enumerate(auth.issuers)
        }
        self.remembered = Remembered()
        self._key_looks: dict[str, float] = {}
        if previous is not None:
            self.remembered.take_over(previous.remembered, self.sources.values(), self._revoked)

    def _source(self, settings: Settings, number: int, previous: "Authenticator | None") -> Source:
        issuer, resource = settings.auth.issuers[number], settings.resource_url
        asks, browser = issuer.introspection, issuer.browser
        new = Source(
            issuer,
            resource,
            static=static_keys(issuer),
            secret=secret_of(asks) if asks is not None else None,
            login_secret=secret_of(browser) if browser is not None else None,
            clock=self._clock,
        )
        old = previous.sources.get(issuer.issuer) if previous is not None else None
        return old if old is not None and old.is_same(new) else new

    def login(self, issuer: str) -> Login | None:
        """What logs users of an issuer in to pages of this server; None: they cannot."""
        source = self.sources.get(issuer)
        return source.login if source is not None else None

    async def start(self) -> None:
        """Begin to fetch keys, and be the one who stops it. Waits for no issuer."""
        for source in self.sources.values():
            source.owner = self
            source.start()

    async def stop(self) -> None:
        """End what runs, except what another authenticator has taken over."""
        for source in self.sources.values():
            if source.owner is self:
                await source.stop()

    # Who calls

    def known(self, headers: HeaderMap, query: bytes) -> Principal | None:
        """The principal, where it takes no waiting to know; None: ask ``authenticate``.

        Raises:
            Unauthorized: 401 with ``WWW-Authenticate``.
            InvalidRequest: 400: two credentials, or a malformed one.
        """
        if not self._configured:
            return ANONYMOUS
        value = headers.get(b"authorization")
        # The usual request in the fewest steps; any other goes the long way, to the same end.
        if (
            value is not None
            and len(value) <= MAX_TOKEN_BYTES
            and value.startswith(_BEARER)
            and not value.startswith(_KEY)
            and not query
            and not headers.repeated
            and b"x-api-key" not in headers
        ):
            now = self._clock()
            entry = self.remembered.get(digest_of(value[7:]), now)
            if entry is None:
                return None
            if self._revocations is None or now - entry.looked_at < LOOK_S:
                return entry.caller
        try:
            return self._known(self._credential(headers, query))
        except Refused as refused:
            raise self._refusal(refused) from None

    async def authenticate(self, headers: HeaderMap, query: bytes) -> Principal:
        """The principal, whatever it takes.

        Raises:
            Unauthorized: 401 with ``WWW-Authenticate``.
            InvalidRequest: 400: two credentials, or a malformed one.
            Unavailable: 503: the keys of the token's issuer cannot be had.
        """
        try:
            credential = self._credential(headers, query)
            principal = self._known(credential)
            if principal is not None or credential is None:
                return principal or ANONYMOUS
            return await self._checked(credential)
        except Refused as refused:
            raise self._refusal(refused) from None
        except IssuerBusy as busy:
            raise self.challenge.unavailable(
                "The authorization server is asked about too many tokens at once.",
                busy.retry_after_s,
            ) from None
        except IssuerUnavailable as error:
            raise self.challenge.unavailable(
                "The authorization server cannot be reached, so the token cannot be checked.",
                error.retry_after_s,
            ) from None
        except StoreUnavailable:
            raise self.challenge.unavailable(
                "The list of revoked credentials cannot be read.", STORE_RETRY_S
            ) from None

    def renewed(self, principal: Principal) -> Principal | None:
        """A principal as it is after a change of the settings; None if it counts no longer."""
        if principal.issuer is None:
            return ANONYMOUS if self._open else None
        if not isinstance(principal, Caller) or principal.credential_id in self._revoked:
            return None
        if principal.issuer == API_KEY:
            current = self.keys.renewed(principal)
        else:
            source = self.sources.get(principal.issuer)
            same = source is not None and source.seal is principal.seal
            current = principal if same else None
        if current is None or _has_ended(current, self._clock()):
            return None
        return current

    async def is_revoked(self, principal: Principal) -> bool:
        """Whether a principal's credential is on the list of ``Revocations``.

        Raises:
            StoreUnavailable: Nobody can say now.
        """
        if self._revocations is None or principal.issuer is None:
            return False
        token_id = principal.credential_id
        return token_id is not None and await self._revocations.is_revoked(
            principal.issuer, token_id
        )

    # The steps

    def _credential(self, headers: HeaderMap, query: bytes) -> Credential | None:
        if not self._configured:
            return None
        credential = find_credential(headers, query)
        if credential is None and not self._open:
            raise self.challenge.unauthorized(
                "The scheme of the header Authorization is not accepted; send Bearer."
                if other_scheme(headers)
                else "A credential is needed: send Authorization: Bearer TOKEN or X-API-Key: KEY."
            )
        return credential

    def _known(self, credential: Credential | None) -> Principal | None:
        if credential is None:
            return ANONYMOUS
        now = self._clock()
        if credential.is_key:
            holder = self.keys.check(credential.text, now)
            fresh = now - self._key_looks.get(holder.credential_id or "", -math.inf) < LOOK_S
            return holder if fresh or self._revocations is None else None
        entry = self.remembered.get(digest_of(credential.text), now)
        if entry is None or (self._revocations is not None and now - entry.looked_at >= LOOK_S):
            return None
        return entry.caller

    async def _checked(self, credential: Credential) -> Principal:
        if credential.is_key:
            holder = self.keys.check(credential.text, self._clock())
            await self._refuse_revoked(holder)
            self._key_looks[holder.credential_id or ""] = self._clock()
            return holder
        digest = digest_of(credential.text)
        entry = self.remembered.get(digest, self._clock())
        if entry is None:
            source, checked = await self._check(credential.text)
            entry = Entry(
                checked.caller,
                source,
                checked.until,
                generation=source.issuer.generation,
                looked_at=0.0,
                size=max(len(credential.text), checked.caller.size),
            )
        try:
            await self._refuse_revoked(entry.caller)
        except Refused:
            self.remembered.forget(digest)
            raise
        entry.looked_at = self._clock()
        if entry.until > entry.looked_at:
            self.remembered.put(digest, entry)
        return entry.caller

    async def _check(self, token: bytes) -> tuple[Source, Checked]:
        unverified = read_unverified(token)
        if unverified is None:
            return await self._check_opaque(token)
        issuer = unverified.issuer
        source = self.sources.get(issuer) if isinstance(issuer, str) else None
        if source is None:
            raise Refused("The token is of an issuer that is not accepted.")
        return source, await source.check_jwt(token, unverified)

    async def _check_opaque(self, token: bytes) -> tuple[Source, Checked]:
        """Ask the one issuer that can be asked: a token is shown to nobody else."""
        for source in self.sources.values():
            if source.introspector is not None:
                break
        else:
            raise Refused("The token is not a JSON Web Token, nor an API key.")
        if len(token) > MAX_OPAQUE_BYTES:
            raise Refused("The token is too long.")
        return source, await source.check_opaque(token)

    async def _refuse_revoked(self, caller: Principal) -> None:
        if caller.credential_id in self._revoked or await self.is_revoked(caller):
            raise Revoked("The credential was revoked.")

    def _refusal(self, refused: Refused) -> ProtocolError:
        if isinstance(refused, Malformed):
            return self.challenge.malformed(str(refused))
        return self.challenge.unauthorized(str(refused), error="invalid_token", found=refused.found)


def _has_ended(principal: Principal, now: float) -> bool:
    return principal.expires_at is not None and principal.expires_at <= now
