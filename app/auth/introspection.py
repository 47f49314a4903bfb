"""Asks an issuer about a token that says nothing by itself (RFC 7662)."""

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_plus

import structlog

from app.auth.audience import Audiences
from app.auth.claims import check_times
from app.auth.fetching import FetchFailed
from app.auth.issuer import Issuer
from app.auth.problems import IssuerUnavailable, Refused, UnusableFile
from app.settings import IntrospectionSettings

RETRY_S: Final = 2.0
"""After a failure it is asked again no sooner, so that callers do not queue for its silence."""
REMINDER_S: Final = 60.0

log = structlog.get_logger()


def secret_of(settings: IntrospectionSettings) -> str:
    """The secret with which this server asks.

    Raises:
        UnusableFile: It stands in a file, which cannot be read or is empty.
    """
    if settings.client_secret is not None:
        return settings.client_secret.get_secret_value()
    file = settings.client_secret_file
    assert file is not None  # the settings have one of the two
    try:
        secret = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFile(f"{file}: cannot be read: {type(error).__name__}") from None
    if not secret:
        raise UnusableFile(f"{file}: is empty; it must hold the client secret")
    return secret


class Introspector:
    """Asks one issuer.

    Args:
        secret: See ``secret_of``.
        clock: POSIX time.
    """

    def __init__(
        self,
        issuer: Issuer,
        settings: IntrospectionSettings,
        audiences: Audiences,
        *,
        secret: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuer, self._settings, self._audiences = issuer, settings, audiences
        self._clock = clock
        self._authorization = _basic(settings.client_id, secret)
        self._down_until = self._reminded_at = 0.0

    async def ask(self, token: bytes) -> tuple[Mapping[str, Any], float | None]:
        """The claims of a token, and until when it counts.

        Raises:
            Refused: It does not count.
            IssuerUnavailable: There is no answer to use.
        """
        url = await self._issuer.introspection_url()
        if self._clock() < self._down_until:
            raise IssuerUnavailable(RETRY_S)
        form = {"token": token.decode("ascii"), "token_type_hint": "access_token"}
        try:
            answer = await self._issuer.fetcher.post(url, form, self._authorization)
        except FetchFailed as error:
            self._note_failure(error)
            raise IssuerUnavailable(RETRY_S) from None
        return answer, self._check(answer)

    def _check(self, answer: Mapping[str, Any]) -> float | None:
        if answer.get("active") is not True:
            raise Refused("The token is not active.")
        kind = answer.get("token_type")
        if kind is not None and (not isinstance(kind, str) or kind.lower() != "bearer"):
            raise Refused("The token is no bearer token.")
        named = answer.get("iss")
        if named is not None and named != self._issuer.settings.issuer:
            raise Refused("The token is of another issuer.")
        audience = answer.get("aud")
        # Without `aud` nobody can tell whether it was made for another service, unless every
        # token of this issuer is for this one.
        if audience is None and not self._settings.dedicated:
            raise Refused("The token does not say for whom it was made (aud).")
        if audience is not None and not self._audiences.accept(audience):
            raise Refused("The token was made for another service (aud).")
        return check_times(answer, self._clock(), self._issuer.settings.leeway_s, need_exp=False)

    def _note_failure(self, error: FetchFailed) -> None:
        now = self._clock()
        self._down_until = now + RETRY_S
        if now - self._reminded_at < REMINDER_S:
            return
        self._reminded_at = now
        issuer = self._issuer.settings.issuer
        if error.status in (400, 401, 403):
            log.error("introspection_refused", issuer=issuer, reason=error.reason)
        else:
            log.warning(
                "introspection_unavailable", issuer=issuer, reason=error.reason, retry_in_s=RETRY_S
            )


def _basic(client_id: str, secret: str) -> str:
    """``client_secret_basic``: both parts are form-encoded first (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return "Basic " + base64.b64encode(pair.encode("ascii")).decode("ascii")
