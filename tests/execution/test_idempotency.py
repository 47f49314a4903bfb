"""Claims on calls: one runs, whoever dies and however many servers there are."""

import asyncio
from typing import Any

import pytest

from app.execution.execution import Outcome
from app.execution.idempotency import GRACE_S, Claim, Claims, Known
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import InvalidParams, Unavailable
from app.state.interface import StoreUnavailable
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
        key, how["principal"], how["tool"], how["arguments"], remaining_s=how["remaining_s"]
    )


async def test_the_owner_that_dies_leaves_an_unknown_outcome_and_nothing_runs_again() -> None:
    store, clock = MemoryStore(), _Clock()
    dead, alive = (Claims(store, ttl_s=86_400, clock=clock) for _ in range(2))
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
    store, clock = MemoryStore(), _Clock()
    claims = Claims(store, ttl_s=86_400, clock=clock)
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
