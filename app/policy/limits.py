"""How many calls in a while: rate limits as written become limits as counted.

A limit says how many are let through in any period, and a bucket who shares them. What is shared
has a name in the store; the same everywhere, so that servers with one store count together.
"""

import hashlib
import ipaddress
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import structlog

from app.observability.metrics import UNCOUNTED
from app.policy.globs import compile_globs
from app.principal import Principal
from app.protocol.errors import TooManyRequests, Unavailable
from app.settings.limits import Bucket, LimitsSettings, RateLimit, ToolRate
from app.state.interface import Quota, Store, StoreUnavailable, Wait

REMEMBERED_CALLERS: Final = 4096
UNCOUNTED_RETRY_S: Final = 5
UNCOUNTED_LOG_S: Final = 60.0
"""A store that does not count is told of this often, not for each call."""

_UNSEEN: Final = ""
"""Stands for every tool that there is not or that the caller cannot see; no tool has this name."""

log = structlog.get_logger()

_Sharers = Literal["everybody", "user", "tenant"]
_SHARERS: Final[dict[Bucket, tuple[_Sharers, str]]] = {
    "tool": ("everybody", "of this tool by all callers together"),
    "user": ("user", "by each caller"),
    "tenant": ("tenant", "by all callers of a tenant"),
    "user-tool": ("user", "of this tool by each caller"),
}


_Who = str | tuple[str, str | None, str | None] | None
"""A caller, as far as it is counted apart from others."""


class Limit(NamedTuple):
    """One limit of one tool, or of the list.

    Attributes:
        name: Of what is counted, as far as it does not depend on who calls.
        message: What it allows, for whoever is refused.
        setting: Where it stands, for the log.
        admits_uncounted: Whether calls run that the store cannot count.
    """

    name: str
    sharers: _Sharers
    capacity: int
    period_s: float
    message: str
    setting: str
    admits_uncounted: bool

    def quota(self, principal: Principal, address: str | None) -> Quota:
        """What a call counts under."""
        sharers = self.sharers
        if sharers == "everybody":
            return Quota(self.name, self.capacity, self.period_s)
        # Who acts for no tenant counts alone: strangers must not use up each other's calls.
        if sharers == "tenant" and principal.tenant is not None:
            who = _tenant(principal.tenant)
        elif principal.issuer is not None:
            who = _user(principal.issuer, principal.subject or "")
        else:
            return Quota(self.name + _place(address), self.capacity, self.period_s, True)
        return Quota(self.name + who, self.capacity, self.period_s)


def _names_all(rate: ToolRate) -> bool:
    return any(not pattern.strip("*") for pattern in rate.tools)


class Limits:
    """The limits of one version of the settings. Never changes.

    Args:
        settings: None: no limits at all, whatever tools say of themselves.

    Attributes:
        listing: Of ``tools/list``.
        unknown: Of tools that a caller cannot see, those that do not exist among them.
    """

    def __init__(self, settings: LimitsSettings | None) -> None:
        self._is_off = settings is None
        settings = settings or LimitsSettings(rates=(), list_rates=())
        self._admits_uncounted = settings.when_uncounted == "admit"
        self._equal: dict[tuple[Limit, ...], tuple[Limit, ...]] = {}
        self._rates = [
            (compile_globs(rate.tools), rate, f"limits.rates.{place}")
            for place, rate in enumerate(settings.rates)
        ]
        self.listing: Final = tuple(
            self._limit(rate, f"limits.list_rates.{place}", "list", what="list")
            for place, rate in enumerate(settings.list_rates)
        )
        # Unknown and hidden tools must not be told apart, nor may entries about tools that a
        # caller cannot see show: those that name every tool count, and all such names as one.
        self.unknown: Final = tuple(
            self._rate(rate, setting, _UNSEEN)
            for _, rate, setting in self._rates
            if _names_all(rate)
        )

    def of(self, tool: str, own: RateLimit | None) -> tuple[Limit, ...]:
        """The limits of a tool; each holds by itself.

        Args:
            own: What the tool says itself, or its override.
        """
        found = [
            self._rate(rate, setting, tool)
            for names, rate, setting in self._rates
            if names.match(tool)
        ]
        if own is not None and not self._is_off:
            found.append(self._limit(own, "rate_limit", "tool", tool))
        # Equal ones are one object, which is quicker to know again.
        return self._equal.setdefault(tuple(found), tuple(found))

    def unused(self, tools: Iterable[str]) -> list[str]:
        """Sentences about entries that name none of these tools."""
        served = list(tools)
        return [
            f"{setting} names no tool: {', '.join(rate.tools)}"
            for names, rate, setting in self._rates
            if not _names_all(rate) and not any(names.match(tool) for tool in served)
        ]

    def _rate(self, rate: ToolRate, setting: str, tool: str) -> Limit:
        by_tool = (tool,) if rate.bucket in {"tool", "user-tool"} else ()
        return self._limit(rate, setting, "rates", *rate.tools, *by_tool)

    def _limit(self, rate: RateLimit, setting: str, *counted: str, what: str = "call") -> Limit:
        sharers, whom = _SHARERS[rate.bucket]
        # Without the capacity: when that changes, what was let through before still counts.
        name = _digest(*counted, rate.bucket, repr(rate.period_s))
        how_many = f"{rate.capacity} {what}{'s' if rate.capacity > 1 else ''}"
        return Limit(
            f"rate:{name}:",
            sharers,
            rate.capacity,
            rate.period_s,
            f"At most {how_many} in {rate.period_s:g} s {whom}.",
            setting,
            self._admits_uncounted,
        )


NO_LIMITS: Final = Limits(None)
"""For somebody at the machine's own keyboard."""


class Limiter:
    """Counts calls in a store, and refuses those that are too many.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._told_at = -UNCOUNTED_LOG_S
        self._last: dict[_Who, tuple[Sequence[Limit], Sequence[Quota]]] = {}

    def admit(
        self, limits: Sequence[Limit], principal: Principal, address: str | None
    ) -> Coroutine[Any, Any, None] | None:
        """Count a call under all of its limits, or under none and refuse it.

        Args:
            limits: At least one.
            address: Of the client: callers without a credential are told apart by theirs.

        Returns:
            None: It is counted. A coroutine: it will be when that ends, which raises the same.

        Raises:
            TooManyRequests: One of the limits has no room.
            Unavailable: Nobody can count now, and the settings say to refuse.
        """
        try:
            answer = self._store.admit(self._quotas(limits, principal, address))
        except StoreUnavailable as error:
            self._uncounted(error, limits)
            return None
        if answer is None:
            return None
        if isinstance(answer, Wait):
            raise _refusal(limits, answer)
        return self._later(answer, limits)

    def _quotas(
        self, limits: Sequence[Limit], principal: Principal, address: str | None
    ) -> Sequence[Quota]:
        """What a call counts under. It is that of the caller's last call, most of the time."""
        issuer = principal.issuer
        who = address if issuer is None else (issuer, principal.subject, principal.tenant)
        last = self._last.get(who)
        if last is not None and last[0] is limits:
            return last[1]
        quotas = [limit.quota(principal, address) for limit in limits]
        if len(self._last) >= REMEMBERED_CALLERS:
            self._last.clear()
        self._last[who] = limits, quotas
        return quotas

    async def _later(
        self, coming: Coroutine[Any, Any, Wait | None], limits: Sequence[Limit]
    ) -> None:
        try:
            wait = await coming
        except StoreUnavailable as error:
            self._uncounted(error, limits)
            return
        if wait is not None:
            raise _refusal(limits, wait)

    def _uncounted(self, error: StoreUnavailable, limits: Sequence[Limit]) -> None:
        admitted, now = limits[0].admits_uncounted, self._clock()
        UNCOUNTED.inc("admitted" if admitted else "refused")
        if now - self._told_at >= UNCOUNTED_LOG_S:
            self._told_at = now
            log.warning("calls_uncounted", problem=str(error), admitted=admitted)
        if not admitted:
            raise Unavailable(
                "The server cannot count calls at the moment.",
                retry_after_s=UNCOUNTED_RETRY_S,
                setting="limits.when_uncounted",
            ) from None


def _refusal(limits: Sequence[Limit], wait: Wait) -> TooManyRequests:
    limit = limits[wait.quota]
    return TooManyRequests(limit.message, wait_s=wait.seconds, setting=limit.setting)


# Names, hashed: their parts are of any length and of any characters.


@lru_cache(REMEMBERED_CALLERS)
def _user(issuer: str, subject: str) -> str:
    return _digest("user", issuer, subject)


@lru_cache(REMEMBERED_CALLERS)
def _tenant(tenant: str) -> str:
    # Without the issuer, as for rules: a tenant is the same whoever vouches for its members.
    return _digest("tenant", tenant)


@lru_cache(REMEMBERED_CALLERS)
def _place(address: str | None) -> str:
    """Where a caller without a credential is: an IPv4 address, or a /64 of IPv6.

    One customer of a provider has at least a /64 (RFC 6177), and any number of addresses in it.
    """
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return _digest("address", "")  # nobody knows: all of these count as one
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped  # how a socket for both families shows an IPv4 client
        return _digest("address", str(mapped) if mapped else f"{int(parsed) >> 64:x}::/64")
    return _digest("address", str(parsed))


def _digest(*parts: str) -> str:
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
