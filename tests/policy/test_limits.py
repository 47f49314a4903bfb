"""Rate limits: who shares what, what is refused and how, and what is not told."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.policy.limits import NO_LIMITS, UNCOUNTED_LOG_S, Limit, Limiter, Limits
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import TooManyRequests, Unavailable
from app.settings import LimitsSettings, RateLimit
from app.state.interface import Quota, Store, StoreUnavailable, Wait
from app.state.memory import MemoryStore
from tests.support.cases import rows

LOGIN, OTHER = "https://login.example.com", "https://other.example.com"
ADA = Principal(issuer=LOGIN, subject="ada", tenant="acme")
BOB = Principal(issuer=LOGIN, subject="bob", tenant="acme")
EVE = Principal(issuer=LOGIN, subject="eve", tenant="evil")
ADA_OF_ANOTHER = Principal(issuer=OTHER, subject="ada", tenant="acme")
ADA_WITH_A_NEW_TOKEN = Principal(issuer=LOGIN, subject="ada", tenant="acme", credential_id="2")
FREELANCER = Principal(issuer=LOGIN, subject="fay")
ANOTHER = Principal(issuer=LOGIN, subject="fred")
Call = tuple[str, Principal, str | None]


def limits(*rates: dict[str, Any], **more: Any) -> Limits:
    shared = {"tools": ["*"], "capacity": 1, "period_s": 60}
    return Limits(
        LimitsSettings.model_validate({"rates": [{**shared, **rate} for rate in rates], **more})
    )


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


class _FarAway(MemoryStore):
    """A store whose answers must be waited for."""

    async def admit(self, quotas: Sequence[Quota]) -> Wait | None:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().admit(quotas)


@pytest.fixture(params=[MemoryStore, _FarAway])
def limiter(clock: _Clock, request: pytest.FixtureRequest) -> Limiter:
    return Limiter(request.param(clock=clock), clock=clock)


async def admit(
    limiter: Limiter, found: tuple[Limit, ...], who: Principal, address: str | None = None
) -> None:
    counting = limiter.admit(found, who, address)
    if counting is not None:
        await counting


async def is_admitted(limiter: Limiter, found: tuple[Limit, ...], who: Principal) -> bool:
    try:
        await admit(limiter, found, who)
    except TooManyRequests:
        return False
    return True


# -- who shares what --------------------------------------------------------------


@rows(
    "bucket, one, other, shared",
    ("a tool, two callers", "tool", ("a", ADA, None), ("a", EVE, None), True),
    ("a tool, two tools", "tool", ("a", ADA, None), ("b", ADA, None), False),
    ("a user, two tools", "user", ("a", ADA, None), ("b", ADA, None), True),
    ("a user, a new token", "user", ("a", ADA, None), ("a", ADA_WITH_A_NEW_TOKEN, None), True),
    ("a user, two addresses", "user", ("a", ADA, "192.0.2.1"), ("a", ADA, "192.0.2.2"), True),
    ("two users", "user", ("a", ADA, None), ("a", BOB, None), False),
    ("two users of one address", "user", ("a", ADA, "192.0.2.1"), ("a", BOB, "192.0.2.1"), False),
    ("a subject at two issuers", "user", ("a", ADA, None), ("a", ADA_OF_ANOTHER, None), False),
    ("a tenant", "tenant", ("a", ADA, None), ("b", BOB, None), True),
    ("a tenant at two issuers", "tenant", ("a", ADA, None), ("a", ADA_OF_ANOTHER, None), True),
    ("two tenants", "tenant", ("a", ADA, None), ("a", EVE, None), False),
    ("no tenant, two users", "tenant", ("a", FREELANCER, None), ("a", ANOTHER, None), False),
    ("no tenant, one user", "tenant", ("a", FREELANCER, None), ("b", FREELANCER, None), True),
    ("a user and a tool", "user-tool", ("a", ADA, None), ("a", ADA, None), True),
    ("a user and two tools", "user-tool", ("a", ADA, None), ("b", ADA, None), False),
    ("two users and a tool", "user-tool", ("a", ADA, None), ("a", BOB, None), False),
)
def test_a_bucket_says_who_shares(bucket: str, one: Call, other: Call, shared: bool) -> None:
    found = limits({"bucket": bucket})

    names = [found.of(tool, None)[0].quota(who, at).name for tool, who, at in (one, other)]

    assert (names[0] == names[1]) is shared


@rows(
    "one, other, shared",
    ("the same", "192.0.2.1", "192.0.2.1", True),
    ("two of IPv4", "192.0.2.1", "192.0.2.2", False),
    ("two of one /64", "2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", True),
    ("two spellings", "2001:DB8:0:1:0::1", "2001:db8:0:1::1", True),
    ("two of one /63", "2001:db8:0:2::1", "2001:db8:0:3::1", False),
    ("IPv4 in IPv6", "::ffff:192.0.2.1", "192.0.2.1", True),
    ("two of IPv4 in IPv6", "::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ("a link", "fe80::1%eth0", "fe80::2%eth1", True),
    ("nobody knows", None, "a socket", True),
    ("one that is not known", None, "192.0.2.1", False),
)
def test_callers_without_a_credential_are_told_apart_by_address(
    one: str | None, other: str | None, shared: bool
) -> None:
    for bucket in ("user", "tenant", "user-tool"):
        (limit,) = limits({"bucket": bucket}).of("a", None)

        quotas = [limit.quota(ANONYMOUS, address) for address in (one, other)]

        assert (quotas[0].name == quotas[1].name) is shared
        assert all(quota.is_anonymous for quota in quotas)


def test_nobody_is_taken_for_another_kind_of_caller() -> None:
    """A subject, a tenant or an address with the same words."""
    words = "192.0.2.1"
    callers: list[tuple[Principal, str | None]] = [
        (Principal(issuer=words, subject=""), None),
        (Principal(issuer="", subject=words), None),
        (Principal(issuer="19", subject="2.0.2.1"), None),
        (Principal(issuer="x", subject="y", tenant=words), None),
        (ANONYMOUS, words),
    ]
    (limit,) = limits({"bucket": "tenant"}).of("a", None)

    names = {limit.quota(who, address).name for who, address in callers}

    assert len(names) == len(callers)


def test_what_is_counted_has_a_name_of_bounded_length_without_words_of_clients() -> None:
    long = Principal(issuer=LOGIN, subject="s\ud800" * 10_000, tenant="t" * 10_000)
    patterns = ["x" * 200, "*"]
    for bucket in ("tool", "user", "tenant", "user-tool"):
        (limit,) = limits({"bucket": bucket, "tools": patterns}).of("a", None)
        name = limit.quota(long, None).name
        assert len(name) <= 100
        assert name.isascii()


def test_limits_of_other_entries_tools_and_periods_count_apart() -> None:
    own = RateLimit(bucket="user", capacity=1, period_s=60)
    found = [
        *limits({"bucket": "user"}).of("a", own),
        *limits({"bucket": "user", "period_s": 61}).of("a", None),
        *limits({"bucket": "user", "tools": ["a*"]}).of("a", None),
        *limits(list_rates=[{"bucket": "user", "capacity": 1, "period_s": 60}]).listing,
    ]
    assert len({limit.quota(ADA, None).name for limit in found}) == len(found) == 5


def test_another_capacity_and_another_place_go_on_with_the_same_count() -> None:
    (before,) = limits({"bucket": "user", "capacity": 1}).of("a", None)
    _, after = limits({"bucket": "tool"}, {"bucket": "user", "capacity": 9}).of("a", None)

    assert before.quota(ADA, None).name == after.quota(ADA, None).name


# -- which limits a tool has --------------------------------------------------------


def test_every_entry_that_names_a_tool_holds_and_its_own_besides() -> None:
    own = RateLimit(bucket="tool", capacity=4, period_s=60)
    found = limits(
        {"bucket": "user", "capacity": 1},
        {"bucket": "user", "capacity": 2, "tools": ["finance.*"]},
        {"bucket": "user", "capacity": 3, "tools": ["finance.p?y", "x"]},
    )

    assert [limit.capacity for limit in found.of("finance.pay", own)] == [1, 2, 3, 4]
    assert [limit.capacity for limit in found.of("finance.send", None)] == [1, 2]
    assert [limit.setting for limit in found.of("finance.pay", own)] == [
        "limits.rates.0",
        "limits.rates.1",
        "limits.rates.2",
        "rate_limit",
    ]


def test_tools_that_a_caller_cannot_see_are_one_tool_with_the_limits_of_all() -> None:
    """Entries about some tools would tell of tools that nobody may know."""
    found = limits(
        {"bucket": "user-tool", "capacity": 1},
        {"bucket": "tool", "capacity": 2, "tools": ["a", "**"]},
        {"bucket": "user", "capacity": 3, "tools": ["finance.*"]},
        {"bucket": "user", "capacity": 4, "tools": ["*.pay"]},
    )

    assert [limit.capacity for limit in found.unknown] == [1, 2]
    seen = {limit.quota(ADA, None).name for limit in found.of("a", None)}
    assert seen.isdisjoint(limit.quota(ADA, None).name for limit in found.unknown)


def test_tools_that_a_caller_cannot_see_cost_as_much_as_others_where_calls_are_shared() -> None:
    found = limits({"bucket": "user"})

    assert found.unknown == found.of("a", None)


def test_an_entry_that_names_no_tool_is_told_of() -> None:
    found = limits(
        {"bucket": "user"},
        {"bucket": "user", "tools": ["finanse.*", "x"]},
        {"bucket": "user", "tools": ["finance.*"]},
    )

    assert found.unused(["finance.pay"]) == ["limits.rates.1 names no tool: finanse.*, x"]
    assert len(found.unused([])) == 2, "the first names every tool, however many there are"


def test_somebody_at_the_keyboard_has_no_limits() -> None:
    own = RateLimit(bucket="tool", capacity=1, period_s=60)

    assert (NO_LIMITS.of("a", own), NO_LIMITS.unknown, NO_LIMITS.listing) == ((), (), ())


# -- what is refused, and how -----------------------------------------------------


@rows(
    "passed_s, wait_s, wait_ms",
    ("at once", 0.0, 60, 60_000),
    ("in the middle", 29.75, 31, 30_250),
    ("shortly before", 59.9996, 1, 1),
)
async def test_a_refusal_says_what_is_allowed_and_how_long_to_wait(
    limiter: Limiter, clock: _Clock, passed_s: float, wait_s: int, wait_ms: int
) -> None:
    found = limits({"bucket": "user", "capacity": 2}).of("a", None)
    await admit(limiter, found, ADA, None)
    await admit(limiter, found, ADA, None)
    clock.now = passed_s

    with pytest.raises(TooManyRequests) as refused:
        await admit(limiter, found, ADA, None)

    error = refused.value
    assert error.as_json() == {
        "code": -31429,
        "message": f"At most 2 calls in 60 s by each caller. Try again in {wait_s} s.",
        "data": {"retryAfterMs": wait_ms},
    }
    assert error.headers == ((b"retry-after", str(wait_s).encode()),)
    assert (error.http_status, error.setting) == (429, "limits.rates.0")
    clock.now = passed_s + wait_ms / 1000
    await admit(limiter, found, ADA, None)


@rows(
    "bucket, said",
    ("a tool", "tool", "of this tool by all callers together"),
    ("a user", "user", "by each caller"),
    ("a tenant", "tenant", "by all callers of a tenant"),
    ("a user and a tool", "user-tool", "of this tool by each caller"),
)
def test_a_refusal_says_who_shares(bucket: str, said: str) -> None:
    (limit,) = limits({"bucket": bucket, "capacity": 5, "period_s": 0.5}).of("a", None)

    assert limit.message == f"At most 5 calls in 0.5 s {said}."


async def test_a_call_that_one_limit_refuses_costs_nothing_under_another(
    limiter: Limiter, clock: _Clock
) -> None:
    found = limits(
        {"bucket": "user", "capacity": 3}, {"bucket": "tool", "capacity": 1, "tools": ["a"]}
    )
    assert await is_admitted(limiter, found.of("a", None), ADA)
    for _ in range(5):
        assert not await is_admitted(limiter, found.of("a", None), ADA)

    outcomes = [await is_admitted(limiter, found.of("b", None), ADA) for _ in range(3)]

    assert outcomes == [True, True, False]


# -- when nobody can count ----------------------------------------------------------


class _Unreachable(MemoryStore):
    def admit(self, quotas: Sequence[Quota]) -> Wait | None:
        raise StoreUnavailable(f"connection refused, {len(quotas)} not counted")


class _UnreachableFarAway(MemoryStore):
    async def admit(self, quotas: Sequence[Quota]) -> Wait | None:  # type: ignore[override]
        raise StoreUnavailable(f"connection refused, {len(quotas)} not counted")


@pytest.mark.parametrize("store", [_Unreachable, _UnreachableFarAway])
@rows("admits", ("refused, as shipped", False), ("admitted", True))
async def test_what_cannot_be_counted_is_refused_unless_the_settings_say_otherwise(
    clock: _Clock, store: type[MemoryStore], admits: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"when_uncounted": "admit"} if admits else {}
    found = limits({"bucket": "user"}, **more).of("a", None)
    limiter = Limiter(store(), clock=clock)

    for clock.now in (0.0, 1.0, UNCOUNTED_LOG_S, UNCOUNTED_LOG_S + 1):
        if admits:
            await admit(limiter, found, ADA, None)
            continue
        with pytest.raises(Unavailable) as refused:
            await admit(limiter, found, ADA, None)
        assert (refused.value.code, refused.value.setting) == (-31503, "limits.when_uncounted")
        assert refused.value.data == {"retryAfterMs": 5000}

    said = capsys.readouterr().out
    assert said.count("calls_uncounted") == 2, "told once a minute, not for each call"
    assert "connection refused" in said


async def test_a_flood_of_strangers_neither_grows_nor_shuts_out_those_who_are_known(
    clock: _Clock,
) -> None:
    store: Store = MemoryStore(clock=clock, max_entries=100)
    limiter = Limiter(store, clock=clock)
    found = limits({"bucket": "user", "capacity": 5}).of("a", None)
    outcomes = []
    for number in range(1000):
        try:
            await admit(limiter, found, ANONYMOUS, f"2001:db8:{number:x}::1")
        except Unavailable:
            outcomes.append(False)
        else:
            outcomes.append(True)
    assert outcomes == [True] * 50 + [False] * 950

    for number in range(40):
        await admit(limiter, found, Principal(issuer=LOGIN, subject=str(number)), None)
    await admit(limiter, found, ANONYMOUS, "2001:db8:1::2")  # has its place
    clock.now = 60.0
    await admit(limiter, found, ANONYMOUS, "2001:db8:ffff::1")


def test_the_default_is_generous_and_on() -> None:
    found = Limits(LimitsSettings())

    (limit,) = found.of("a", None)
    (listing,) = found.listing
    assert isinstance(limit.quota(ADA, None), Quota)
    assert (limit.sharers, limit.capacity, limit.period_s) == ("user", 600, 60)
    assert (listing.sharers, listing.capacity, listing.period_s) == ("user", 600, 60)
