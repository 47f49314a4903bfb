"""Who sits at a browser: the issuer's own login, for the pages of this server.

OpenID Connect Core 1.0, section 3.1 (authorization code flow), with PKCE (RFC 7636) and the
issuer's name in its answer (RFC 9207). What comes out is a subject that can be compared with that
of a call; no token is kept or passed on.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import structlog

from app.auth.claims import MAX_IDENTIFIER, check_times, claim_at
from app.auth.client_secret import basic
from app.auth.fetching import FetchFailed
from app.auth.issuer import Issuer
from app.auth.problems import IssuerUnavailable, Refused
from app.auth.restraint import RETRY_S, Turns
from app.auth.signatures import signed_claims
from app.auth.tokens import MAX_TOKEN_BYTES, read_unverified
from app.settings import BrowserSettings

AT_ONCE: Final = 16
WAITING: Final = 64
"""Codes that are redeemed at one time, and that wait for it: browsers can send made-up ones."""
MAX_CODE: Final = 4096

log = structlog.get_logger()


class Attempt(NamedTuple):
    """What one attempt to log in is recognised by; a browser carries it, sealed.

    Attributes:
        nonce: Comes back inside the ID token.
        verifier: Of PKCE.
    """

    nonce: str
    verifier: str


def new_attempt(random: Callable[[int], bytes] = secrets.token_bytes) -> Attempt:
    """An attempt that nobody has made before."""
    return Attempt(_text(random(24)), _text(random(48)))


class Login:
    """Logs users of one issuer in.

    Args:
        secret: Of this server there; None: a public client, which PKCE alone protects.
        clock: POSIX time.
    """

    def __init__(
        self,
        issuer: Issuer,
        settings: BrowserSettings,
        *,
        secret: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuer, self._settings = issuer, settings
        self._authorization = basic(settings.client_id, secret) if secret is not None else None
        self._clock = clock
        self._turns = Turns(AT_ONCE, WAITING, issuer.settings.timeout_s)
        # Its tokens for callers may have a type of their own, at+jwt; an ID token has none, or JWT.
        self._token_settings = issuer.settings.model_copy(update={"token_types": ("JWT",)})

    async def address(self, attempt: Attempt, *, state: str, redirect_uri: str) -> str:
        """Where to send the browser.

        Raises:
            IssuerUnavailable: The issuer is not to be had, or has no such place.
        """
        metadata = await self._issuer.metadata()
        url = self._settings.authorization_url or metadata.authorization_url
        if url is None:
            raise self._unavailable("it has no https authorization_endpoint")
        digest = hashlib.sha256(attempt.verifier.encode("ascii")).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": attempt.nonce,
            "code_challenge": _text(digest),
            "code_challenge_method": "S256",
        }
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def subject(
        self, attempt: Attempt, *, code: str, named: str | None, redirect_uri: str
    ) -> str:
        """Who has logged in.

        Args:
            code: That the browser brought back.
            named: The issuer's own name that it brought back, if any.

        Raises:
            Refused: The answer is not one to this attempt, or proves nothing.
            IssuerUnavailable: Nobody can say now.
        """
        metadata = await self._issuer.metadata()
        expected = self._issuer.settings.issuer
        # Against a mix-up of issuers: a code must not be shown to one that did not make it.
        if named != expected and (named is not None or metadata.names_itself):
            raise Refused("The answer is of another issuer (iss).")
        url = self._settings.token_url or metadata.token_url
        if url is None:
            raise self._unavailable("it has no https token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code[:MAX_CODE],
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        if self._authorization is None:
            form["client_id"] = self._settings.client_id
        async with self._turns:
            try:
                answer = await self._issuer.fetcher.post(url, form, self._authorization)
            except FetchFailed as error:
                if error.status == 400:  # RFC 6749, section 5.2: of this code, unless it is ours
                    raise Refused("The issuer did not take the code.") from None
                raise self._unavailable(error.reason) from None
        return await self._subject_of(answer.get("id_token"), attempt)

    async def _subject_of(self, token: Any, attempt: Attempt) -> str:
        """OpenID Connect Core 1.0, section 3.1.3.7."""
        if not isinstance(token, str) or len(token) > MAX_TOKEN_BYTES or not token.isascii():
            raise Refused("There is no ID token in the issuer's answer.")
        encoded = token.encode("ascii")
        unverified = read_unverified(encoded)
        if unverified is None:
            raise Refused("The ID token is no JSON Web Token.")
        claims = await signed_claims(self._issuer, encoded, unverified.header, self._token_settings)
        self._check_audience(claims)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not secrets.compare_digest(
            nonce.encode(), attempt.nonce.encode()
        ):
            raise Refused("The ID token is of another login (nonce).")
        settings = self._issuer.settings
        check_times(claims, self._clock(), settings.leeway_s, need_exp=True)
        path = self._settings.subject or settings.claims.subject
        subject = claim_at(claims, path)
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_IDENTIFIER:
            raise Refused(f"The ID token does not say who it is ({path}).")
        return subject

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        own, audience, party = self._settings.client_id, claims.get("aud"), claims.get("azp")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or own not in named:
            raise Refused("The ID token was not made for this server (aud).")
        if party != own and (party is not None or len(named) > 1):
            raise Refused("The ID token was made for another client (azp).")

    def _unavailable(self, reason: str) -> IssuerUnavailable:
        log.warning("login_unavailable", issuer=self._issuer.settings.issuer, reason=reason)
        return IssuerUnavailable(RETRY_S)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
