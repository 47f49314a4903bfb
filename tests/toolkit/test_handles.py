"""Handles: kept for a while, for one owner, without lost changes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.state.interface import StoreUnavailable
from app.state.memory import MemoryStore
from app.toolkit.errors import ToolError
from app.toolkit.handles import MAX_TTL_S, MAX_VALUE_BYTES, Handles
from tests.support.cases import rows

ADA, EVE, NOBODY = ("i", "ada"), ("i", "eve"), (None, None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class _Slow(MemoryStore):
    """A store that lets others in before each of its steps, as one over a network does."""

    async def get(self, name: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get(name)


class _Contested(MemoryStore):
    """A store in which somebody else is always faster."""

    async def replace(self, *_: Any, **__: Any) -> bool:
        return False


class _Gone(MemoryStore):
    async def get(self, name: str) -> bytes | None:
        raise StoreUnavailable(f"no way to {name}")

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        raise StoreUnavailable(f"no way to {name} for {value!r}, {ttl_s}, {owner}")

    async def delete(self, name: str) -> None:
        raise StoreUnavailable(f"no way to {name}")


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def store(clock: Callable[[], float]) -> MemoryStore:
    return MemoryStore(clock=clock)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
async def test_a_value_comes_back_as_it_was(store: MemoryStore, value: Any) -> None:
    handles = Handles(store, ADA)
    handle = await handles.create("note", value, 60)
    assert handle.startswith("note_")
    assert await handles.get("note", handle) == value


async def test_handles_cannot_be_guessed_from_another_or_from_the_store(store: MemoryStore) -> None:
    handles = Handles(store, ADA)
    made = {await handles.create("note", 1, 60) for _ in range(100)}
    assert len(made) == 100
    assert {len(handle) for handle in made} == {len("note_") + 48}
    assert not any(handle in name for handle in made for name in store._entries._entries)


async def _error(handles: Handles, kind: str, handle: str) -> str:
    with pytest.raises(ToolError) as caught:
        await handles.get(kind, handle)
    with pytest.raises(ToolError) as also:
        await handles.update(kind, handle, lambda value: value)
    assert str(also.value) == str(caught.value)
    return str(caught.value)


async def test_unknown_expired_deleted_and_foreign_look_the_same(
    store: MemoryStore, clock: _Clock
) -> None:
    ada, eve = Handles(store, ADA), Handles(store, EVE)
    foreign, short = await ada.create("note", 1, 60), await ada.create("note", 2, 5)
    deleted = await ada.create("note", 3, 60)
    await ada.delete("note", deleted)
    await ada.delete("note", deleted)
    clock.now = 5

    said = [
        await _error(ada, "note", "note_00"),
        await _error(ada, "note", short),
        await _error(ada, "note", deleted),
        await _error(eve, "note", foreign),
        await _error(Handles(store, NOBODY), "note", foreign),
    ]
    sentence = (
        "There is no such note: the handle is unknown, has expired or belongs to somebody else. "
        "Create a new one."
    )
    assert said == [sentence] * 5
    await eve.delete("note", foreign)
    assert await ada.get("note", foreign) == 1


async def test_a_handle_of_one_kind_is_none_of_another(store: MemoryStore) -> None:
    handles = Handles(store, ADA)
    handle = await handles.create("note", 1, 60)
    await _error(handles, "order", handle)


async def test_callers_without_a_credential_share_what_they_know_the_handle_of(
    store: MemoryStore,
) -> None:
    handle = await Handles(store, NOBODY).create("note", 1, 60)
    assert await Handles(store, NOBODY).get("note", handle) == 1


async def test_an_update_begins_the_time_anew_and_a_look_does_not(
    store: MemoryStore, clock: _Clock
) -> None:
    handles = Handles(store, ADA)
    handle = await handles.create("note", 1, 10)
    clock.now = 6
    assert await handles.update("note", handle, lambda value: value + 1) == 2
    clock.now = 12
    assert await handles.get("note", handle) == 2
    clock.now = 16
    await _error(handles, "note", handle)


async def test_no_change_is_lost_when_many_change_a_value_at_once() -> None:
    handles = Handles(_Slow(), ADA)
    handle = await handles.create("count", 0, 60)
    await asyncio.gather(
        *(handles.update("count", handle, lambda value: value + 1) for _ in range(16))
    )
    assert await handles.get("count", handle) == 16


async def test_a_change_that_never_comes_through_is_an_error() -> None:
    handles = Handles(_Contested(), ADA)
    handle = await handles.create("count", 0, 60)
    with pytest.raises(ToolError, match="changed by others"):
        await handles.update("count", handle, lambda value: value + 1)


async def test_one_caller_cannot_take_all_the_room(store: MemoryStore) -> None:
    small = MemoryStore(max_entries=8)
    ada, eve, nobody = (Handles(small, who) for who in (ADA, EVE, NOBODY))
    kept = [await ada.create("note", 1, 60) for _ in range(2)]
    with pytest.raises(ToolError, match="too many are kept for you"):
        await ada.create("note", 1, 60)
    await eve.create("note", 1, 60)
    assert [await nobody.create("note", 1, 60) for _ in range(4)]
    with pytest.raises(ToolError, match="too many are kept for you"):
        await nobody.create("note", 1, 60)
    await ada.delete("note", kept[0])
    assert await ada.create("note", 1, 60)


async def test_a_value_that_grows_beyond_the_room_is_told_as_such() -> None:
    handles = Handles(MemoryStore(max_bytes=4000), ADA)
    handle = await handles.create("note", "a", 60)
    with pytest.raises(ToolError, match="no room for a larger note"):
        await handles.update("note", handle, lambda _: "a" * 2000)
    assert await handles.get("note", handle) == "a"


@rows(
    "kind, value, ttl_s, error",
    ("two words", "a note", 1, 60, ValueError),
    ("a long kind", "a" * 33, 1, 60, ValueError),
    ("no kind", "", 1, 60, ValueError),
    ("no time", "note", 1, 0, ValueError),
    ("for ever", "note", 1, MAX_TTL_S + 1, ValueError),
    ("not a number", "note", 1, float("nan"), ValueError),
    ("too large", "note", "x" * MAX_VALUE_BYTES, 60, ValueError),
    ("no JSON form", "note", object(), 60, TypeError),
    ("infinite", "note", float("inf"), 60, ValueError),
)
async def test_what_cannot_be_kept_is_refused(
    store: MemoryStore, kind: str, value: Any, ttl_s: float, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await Handles(store, ADA).create(kind, value, ttl_s)
    assert len(store) == 0


async def test_a_store_that_is_away_is_an_error_that_the_model_can_read() -> None:
    handles = Handles(_Gone(), ADA)
    for work in (
        handles.create("note", 1, 60),
        handles.get("note", "note_00"),
        handles.update("note", "note_00", lambda value: value),
        handles.delete("note", "note_00"),
    ):
        with pytest.raises(ToolError, match="try again later") as caught:
            await work
        assert isinstance(caught.value.__cause__, StoreUnavailable)
