"""Asks an issuer about a token that says nothing by itself (RFC 7662)."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import structlog

from app.auth.audience import Audiences
from app.auth.claims import check_times
from app.auth.client_secret import basic
from app.auth.fetching import FetchFailed
from app.auth.issuer import Issuer
from app.auth.problems import IssuerUnavailable, Refused
from app.auth.restraint import RETRY_S, Breaker, Turns
from app.settings import IntrospectionSettings

AT_ONCE: Final = 64
"""Questions at one time. The client opens more connections, so none waits for one there."""
STRANGERS: Final = 48
"""Of these, about tokens that the issuer has not vouched for before. Anybody can make such up, in
any number; who is known must not stand behind them."""
WAITING: Final = 1000
WAITING_STRANGERS: Final = 192
REMINDER_S: Final = 60.0

_ABOUT_ITSELF: Final = frozenset({401, 403, 408, 429})
"""Statuses below 500 that say something about the issuer, or about this server there."""
_ABOUT_THE_ADDRESS: Final = frozenset({404, 405})

log = structlog.get_logger()


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
        self._authorization = basic(settings.client_id, secret)
        self._breaker = Breaker()
        patience_s = issuer.settings.timeout_s
        self._all = Turns(AT_ONCE, WAITING, patience_s)
        self._strangers = Turns(STRANGERS, WAITING_STRANGERS, patience_s)
        self._reminded_at: dict[str, float] = {}

    async def ask(
        self, token: bytes, *, is_stranger: bool = True
    ) -> tuple[Mapping[str, Any], float | None]:
        """The claims of a token, and until when it counts.

        Args:
            is_stranger: Whether the issuer has never vouched for it.

        Raises:
            Refused: It does not count.
            IssuerUnavailable: There is no answer to use, or there are too many questions.
        """
        url = await self._issuer.introspection_url()
        self._breaker.check(self._clock())
        async with AsyncExitStack() as turns:
            if is_stranger:
                await turns.enter_async_context(self._strangers)
            await turns.enter_async_context(self._all)
            answer = await self._answer(url, token)
        return answer, self._check(answer)

    async def _answer(self, url: str, token: bytes) -> Mapping[str, Any]:
        form = {"token": token.decode("ascii"), "token_type_hint": "access_token"}
        with self._breaker.question(self._clock()):
            try:
                answer = await self._issuer.fetcher.post(url, form, self._authorization)
            except FetchFailed as error:
                raise self._note_failure(error) from None
            self._breaker.heard()
        return answer

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

    def _note_failure(self, error: FetchFailed) -> Refused | IssuerUnavailable:
        """What a failure means: for everybody, or for the one token."""
        status = error.status or 0
        if not error.reached or status in _ABOUT_ITSELF or status >= 500:
            self._breaker.failed(self._clock())
            self._remind(error, RETRY_S)
            return IssuerUnavailable(RETRY_S)
        # Whatever it does to one token, it is there for the others.
        self._breaker.heard()
        self._remind(error, 0.0)
        if 400 <= status < 500 and status not in _ABOUT_THE_ADDRESS:
            return Refused("The token is not active.")
        return IssuerUnavailable(RETRY_S)

    def _remind(self, error: FetchFailed, retry_in_s: float) -> None:
        is_ours = error.status in (401, 403)
        event = "introspection_refused" if is_ours else "introspection_unavailable"
        now = self._clock()
        if now - self._reminded_at.get(event, -math.inf) < REMINDER_S:
            return
        self._reminded_at[event] = now
        issuer = self._issuer.settings.issuer
        if is_ours:
            log.error("introspection_refused", issuer=issuer, reason=error.reason)
        else:
            log.warning(
                "introspection_unavailable",
                issuer=issuer,
                reason=error.reason,
                retry_in_s=retry_in_s,
            )
