"""What is measured of stores and a bus, whatever they are made of."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.state.interface import Quota, StoreFull, StoreUnavailable
from app.state.local_bus import LocalBus
from app.state.measured import MeasuredBus, MeasuredStore
from app.state.memory import MemoryStore
from tests.support.cases import rows

Told = list[tuple[str, str | None]]


class _Gone(MemoryStore):
    """One that cannot be reached."""

    async def get(self, name: str) -> bytes | None:
        raise StoreUnavailable(name)

    def admit(self, quotas: Any) -> Any:
        raise StoreUnavailable(str(quotas))


class _Full(MemoryStore):
    """One without room."""

    async def set(self, name: str, *_: Any, **__: Any) -> None:
        raise StoreFull(name)


class _Later(MemoryStore):
    """One that has to be waited for when it counts."""

    def admit(self, quotas: Any) -> Any:
        async def later() -> Any:
            return super(_Later, self).admit(quotas)

        return later()


def measured(store: MemoryStore) -> tuple[MeasuredStore, Told]:
    told: Told = []

    def observe(operation: str, seconds: float, reason: str | None) -> None:
        assert 0 <= seconds < 60
        told.append((operation, reason))

    return MeasuredStore(store, observe), told


async def test_what_it_answers_is_what_the_store_answers() -> None:
    store, told = measured(MemoryStore())

    assert await store.take("a", b"1", ttl_s=9) is None
    kept = await store.take("a", b"2", ttl_s=9)
    assert kept is not None and kept.value == b"1"
    await store.set("a", b"3", ttl_s=9, owner="o")
    assert await store.replace("a", b"3", b"4", ttl_s=9, owner="o")
    assert await store.get("a") == b"4"
    await store.delete("a")
    assert await store.get("a") is None
    operations = ["take", "take", "set", "replace", "get", "delete", "get"]
    assert told == [(operation, None) for operation in operations]


@rows(
    "store, use, expected",
    ("gone", _Gone(), lambda store: store.get("a"), ("get", "unavailable")),
    ("full", _Full(), lambda store: store.set("a", b"", ttl_s=1), ("set", "full")),
)
async def test_what_fails_is_told_in_a_word(
    store: MemoryStore,
    use: Callable[[MeasuredStore], Awaitable[Any]],
    expected: tuple[str, str],
) -> None:
    wrapped, told = measured(store)
    with pytest.raises((StoreUnavailable, StoreFull)):
        await use(wrapped)

    assert told == [expected]


async def test_counting_is_measured_where_it_has_to_be_waited_for() -> None:
    at_once, nothing = measured(MemoryStore())
    later, told = measured(_Later())
    gone, failed = measured(_Gone())
    quotas = [Quota("a", 1, 60)]

    assert at_once.admit(quotas) is None
    coming: Any = later.admit(quotas)
    assert await coming is None
    with pytest.raises(StoreUnavailable):
        gone.admit(quotas)
    assert (nothing, told, failed) == ([], [("admit", None)], [("admit", "unavailable")])


async def test_a_bus_is_heard_as_before_and_what_is_published_is_measured() -> None:
    told: Told = []
    bus = MeasuredBus(LocalBus(), lambda operation, _, reason: told.append((operation, reason)))
    heard: list[bytes] = []
    end = bus.subscribe("topic", heard.append)
    await bus.publish("topic", b"1")
    end()
    await bus.publish("topic", b"2")

    assert heard == [b"1"]
    assert told == [("publish", None)] * 2
