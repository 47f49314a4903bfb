"""Questions of one run: what joins them, what is remembered, what the state is good for."""

import asyncio
import copy
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.execution.asking import Asking, Desk, is_pause
from app.principal import Principal
from app.protocol.asking import Retry
from app.protocol.errors import InvalidParams, Unavailable
from app.protocol.sealed import KeyRing
from app.state.memory import MemoryStore
from app.toolkit.asking import Pause

ALL: dict[str, Any] = {
    "elicitation": {"url": {}, "form": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
ADA, EVE = Principal(issuer="i", subject="ada"), Principal(issuer="i", subject="eve")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


class Name(BaseModel):
    name: str


class _Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _desk(clock: _Clock | None = None, max_entries: int = 9) -> Desk:
    return Desk(
        KeyRing([b"k" * 32]),
        MemoryStore(clock=clock or _Clock(), max_entries=max_entries),
        ask_ttl_s=60,
        clock=clock or _Clock(),
    )


def _begin(desk: Desk, retry: Retry | None = None, principal: Principal = ADA) -> Asking:
    return desk.begin("tool", {"a": 1}, principal, ALL, retry)


async def _asked(asking: Asking, *work: Any) -> tuple[list[str], str]:
    """The keys that are asked, and the state."""
    with pytest.raises(Pause):
        await asyncio.gather(*work)
    assert asking.is_paused
    requests, state = asking.result()
    return list(requests), state


def _accept(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def test_questions_of_nested_tasks_join_and_later_ones_do_not() -> None:
    asking = _begin(_desk())
    later = asyncio.Event()

    async def nested(key: str, depth: int) -> None:
        if depth:
            await asyncio.gather(nested(key, depth - 1))
        else:
            await asking.elicit(key, "Who?", Name)

    async def after() -> None:
        await later.wait()
        await asking.elicit("after", "Who?", Name)

    keys, _ = await _asked(
        asking, asking.roots("roots"), nested("near", 1), nested("far", 3), after()
    )
    assert keys == ["roots", "near", "far"]
    later.set()


async def test_an_effect_under_way_is_remembered_before_the_pause() -> None:
    desk = _desk()
    asking = _begin(desk)
    done: list[str] = []

    async def effect() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("done")
        return "paid"

    _, state = await _asked(asking, asking.elicit("who", "Who?", Name), asking.once("pay", effect))

    again = _begin(desk, Retry({"who": _accept("Ada")}, state))
    assert await again.once("pay", effect) == "paid"
    assert (await again.elicit("who", "Who?", Name)).data == Name(name="Ada")
    assert done == ["done"]


async def test_no_effect_begins_after_the_pause() -> None:
    asking = _begin(_desk())
    await _asked(asking, asking.elicit("who", "Who?", Name))
    with pytest.raises(Pause):
        await asking.once("pay", lambda: pytest.fail("it was called"))


async def test_an_effect_that_fails_is_not_remembered_and_two_at_once_are_one() -> None:
    asking = _begin(_desk())

    def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await asking.once("pay", fail)
    counted = iter(range(5))
    assert (
        await asyncio.gather(*(asking.once("pay", counted.__next__) for _ in range(3))) == [0] * 3
    )


async def test_what_is_remembered_must_have_a_json_form() -> None:
    with pytest.raises(TypeError):
        await _begin(_desk()).once("x", object)


async def test_a_question_that_was_given_up_is_not_asked() -> None:
    asking = _begin(_desk())
    given_up = asyncio.ensure_future(asking.elicit("a", "Who?", Name))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    keys, _ = await _asked(asking, asking.elicit("b", "Who?", Name))
    assert keys == ["b"]


async def test_the_same_question_twice_is_one_question() -> None:
    asking = _begin(_desk())
    keys, _ = await _asked(
        asking, asking.elicit("a", "Who?", Name), asking.elicit("a", "Who?", Name)
    )
    assert keys == ["a"]


def test_a_pause_may_come_in_groups() -> None:
    assert is_pause(Pause())
    assert is_pause(BaseExceptionGroup("", [Pause(), BaseExceptionGroup("", [Pause()])]))
    assert not is_pause(BaseExceptionGroup("", [Pause(), ValueError()]))
    assert not is_pause(ValueError())


@given(st.dictionaries(st.text("abc.", min_size=1, max_size=4), JSON, max_size=4))
async def test_what_is_remembered_comes_back_as_it_was(values: dict[str, Any]) -> None:
    desk = _desk()
    asking = _begin(desk)
    for key, value in values.items():
        await asking.once(key, partial(copy.copy, value))
    _, state = await _asked(asking, asking.roots("r"))

    again = _begin(desk, Retry({}, state))
    for key, value in values.items():
        assert await again.once(key, lambda: pytest.fail("it was called")) == value


async def test_a_state_opens_for_the_same_call_alone() -> None:
    clock = _Clock()
    desk = _desk(clock)
    asking = _begin(desk)
    _, state = await _asked(asking, asking.roots("r"))
    retry = Retry({}, state)

    assert _begin(desk, retry).has_asked
    for tool, arguments, principal in (
        ("other", {"a": 1}, ADA),
        ("tool", {"a": 2}, ADA),
        ("tool", {}, ADA),
        ("tool", {"a": 1}, EVE),
        ("tool", {"a": 1}, Principal()),
    ):
        with pytest.raises(InvalidParams):
            desk.begin(tool, arguments, principal, ALL, retry)
    with pytest.raises(InvalidParams):
        _begin(Desk(KeyRing([b"o" * 32]), desk.store, ask_ttl_s=60, clock=clock), retry)
    clock.now += 60
    with pytest.raises(InvalidParams):
        _begin(desk, retry)


async def test_of_many_who_redeem_a_state_one_succeeds() -> None:
    desk = _desk()
    outcomes = await asyncio.gather(
        *(desk.redeem("state") for _ in range(64)), return_exceptions=True
    )
    assert [each for each in outcomes if each is None] == [None]
    assert sum(isinstance(each, InvalidParams) for each in outcomes) == 63


async def test_a_state_that_cannot_be_looked_up_is_not_taken() -> None:
    desk = _desk(max_entries=0)
    with pytest.raises(Unavailable):
        await desk.redeem("state")
