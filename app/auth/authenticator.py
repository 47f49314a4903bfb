"""From a request's credential to its principal."""

import time
from collections.abc import Callable
from dataclasses import replace
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

MAX_OPAQUE_BYTES: Final = 4096
"""A token that says something by itself may be longer; see ``MAX_TOKEN_BYTES``."""

_BEARER: Final = b"Bearer "
_KEY: Final = _BEARER + PREFIX


class Authenticator:
    """Decides who calls.

    Args:
        previous: On a change of the settings, the one before. Issuers whose settings are equal
            keep their keys, and their tokens stay remembered; the previous one may go on
            answering until it is stopped.
        revocations: What counts no longer besides ``[auth] revoked``; see ``forget_revoked``.
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
        self._revocations = revocations or Revocations()
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
        if previous is not None:
            self.remembered.take_over(previous.remembered, self.sources.values())
            self.forget_revoked()

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
            # What was revoked is not remembered, so nothing needs to be asked about it here.
            entry = self.remembered.get(digest_of(value[7:]), self._clock())
            return None if entry is None else entry.caller
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

    def renewed(self, principal: Principal) -> Principal | None:
        """A principal as it is after a change of the settings; None if it counts no longer."""
        if principal.issuer is None:
            return ANONYMOUS if self._open else None
        if not isinstance(principal, Caller) or self._is_revoked(principal):
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

    def forget_revoked(self) -> None:
        """The list of revocations is another one: what is on it must be remembered no longer."""
        self.remembered.forget_all(self._is_revoked)

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
            return self._unless_revoked(self.keys.check(credential.text, now))
        entry = self.remembered.get(digest_of(credential.text), now)
        return None if entry is None else entry.caller

    async def _checked(self, credential: Credential) -> Principal:
        digest = digest_of(credential.text)
        source, checked = await self._check(credential.text)
        # Nothing is waited for from here on: a revocation comes before it, or finds it remembered.
        caller = self._unless_revoked(checked.caller)
        if caller.credential_id is None:
            caller = replace(caller, token_digest=f"sha256:{digest.hex()}")
        if checked.until > self._clock():
            entry = Entry(
                caller,
                source,
                checked.until,
                generation=source.issuer.generation,
                size=max(len(credential.text), caller.size),
            )
            self.remembered.put(digest, entry)
        return caller

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

    def _unless_revoked(self, caller: Caller) -> Caller:
        if self._is_revoked(caller):
            raise Revoked("The credential was revoked.")
        return caller

    def _is_revoked(self, caller: Principal) -> bool:
        named = caller.credential_id in self._revoked
        return named or self._revocations.has(caller.issuer, caller.credential_id)

    def _refusal(self, refused: Refused) -> ProtocolError:
        if isinstance(refused, Malformed):
            return self.challenge.malformed(str(refused))
        return self.challenge.unauthorized(str(refused), error="invalid_token", found=refused.found)


def _has_ended(principal: Principal, now: float) -> bool:
    return principal.expires_at is not None and principal.expires_at <= now
