"""One bad token, a flood of them, or an issuer that is silent: what that is to everybody else."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from app.auth.authenticator import Authenticator
from app.auth.introspection import STRANGERS, WAITING_STRANGERS
from app.auth.problems import IssuerBusy, IssuerUnavailable
from app.auth.restraint import FAILURES, RETRY_S, Breaker, Lately, Turns
from app.protocol.errors import ProtocolError
from tests.auth.desk import Clock, accepted, bearer, desk, refusal_of, soon
from tests.support.cases import rows
from tests.support.issuer import Behaviour, Issuer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(clock: Clock) -> Iterator[Issuer]:
    with Issuer(clock=clock, algorithm="ES256") as issuer:
        yield issuer


def _table(issuer: Issuer, **settings: Any) -> dict[str, Any]:
    return issuer.settings(introspection=issuer.introspection_settings(), **settings)


def _answered_with(issuer: Issuer, status: int) -> str:
    token = issuer.opaque_token()
    issuer.statuses[token] = status
    return token


async def _status(authenticator: Authenticator, token: str) -> int:
    try:
        await authenticator.authenticate(bearer(token), b"")
    except ProtocolError as refusal:
        return refusal.http_status
    return 200


@rows("status", ("400", 400), ("413", 413), ("422", 422))
async def test_an_issuer_that_finds_fault_with_a_token_is_there_for_others(
    issuer: Issuer, clock: Clock, status: int
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        for number in range(1, FAILURES + 2):
            bad = _answered_with(issuer, status)
            assert (await refusal_of(authenticator, bad)).http_status == 401
            assert (await refusal_of(authenticator, bad)).http_status == 401
            assert issuer.fetches["introspection"] == number  # once about each
        await accepted(authenticator, issuer.opaque_token())


@rows("status", ("404", 404), ("405", 405))
async def test_an_address_that_is_wrong_makes_no_token_bad(
    issuer: Issuer, clock: Clock, status: int
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        for _ in range(FAILURES):
            bad = _answered_with(issuer, status)
            assert (await refusal_of(authenticator, bad)).http_status == 503
        await accepted(authenticator, issuer.opaque_token())


@rows("status", ("401", 401), ("403", 403), ("408", 408), ("429", 429), ("500", 500), ("503", 503))
async def test_an_issuer_that_fails_again_and_again_is_skipped_for_a_while(
    issuer: Issuer, clock: Clock, status: int
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:

        async def fails(times: int) -> None:
            for _ in range(times):
                bad = _answered_with(issuer, status)
                assert (await refusal_of(authenticator, bad)).http_status == 503

        for _ in range(2):
            await fails(FAILURES - 1)
            await accepted(authenticator, issuer.opaque_token())
        await fails(FAILURES)
        good, asked = issuer.opaque_token(), issuer.fetches["introspection"]
        refusal = await refusal_of(authenticator, good)
        assert refusal.http_status == 503
        assert (b"retry-after", b"2") in refusal.headers
        assert issuer.fetches["introspection"] == asked
        clock.passes(RETRY_S)
        await accepted(authenticator, good)


@rows("behaviour", ("hangs", Behaviour.HANG), ("drops connections", Behaviour.DROP))
async def test_nobody_queues_for_the_silence_of_an_issuer(
    issuer: Issuer, clock: Clock, behaviour: Behaviour
) -> None:
    async with desk(clock, issuers=[_table(issuer, timeout_s=1)]) as authenticator:
        await accepted(authenticator, issuer.opaque_token())
        issuer.behave(behaviour, "introspection")
        crowd = [issuer.opaque_token() for _ in range(STRANGERS + 50)]
        statuses = await asyncio.gather(*(_status(authenticator, token) for token in crowd))
        assert set(statuses) == {503}
        # Those who waited for a turn were told as soon as it was known.
        assert issuer.fetches["introspection"] < 1 + STRANGERS + FAILURES
        issuer.recover()
        clock.passes(RETRY_S)
        await accepted(authenticator, crowd[0])


async def test_one_question_finds_out_whether_an_issuer_is_back(
    issuer: Issuer, clock: Clock
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        for _ in range(FAILURES):
            await refusal_of(authenticator, _answered_with(issuer, 500))
        clock.passes(RETRY_S)
        issuer.behave(Behaviour.HOLD, "introspection")
        tries = asyncio.create_task(accepted(authenticator, issuer.opaque_token()))
        await soon(lambda: issuer.fetches["introspection"] == FAILURES + 1, "the question")
        assert (await refusal_of(authenticator, issuer.opaque_token())).http_status == 503
        issuer.recover()
        await tries
        await accepted(authenticator, issuer.opaque_token())
        assert issuer.fetches["introspection"] == FAILURES + 2


async def test_a_flood_of_made_up_tokens_fails_none_that_counts(
    issuer: Issuer, clock: Clock
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        known = issuer.opaque_token()
        await accepted(authenticator, known)
        clock.passes(3600)  # it must be asked about again

        issuer.behave(Behaviour.HOLD, "introspection")
        early = issuer.opaque_token()
        flood = [f"made-up-{n}" for n in range(STRANGERS + WAITING_STRANGERS - 1)]
        waiting = [asyncio.create_task(_status(authenticator, token)) for token in (*flood, early)]
        await soon(lambda: issuer.fetches["introspection"] == 1 + STRANGERS, "the questions")
        late = await refusal_of(authenticator, issuer.opaque_token())
        assert late.http_status == 503 and (b"retry-after", b"1") in late.headers
        assert "too many tokens" in late.message

        # Whom the issuer has vouched for before is asked about besides.
        renewed = asyncio.create_task(_status(authenticator, known))
        await soon(lambda: issuer.fetches["introspection"] == 2 + STRANGERS, "one question more")

        issuer.recover()
        assert await renewed == 200
        assert await asyncio.gather(*waiting) == [401] * len(flood) + [200]
        await accepted(authenticator, issuer.opaque_token())


async def test_a_turn_is_waited_for_as_long_as_is_told() -> None:
    turns = Turns(1, 1, 0.01)
    async with turns:
        for _ in range(2):  # who gave up has left no trace
            with pytest.raises(IssuerBusy):
                await turns.__aenter__()
    async with turns:
        pass


async def test_who_leaves_while_it_waits_for_a_turn_takes_no_place_along() -> None:
    turns = Turns(1, 1, 60)
    async with turns:
        waits = asyncio.create_task(turns.__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(IssuerBusy):
            await turns.__aenter__()
        waits.cancel()
        await asyncio.wait({waits})
        again = asyncio.create_task(turns.__aenter__())
        await asyncio.sleep(0)
    await again


def test_a_trial_that_fails_begins_the_time_anew() -> None:
    breaker, now = Breaker(), 100.0
    for _ in range(FAILURES):
        breaker.failed(now)
    for _ in range(3):
        with pytest.raises(IssuerUnavailable):
            breaker.check(now)
        now += RETRY_S
        with breaker.question(now):
            with pytest.raises(IssuerUnavailable):
                breaker.check(now)
            breaker.failed(now)
    with pytest.raises(IssuerUnavailable), breaker.question(now):
        raise AssertionError
    now += RETRY_S
    with pytest.raises(KeyError), breaker.question(now):
        raise KeyError
    with breaker.question(now):  # a trial without an end is none
        breaker.heard()
    for question in (nullcontext(), breaker.question(now)):
        with question:
            breaker.check(now)


def test_what_is_kept_for_a_while_is_bounded() -> None:
    lately = Lately(10, 3)
    for number in range(5):
        lately.add(b"%d" % number, float(number))
    assert [lately.has(b"%d" % n, 5.0) for n in range(5)] == [False, False, True, True, True]
    lately.add(b"2", 6.0)
    lately.add(b"5", 6.0)
    assert [lately.has(b"%d" % n, 6.0) for n in range(2, 6)] == [True, False, True, True]
    assert len(lately) == 3
    assert not lately.has(b"4", 14.0)
