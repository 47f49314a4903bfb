"""The store in memory."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.state.entries import ENTRY_BYTES
from app.state.interface import Store, StoreFull, StoreUnavailable
from app.state.memory import MemoryStore


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def store(clock: Callable[[], float]) -> Store:
    return MemoryStore(clock=clock, max_entries=3)


async def test_a_value_is_there_until_its_time(store: Store, clock: _Clock) -> None:
    assert await store.get("a") is None
    await store.set("a", b"1", ttl_s=10)
    clock.now = 9.9
    assert await store.get("a") == b"1"
    clock.now = 10
    assert await store.get("a") is None


async def test_a_new_value_replaces_value_and_time(store: Store, clock: _Clock) -> None:
    await store.set("a", b"1", ttl_s=10)
    clock.now = 5
    await store.set("a", b"2", ttl_s=10)
    clock.now = 14
    assert await store.get("a") == b"2"


async def test_a_value_can_be_forgotten(store: Store) -> None:
    await store.set("a", b"1", ttl_s=10)
    await store.delete("a")
    await store.delete("a")
    assert await store.get("a") is None


async def test_a_full_store_says_so_and_forgets_nothing(store: Store, clock: _Clock) -> None:
    for name in "abc":
        await store.set(name, b"1", ttl_s=10)
    with pytest.raises(StoreUnavailable):
        await store.set("d", b"1", ttl_s=10)
    await store.set("a", b"2", ttl_s=20)
    assert await store.get("c") == b"1"
    clock.now = 10
    await store.set("d", b"1", ttl_s=10)
    assert await store.get("a") == b"2"


async def test_a_value_is_replaced_only_where_it_is_the_one_expected(
    store: Store, clock: _Clock
) -> None:
    assert not await store.replace("a", b"1", b"2", ttl_s=10)
    assert await store.replace("a", None, b"1", ttl_s=10)
    assert not await store.replace("a", None, b"2", ttl_s=10)
    assert await store.get("a") == b"1"
    clock.now = 5
    assert await store.replace("a", b"1", b"2", ttl_s=10)
    clock.now = 14
    assert await store.get("a") == b"2"
    clock.now = 15
    assert await store.replace("a", None, b"3", ttl_s=10)


async def test_of_many_who_replace_the_same_value_one_succeeds(store: Store) -> None:
    done = await asyncio.gather(
        *(store.replace("a", None, b"%d" % number, ttl_s=10) for number in range(64))
    )
    assert sum(done) == 1


async def test_a_store_is_full_by_bytes_as_well(clock: _Clock) -> None:
    store = MemoryStore(clock=clock, max_bytes=2000)
    await store.set("a", bytes(1000), ttl_s=10)
    with pytest.raises(StoreFull):
        await store.set("b", bytes(1000), ttl_s=10)
    with pytest.raises(StoreFull):
        await store.set("a", bytes(2000), ttl_s=10)
    assert await store.get("a") == bytes(1000)
    clock.now = 10
    await store.set("b", bytes(1000), ttl_s=10)


async def test_what_one_owner_keeps_is_bounded_by_its_part(clock: _Clock) -> None:
    store = MemoryStore(clock=clock, max_entries=8)
    for name in "ab":
        await store.set(name, b"1", ttl_s=10, owner="ada")
    with pytest.raises(StoreFull, match="its owner"):
        await store.set("c", b"1", ttl_s=10, owner="ada")
    await store.set("b", b"2", ttl_s=5, owner="ada")
    await store.set("c", b"1", ttl_s=10, owner="eve")
    clock.now = 5
    await store.set("d", b"1", ttl_s=10, owner="ada")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "delete", "replace", "wait"]),
            st.sampled_from("abcd"),
            st.integers(0, 1500),
            st.sampled_from([None, "", "ada", "eve"]),
        ),
        max_size=60,
    )
)
async def test_what_is_taken_is_counted_exactly(
    steps: list[tuple[str, str, int, str | None]],
) -> None:
    clock = _Clock()
    store = MemoryStore(clock=clock, max_entries=6, max_bytes=6000)
    for what, name, size, owner in steps:
        with contextlib.suppress(StoreFull):
            if what == "set":
                await store.set(name, bytes(size), ttl_s=1 + size % 5, owner=owner)
            elif what == "replace":
                before = await store.get(name)
                await store.replace(name, before, bytes(size), ttl_s=1 + size % 5, owner=owner)
            elif what == "delete":
                await store.delete(name)
            else:
                clock.now += 1
        entries = store._entries
        kept = entries._entries.values()
        assert entries._all.count == len(kept) <= 6
        assert entries._all.size == sum(
            len(name) + len(entry.value) + ENTRY_BYTES for name, entry in entries._entries.items()
        )
        assert entries._all.size <= 6000
        for owner_, room in entries._rooms.items():
            assert room.count == sum(entry.owner == owner_ for entry in kept) > 0
