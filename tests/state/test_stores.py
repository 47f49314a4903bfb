"""What every store does, wherever it keeps things."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.backing import State
from app.state.entries import PART_OF_ONE
from app.state.interface import Kept, Quota, Store, StoreFull, StoreUnavailable, Wait
from app.state.memory import MemoryStore
from app.state.redis_store import ANONYMOUS_LEDGERS, RedisStore
from tests.state.inside import of_redis
from tests.support.cases import rows
from tests.support.waiting import Deadline

LONG_S = 60.0
_runs = itertools.count()


async def gone(store: Store, name: str) -> None:
    """Wait until a value is there no longer."""
    deadline = Deadline()
    while await store.get(name) is not None:
        assert not deadline.expired, f"{name} is still there"
        await asyncio.sleep(0.005)


def small(
    state: State, max_entries: int, max_bytes: int = 1_000_000, *, part: str = "small:"
) -> Store:
    """A store with little room, beside the others of a state."""
    if not state.is_shared:
        return MemoryStore(max_entries=max_entries, max_bytes=max_bytes)
    kept: Any = of_redis(state.kept)
    return RedisStore(kept._link, kept._prefix + part, max_entries=max_entries, max_bytes=max_bytes)


# -- values -------------------------------------------------------------------------


async def test_a_value_is_there_for_every_server_until_its_time(fleet: list[State]) -> None:
    one, other = (state.kept for state in fleet)
    assert await one.get("a") is None
    await one.set("a", b"1\n\x00\xff", ttl_s=LONG_S)
    assert await other.get("a") == b"1\n\x00\xff"
    await other.set("a", b"", ttl_s=0.05)
    assert await one.get("a") in {b"", None}
    await gone(one, "a")


async def test_stores_of_one_state_know_nothing_of_each_other(fleet: list[State]) -> None:
    state = fleet[0]
    await state.kept.set("a", b"1", ttl_s=LONG_S)
    for other in (state.outcomes, state.sessions, state.ended, state.replays, state.control):
        assert await other.get("a") is None


async def test_a_value_can_be_forgotten_with_what_is_counted_of_it(fleet: list[State]) -> None:
    store = small(fleet[0], max_entries=PART_OF_ONE)
    for _ in range(3):
        await store.set("a", b"1", ttl_s=LONG_S, owner="ada")
        with pytest.raises(StoreFull):
            await store.set("b", b"1", ttl_s=LONG_S, owner="ada")
        await store.delete("a")
        await store.delete("a")
        assert await store.get("a") is None


async def test_a_value_is_replaced_only_where_it_is_the_one_expected(fleet: list[State]) -> None:
    one, other = (state.kept for state in fleet)
    assert not await one.replace("a", b"1", b"2", ttl_s=LONG_S)
    assert await one.replace("a", None, b"1", ttl_s=LONG_S, owner="ada")
    assert not await other.replace("a", None, b"2", ttl_s=LONG_S, owner="ada")
    assert not await other.replace("a", b"", b"2", ttl_s=LONG_S, owner="ada")
    assert await one.get("a") == b"1"
    assert await other.replace("a", b"1", b"2", ttl_s=0.05, owner="ada")
    await gone(one, "a")
    assert await one.replace("a", None, b"3", ttl_s=LONG_S, owner="ada")


async def test_who_finds_a_name_taken_gets_what_is_there_and_its_time(fleet: list[State]) -> None:
    one, other = (state.outcomes for state in fleet)
    assert await one.take("a", b"mine", ttl_s=LONG_S, owner="ada") is None
    for store in (one, other):
        found = await store.take("a", b"yours", ttl_s=2 * LONG_S, owner="ada")
        assert found is not None
        assert found == Kept(b"mine", found.left_s)
        assert LONG_S - 10 < found.left_s <= LONG_S


async def test_of_many_who_want_the_same_name_one_gets_it(fleet: list[State]) -> None:
    takers = (fleet[number % 2].kept for number in range(64))
    done = await asyncio.gather(
        *(
            store.replace("a", None, b"%d" % number, ttl_s=LONG_S)
            if number % 3
            else store.take("a", b"%d" % number, ttl_s=LONG_S)
            for number, store in enumerate(takers)
        )
    )
    assert sum(each is True or each is None for each in done) == 1


async def test_what_one_owner_keeps_is_bounded_by_its_part(fleet: list[State]) -> None:
    store = small(fleet[0], max_entries=8)
    for name in "ab":
        await store.set(name, b"1", ttl_s=LONG_S, owner="ada")
    for write in (store.set, store.take):
        with pytest.raises(StoreFull, match="its owner"):
            await write("c", b"1", ttl_s=LONG_S, owner="ada")
    with pytest.raises(StoreFull, match="its owner"):
        await store.replace("c", None, b"1", ttl_s=LONG_S, owner="ada")
    await store.set("b", b"2", ttl_s=0.05, owner="ada")
    await store.set("d", b"1", ttl_s=LONG_S, owner="eve")
    await store.set("e", b"1", ttl_s=LONG_S)
    for name in ("f", "g", "h", "i"):
        if isinstance(store, MemoryStore):
            break  # where all together are bounded, they have reached that
        await store.set(name, b"1", ttl_s=LONG_S, owner="")
    await gone(store, "b")
    await store.set("c", b"1", ttl_s=LONG_S, owner="ada")


async def test_what_one_owner_keeps_is_bounded_by_bytes_as_well(fleet: list[State]) -> None:
    store = small(fleet[0], max_entries=1000, max_bytes=8000)
    await store.set("a", bytes(1000), ttl_s=LONG_S, owner="ada")
    with pytest.raises(StoreFull):
        await store.set("b", bytes(500), ttl_s=LONG_S, owner="ada")
    with pytest.raises(StoreFull):
        await store.replace("a", bytes(1000), bytes(2000), ttl_s=LONG_S, owner="ada")
    assert await store.get("a") == bytes(1000)
    await store.set("a", bytes(100), ttl_s=LONG_S, owner="ada")
    await store.set("b", bytes(500), ttl_s=LONG_S, owner="ada")


_names = st.sampled_from("abcdef")
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("get"), _names, st.just(0)),
        st.tuples(st.just("delete"), _names, st.just(0)),
        st.tuples(
            st.sampled_from(["set", "take", "replace", "replace_another"]),
            _names,
            st.integers(0, 1500),
        ),
        st.tuples(st.just("admit"), st.sets(_names, min_size=1, max_size=3), st.integers(1, 4)),
    ),
    max_size=40,
)
_OWNERS = {"a": "ada", "b": "ada", "c": "ada", "d": "", "e": "", "f": None}


class Reference:
    """The same, slowly and obviously, while no time passes: values, rooms and admissions."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.values: dict[str, bytes] = {}
        self.admitted: Counter[str] = Counter()
        self._max = {"ada": (max_entries // 4, max_bytes // 4)}
        self._max[""] = (max_entries // 2, max_bytes // 2)

    def fits(self, name: str, value: bytes) -> bool:
        """Whether there is room for a value under a name."""
        owner = _OWNERS[name]
        if owner is None:
            return True
        others = [each for each in self.values if _OWNERS[each] == owner and each != name]
        size = sum(len(self.values[each]) + 1 + 300 for each in others) + len(value) + 1 + 300
        count, size_max = self._max[owner]
        return len(others) + 1 <= count and size <= size_max

    def admit(self, names: list[str], capacity: int) -> bool:
        """One admission under each, or under none."""
        if any(self.admitted[name] >= capacity for name in names):
            return False
        self.admitted.update(names)
        return True


class Both:
    """A store, reached from two servers in turns, and the reference beside it."""

    def __init__(self, fleet: list[State]) -> None:
        max_entries, max_bytes = 8, 8000
        self.reference = Reference(max_entries, max_bytes)
        self._run = f"run-{next(_runs)}:"
        self._stores = [small(fleet[0], max_entries, max_bytes, part=self._run)] * 2
        if fleet[0].is_shared:
            self._stores[1] = small(fleet[1], max_entries, max_bytes, part=self._run)

    @property
    def store(self) -> Store:
        self._stores.reverse()
        return self._stores[0]

    async def get(self, name: str, _: int = 0) -> None:
        assert await self.store.get(name) == self.reference.values.get(name)

    async def delete(self, name: str, _: int = 0) -> None:
        await self.store.delete(name)
        self.reference.values.pop(name, None)

    async def admit(self, named: set[str], capacity: int) -> None:
        names = sorted(named)
        wait = await admit(
            self.store, *(Quota(self._run + name, capacity, LONG_S) for name in names)
        )
        assert (wait is None) == self.reference.admit(names, capacity)
        if wait is not None:
            assert self.reference.admitted[names[wait.quota]] >= capacity
            assert 0 < wait.seconds <= LONG_S

    async def set(self, name: str, size: int) -> None:
        await self._write(name, size, lambda how: self.store.set(name, bytes(size), **how))

    async def take(self, name: str, size: int) -> None:
        found = self.reference.values.get(name)
        if found is None:
            await self._write(name, size, lambda how: self.store.take(name, bytes(size), **how))
            return
        kept = await self.store.take(name, bytes(size), ttl_s=LONG_S, owner=_OWNERS[name])
        assert kept is not None and kept.value == found

    async def replace(self, name: str, size: int) -> None:
        before = self.reference.values.get(name)
        await self._write(
            name, size, lambda how: self.store.replace(name, before, bytes(size), **how)
        )

    async def replace_another(self, name: str, size: int) -> None:
        for before in {b"another", None} - {self.reference.values.get(name)}:
            done = await self.store.replace(
                name, before, bytes(size), ttl_s=LONG_S, owner=_OWNERS[name]
            )
            assert not done

    async def _write(
        self, name: str, size: int, write: Callable[[dict[str, Any]], Awaitable[object]]
    ) -> None:
        how = {"ttl_s": LONG_S, "owner": _OWNERS[name]}
        if not self.reference.fits(name, bytes(size)):
            with pytest.raises(StoreFull):
                await write(how)
        else:
            assert await write(how) in {True, None}
            self.reference.values[name] = bytes(size)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_steps)
async def test_a_store_does_what_an_obvious_one_would(
    fleet: list[State], steps: list[tuple[str, Any, int]]
) -> None:
    both = Both(fleet)
    for what, name, size in steps:
        await getattr(both, what)(name, size)
    for name in _OWNERS:
        await both.get(name)


# -- quotas -------------------------------------------------------------------------


async def admit(store: Store, *quotas: Quota) -> Wait | None:
    """One admission, wherever the store is."""
    answer = store.admit(quotas)
    return await answer if asyncio.iscoroutine(answer) else answer


async def test_of_many_at_once_as_many_are_admitted_as_have_room(fleet: list[State]) -> None:
    quota = Quota("n", 10, LONG_S)
    done = await asyncio.gather(*(admit(fleet[number % 2].limits, quota) for number in range(64)))
    assert sum(each is None for each in done) == 10
    assert all(0 < each.seconds <= LONG_S for each in done if each is not None)


async def test_a_refused_call_costs_nothing_under_any_of_its_names(fleet: list[State]) -> None:
    store = fleet[0].limits
    narrow, wide = Quota("narrow", 1, LONG_S), Quota("wide", 3, 2 * LONG_S)
    assert await admit(store, wide, narrow) is None
    for _ in range(3):
        refused = await admit(store, wide, narrow)
        assert refused is not None and refused.quota == 1
        assert LONG_S - 10 < refused.seconds <= LONG_S
    assert await admit(store, wide) is None
    assert await admit(store, wide) is None
    refused = await admit(store, wide)
    assert refused is not None and refused.seconds > LONG_S


async def test_another_capacity_counts_what_was_let_through_before(fleet: list[State]) -> None:
    store = fleet[0].limits
    for _ in range(3):
        assert await admit(store, Quota("n", 3, LONG_S)) is None
    assert await admit(store, Quota("n", 3, LONG_S)) is not None
    assert await admit(store, Quota("n", 5, LONG_S)) is None
    assert await admit(store, Quota("n", 2, LONG_S)) is not None
    assert await admit(store, Quota("n", 5, LONG_S)) is None
    assert await admit(store, Quota("n", 5, LONG_S)) is not None


async def test_a_window_slides_and_the_wait_ends_when_there_is_room(fleet: list[State]) -> None:
    """An admission falls between asking for it and being told of it, by one clock for both."""
    store, period_s, capacity = fleet[0].limits, 0.15, 3
    asked, told = list[float](), list[float]()
    deadline = Deadline(10)
    while len(told) < 5 * capacity:
        assert not deadline.expired
        before = time.monotonic()
        wait = await admit(store, Quota("n", capacity, period_s))
        after = time.monotonic()
        if wait is None:
            asked.append(before)
            told.append(after)
        else:
            assert wait.seconds <= period_s
            await asyncio.sleep(wait.seconds)
    for early, late in zip(asked, told[capacity:], strict=False):
        assert late - early >= period_s, "one too many in a period"
    # None is refused that has room: three in each period, and the waits between them.
    assert told[-1] - asked[0] < 5 * period_s + 3.0


async def test_strangers_leave_room_for_those_who_are_known(fleet: list[State]) -> None:
    store = small(fleet[0], max_entries=4 * ANONYMOUS_LEDGERS)
    refused = 0
    for number in range(200):
        try:
            await admit(store, Quota(f"stranger {number}", 1, LONG_S, is_anonymous=True))
        except StoreUnavailable:
            refused += 1
    assert 200 - 2 * ANONYMOUS_LEDGERS <= refused < 200
    for number in range(20):
        assert await admit(store, Quota(f"known {number}", 1, LONG_S)) is None
    taken = Quota("stranger 0", 2, LONG_S, is_anonymous=True)
    assert await admit(store, taken) is None, "one that has its place is counted on"


async def test_names_of_strangers_whose_time_is_over_make_room(fleet: list[State]) -> None:
    store = small(fleet[0], max_entries=2 * ANONYMOUS_LEDGERS)
    deadline = Deadline()
    for number in range(100):
        while True:
            try:
                await admit(store, Quota(f"stranger {number}", 1, 0.02, is_anonymous=True))
            except StoreUnavailable:
                assert not deadline.expired
                await asyncio.sleep(0.005)
            else:
                break


@rows("capacity", ("a small one", 3), ("a large one", 1_000_000))
async def test_a_window_keeps_no_more_than_falls_into_it(fleet: list[State], capacity: int) -> None:
    state = fleet[0]
    if not state.is_shared:
        pytest.skip("tests/state/test_windows.py has it of memory")
    store: Any = of_redis(state.limits)
    for _ in range(200):
        await admit(store, Quota("n", capacity, 0.02))
        await asyncio.sleep(0.001)
    length = await store._link.command("", "LLEN", store._window(Quota("n", 1, 1.0)))
    assert length <= 40


@rows("ahead_s, is_admitted", ("within the period", 30, False), ("far ahead", 300, True))
async def test_a_clock_that_was_set_back_refuses_nobody_for_long(
    fleet: list[State], ahead_s: int, is_admitted: bool
) -> None:
    state = fleet[0]
    if not state.is_shared:
        pytest.skip("the clock of memory only grows")
    store: Any = of_redis(state.limits)
    quota = Quota("n", 1, LONG_S)
    key = store._window(quota)
    then_us = int((time.time() + ahead_s) * 1_000_000)
    await store._link.command("", "RPUSH", key, then_us)
    await store._link.command("", "PEXPIRE", key, 600_000)
    wait = await admit(store, quota)
    assert (wait is None) == is_admitted
    assert wait is None or wait.seconds <= LONG_S
