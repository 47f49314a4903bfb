"""The store in memory."""

import asyncio
from collections.abc import Callable

import pytest

from app.state.interface import Store, StoreUnavailable
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
