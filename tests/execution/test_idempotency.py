"""Claims on calls: one runs, whoever dies and however many servers there are."""

import asyncio
from typing import Any

import pytest
import structlog

from app.execution.execution import Outcome
from app.execution.idempotency import GRACE_S, Claim, Claims, Known
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import InvalidParams, Unavailable
from app.state.interface import StoreFull, StoreUnavailable
from app.state.memory import MemoryStore
from tests.support.cases import rows

ADA = Principal(issuer="i", subject="ada")
ARGUMENTS: dict[str, Any] = {"a": 1}


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class _Gone(MemoryStore):
    """A store that answers until it is gone."""

    is_gone = False

    async def replace(self, *given: Any, **more: Any) -> bool:
        if self.is_gone:
            raise StoreUnavailable("gone")
        return await super().replace(*given, **more)


async def _claim(claims: Claims, key: str = "k", **changes: Any) -> Claim | Known:
    how = {"principal": ADA, "tool": "t", "arguments": ARGUMENTS, "remaining_s": 30.0, **changes}
    return await claims.claim(
        key,
        how["principal"],
        how["tool"],
        how["arguments"],
        remaining_s=how["remaining_s"],
        goes_on=how.get("goes_on", False),
    )


async def test_the_owner_that_dies_leaves_an_unknown_outcome_and_nothing_runs_again() -> None:
    clock = _Clock()
    store = MemoryStore(clock=clock)
    dead, alive = (Claims(store, ttl_s=86_400) for _ in range(2))
    assert isinstance(await _claim(dead), Claim)
    waiting = asyncio.create_task(_claim(alive))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done, "it may still come to an end"
    clock.now += 30 + GRACE_S + 1
    assert await waiting == Known(None, Outcome.TOOL_ERROR)
    for claims in (dead, alive):
        assert await _claim(claims) == Known(None, Outcome.TOOL_ERROR)


async def test_who_waits_on_another_server_gets_the_outcome() -> None:
    store = MemoryStore()
    one, other = (Claims(store, ttl_s=60) for _ in range(2))
    claim = await _claim(one)
    assert isinstance(claim, Claim)
    waiting = [asyncio.create_task(_claim(each)) for each in (one, other, other)]
    await asyncio.sleep(0)
    await claim.settle(b"{}", Outcome.OK)
    assert await asyncio.gather(*waiting) == [Known(b"{}", Outcome.OK)] * 3


async def test_of_many_that_wait_one_goes_on_when_nothing_came_of_the_first() -> None:
    store = MemoryStore()
    one, other = (Claims(store, ttl_s=60) for _ in range(2))
    first = await _claim(one)
    assert isinstance(first, Claim)
    waiting = {asyncio.create_task(_claim(each)) for each in (one, one, other, other)}
    await asyncio.sleep(0)
    await first.release()
    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    (second,) = (task.result() for task in done)
    assert isinstance(second, Claim)
    await second.settle(b"2", Outcome.OK)
    assert [await task for task in waiting] == [Known(b"2", Outcome.OK)] * 3


async def test_what_was_declared_unknown_stays_so_when_the_owner_comes_late() -> None:
    clock = _Clock()
    store = MemoryStore(clock=clock)
    claims = Claims(store, ttl_s=86_400)
    late = await _claim(claims)
    assert isinstance(late, Claim)
    clock.now += 30 + GRACE_S + 1
    assert await _claim(claims) == Known(None, Outcome.TOOL_ERROR)
    await late.settle(b"{}", Outcome.OK)
    assert await _claim(claims) == Known(None, Outcome.TOOL_ERROR)


async def test_without_the_store_nothing_runs_and_a_result_is_answered_all_the_same() -> None:
    store = _Gone()
    claims = Claims(store, ttl_s=60)
    claim = await _claim(claims)
    assert isinstance(claim, Claim)
    store.is_gone = True
    await claim.settle(b"{}", Outcome.OK)
    with pytest.raises(Unavailable):
        await _claim(claims, "other")


async def test_one_caller_cannot_take_the_room_of_all_outcomes() -> None:
    claims = Claims(MemoryStore(max_entries=8), ttl_s=60)
    for number in range(2):
        await _claim(claims, str(number))
    with pytest.raises(Unavailable, match="kept for you"):
        await _claim(claims, "one more")
    assert isinstance(await _claim(claims, "k", principal=ANONYMOUS), Claim)


@rows(
    "changes",
    ("another tool", {"tool": "u"}),
    ("another value", {"arguments": {"a": 2}}),
    ("another type", {"arguments": {"a": 1.0}}),
    ("one more", {"arguments": {"a": 1, "b": None}}),
    ("none", {"arguments": {}}),
)
async def test_a_key_stands_for_one_call(changes: dict[str, Any]) -> None:
    claims = Claims(MemoryStore(), ttl_s=60)
    claim = await _claim(claims)
    assert isinstance(claim, Claim)
    for _ in range(2):
        with pytest.raises(InvalidParams, match="another call"):
            await _claim(claims, **changes)
        await claim.settle(b"{}", Outcome.OK)


class _Slow(MemoryStore):
    """A store that answers when it may.

    Args:
        writes_first: Whether it has written already when it makes one wait.

    Attributes:
        asked: Set while somebody waits for an answer.
    """

    def __init__(self, *, writes_first: bool = True) -> None:
        super().__init__()
        self._writes_first = writes_first
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.is_slow = False

    async def replace(self, *given: Any, **more: Any) -> bool:
        done = self._writes_first and await super().replace(*given, **more)
        if self.is_slow:
            self.asked.set()
            await self.answers.wait()
        return done if self._writes_first else await super().replace(*given, **more)


class _Full(MemoryStore):
    """A store with room for small values alone."""

    async def set(self, name: str, value: bytes, **more: Any) -> None:
        if len(value) > 1000:
            raise StoreFull("large")
        await super().set(name, value, **more)


async def test_a_call_that_takes_longer_than_outcomes_are_kept_stays_claimed() -> None:
    clock = _Clock()
    store = MemoryStore(clock=clock)
    one, other = (Claims(store, ttl_s=60) for _ in range(2))
    claim = await _claim(one, remaining_s=300.0)
    assert isinstance(claim, Claim)
    clock.now += 200
    waiting = asyncio.create_task(_claim(other))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done, "it runs"
    await claim.settle(b"{}", Outcome.OK)
    assert await waiting == Known(b"{}", Outcome.OK)


@rows(
    "say, then",
    ("settled", lambda claim: claim.settle(b"{}", Outcome.OK), Known(b"{}", Outcome.OK)),
    ("lost", lambda claim: claim.lose(), Known(None, Outcome.TOOL_ERROR)),
    ("given back", lambda claim: claim.release(), None),
)
@rows("writes_first", ("written already", True), ("not yet", False))
async def test_what_came_of_a_call_is_written_down_whoever_is_cancelled_meanwhile(
    say: Any, then: Known | None, writes_first: bool
) -> None:
    store = _Slow(writes_first=writes_first)
    claims = Claims(store, ttl_s=60)
    claim = await _claim(claims)
    assert isinstance(claim, Claim)
    store.is_slow = True
    saying = asyncio.create_task(say(claim))
    await store.asked.wait()
    for _ in range(2):
        saying.cancel()
        await asyncio.sleep(0)
    store.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await saying
    with structlog.testing.capture_logs() as logs:
        await claims.stop(1)
        again = await _claim(claims)
    assert not logs
    assert again == then if then is not None else isinstance(again, Claim)


async def test_a_claim_that_is_cancelled_while_it_is_made_is_given_back() -> None:
    store = _Slow()
    claims = Claims(store, ttl_s=60)
    store.is_slow = True
    claiming = asyncio.create_task(_claim(claims))
    await store.asked.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    store.answers.set()
    assert isinstance(await asyncio.wait_for(_claim(claims), 5), Claim)


async def test_where_an_outcome_is_too_large_it_is_unknown_at_once() -> None:
    claims = Claims(_Full(), ttl_s=60)
    claim = await _claim(claims)
    assert isinstance(claim, Claim)
    waiting = asyncio.create_task(_claim(claims))
    await asyncio.sleep(0)
    with structlog.testing.capture_logs() as logs:
        await claim.settle(bytes(2000), Outcome.OK)
    assert [each["event"] for each in logs] == ["outcome_not_kept"]
    assert await asyncio.wait_for(waiting, 5) == Known(None, Outcome.TOOL_ERROR)


async def test_an_outcome_that_comes_too_late_is_told_to_the_log() -> None:
    clock = _Clock()
    store = MemoryStore(clock=clock)
    claims = Claims(store, ttl_s=86_400)
    late = await _claim(claims)
    assert isinstance(late, Claim)
    clock.now += 30 + GRACE_S + 1
    await _claim(claims)
    with structlog.testing.capture_logs() as logs:
        await late.settle(b"{}", Outcome.OK)
    assert [each["event"] for each in logs] == ["outcome_not_kept"]


async def test_who_stops_waiting_does_not_leave_the_others_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.execution.idempotency.FIRST_LOOK_S", 30.0)
    claims = Claims(MemoryStore(), ttl_s=60)
    claim = await _claim(claims)
    assert isinstance(claim, Claim)
    patient = asyncio.create_task(_claim(claims))
    await asyncio.sleep(0)
    impatient = asyncio.create_task(_claim(claims))
    for _ in range(3):
        await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    await claim.settle(b"{}", Outcome.OK)
    assert await asyncio.wait_for(patient, 5) == Known(b"{}", Outcome.OK)
    assert not claims._waiters


async def test_a_question_is_kept_for_repetitions_and_goes_on_with_its_state() -> None:
    clock = _Clock()
    claims = Claims(MemoryStore(clock=clock), ttl_s=86_400, open_ttl_s=60)
    headers = ((b"mcp-param-region", b"eu"),)
    for goes_on in (False, True):
        claim = await _claim(claims, goes_on=goes_on)
        assert isinstance(claim, Claim)
        await claim.ask(b"?", Outcome.INPUT_REQUIRED, headers)
        assert await _claim(claims) == Known(b"?", Outcome.INPUT_REQUIRED, headers)
    refused = await _claim(claims, goes_on=True)
    assert isinstance(refused, Claim)
    await refused.release()
    assert await _claim(claims) == Known(b"?", Outcome.INPUT_REQUIRED, headers)
    clock.now += 61
    assert isinstance(await _claim(claims), Claim), "its state has expired too"
