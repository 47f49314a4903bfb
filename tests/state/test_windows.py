"""Sliding windows: exact, for several names in one step, and never more than there is room for."""

import tracemalloc
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.state.interface import Quota, StoreUnavailable, Wait
from app.state.memory import MemoryStore
from app.state.windows import LOOK, Window, Windows
from tests.support.cases import rows

PERIOD_S = 8.0
# Eighths are exact in floating point, so that the reference can be exact too.
instants = st.lists(st.integers(0, 64), max_size=60).map(
    lambda steps: [sum(steps[: place + 1]) / 8 for place in range(len(steps))]
)


def admitted(window: Window, capacity: int, times: Sequence[float]) -> list[float]:
    """The instants of those of `times` that the window lets through."""
    found = []
    for now in times:
        if window.wait_s(capacity, now) <= 0:
            window.add(now)
            found.append(now)
    return found


def reference(capacity: int, times: Sequence[float]) -> list[float]:
    """The same, slowly: everything is remembered, and the last period counted each time."""
    found: list[float] = []
    for now in times:
        if sum(now - before < PERIOD_S for before in found) < capacity:
            found.append(now)
    return found


@given(st.integers(1, 6), instants)
def test_a_window_lets_through_what_counting_everything_would(
    capacity: int, times: list[float]
) -> None:
    window = Window(PERIOD_S)

    found = admitted(window, capacity, times)

    assert found == reference(capacity, times)
    assert len(window) <= capacity


@given(st.integers(1, 6), instants)
def test_the_wait_ends_exactly_when_there_is_room(capacity: int, times: list[float]) -> None:
    window = Window(PERIOD_S)
    for now in times:
        wait_s = window.wait_s(capacity, now)
        if wait_s <= 0:
            window.add(now)
            continue
        assert wait_s <= PERIOD_S
        assert window.wait_s(capacity, now + wait_s) <= 0
        assert window.wait_s(capacity, now + wait_s - 1 / 8) > 0


@given(st.lists(st.tuples(st.integers(0, 64), st.integers(1, 6)), max_size=60))
def test_another_capacity_counts_what_was_let_through_before(
    steps: list[tuple[int, int]],
) -> None:
    """As a reload has it. Never more than the present capacity in the period before."""
    window, found, now = Window(PERIOD_S), list[float](), 0.0
    for step, capacity in steps:
        now += step / 8
        within = sum(now - before < PERIOD_S for before in found)
        room = window.wait_s(capacity, now) <= 0
        assert room == (within < capacity)
        if room:
            window.add(now)
            found.append(now)


@given(instants)
def test_a_window_is_over_when_its_last_admission_counts_no_longer(times: list[float]) -> None:
    window = Window(PERIOD_S)
    assert window.is_over(0.0)
    for place, now in enumerate(times):
        window.add(now)
        later = [*times[place + 1 :], now + PERIOD_S]
        assert window.is_over(later[0]) == (later[0] - now >= PERIOD_S)


def test_a_slow_caller_needs_little_memory_whatever_its_capacity() -> None:
    window = Window(PERIOD_S)
    admitted(window, 1_000_000, [number * PERIOD_S / 2 for number in range(1000)])

    assert len(window) <= 2


# -- several at once ----------------------------------------------------------------


def test_a_refused_call_costs_nothing_under_any_of_its_names() -> None:
    windows = Windows(100)
    narrow, wide = Quota("narrow", 1, 10.0), Quota("wide", 3, 10.0)

    assert windows.admit([wide, narrow], 0.0) is None
    for now in (1.0, 2.0, 3.0):
        assert windows.admit([wide, narrow], now) == Wait(1, 10.0 - now)

    assert windows.admit([wide], 4.0) is None
    assert windows.admit([wide], 5.0) is None
    assert windows.admit([wide], 6.0) == Wait(0, 4.0)


def test_of_several_that_refuse_the_one_that_has_room_last_is_told() -> None:
    windows = Windows(100)
    quotas = [Quota("a", 1, 5.0), Quota("b", 1, 20.0), Quota("c", 1, 10.0)]
    windows.admit(quotas, 0.0)

    wait = windows.admit(quotas, 1.0)

    assert wait == Wait(1, 19.0)
    assert windows.admit(quotas, 1.0 + wait.seconds) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 32), st.sets(st.sampled_from("abcd"), min_size=1)), max_size=60
    )
)
def test_names_that_are_forgotten_in_between_change_nothing(
    steps: list[tuple[int, set[str]]],
) -> None:
    """The reference never forgets; of four names with periods of their own some always end."""
    windows, now = Windows(100), 0.0
    found: dict[str, list[float]] = {name: [] for name in "abcd"}
    rates = {"a": (1, 1.0), "b": (2, 4.0), "c": (1, 8.0), "d": (3, 2.0)}
    for step, names in steps:
        now += step / 8
        free = all(
            sum(now - before < rates[name][1] for before in found[name]) < rates[name][0]
            for name in names
        )
        wait = windows.admit([Quota(name, *rates[name]) for name in sorted(names)], now)
        assert (wait is None) == free
        if free:
            for name in names:
                found[name].append(now)


# -- bounds -------------------------------------------------------------------------


def test_names_whose_time_is_over_make_room_without_a_long_search() -> None:
    """More go than come, so a flood of names that ends leaves nothing behind."""
    windows = Windows(1000)
    for number in range(1000):
        windows.admit([Quota(f"first {number}", 1, 10.0)], 0.0)
    assert len(windows) == 1000

    for number in range(1000 // LOOK):
        windows.admit([Quota(f"then {number}", 1, 10.0)], 10.0)

    assert len(windows) == 1000 // LOOK


def test_when_every_place_is_taken_a_new_name_is_refused_and_the_others_go_on() -> None:
    windows = Windows(4)
    for name in "abcd":
        windows.admit([Quota(name, 2, 10.0)], 0.0)

    with pytest.raises(StoreUnavailable, match=r"full \(4 names\)"):
        windows.admit([Quota("e", 2, 10.0)], 1.0)
    with pytest.raises(StoreUnavailable):
        windows.admit([Quota("a", 2, 10.0), Quota("e", 2, 10.0)], 1.0)

    assert windows.admit([Quota("a", 2, 10.0)], 2.0) is None, "the refused one has cost nothing"
    assert windows.admit([Quota("a", 2, 10.0)], 3.0) == Wait(0, 7.0)
    assert windows.admit([Quota("e", 2, 10.0)], 10.0) is None


def test_strangers_leave_room_for_those_who_are_known() -> None:
    windows = Windows(100)
    refused = 0
    for number in range(500):
        try:
            windows.admit([Quota(f"stranger {number}", 1, 10.0, is_anonymous=True)], 0.0)
        except StoreUnavailable:
            refused += 1
    assert (len(windows), refused) == (50, 450)

    for number in range(50):
        assert windows.admit([Quota(f"known {number}", 1, 10.0)], 1.0) is None
    assert windows.admit([Quota("stranger", 1, 10.0, is_anonymous=True)], 20.0) is None


@rows("is_anonymous", ("addresses", True), ("subjects", False))
def test_a_flood_of_names_takes_bounded_memory(is_anonymous: bool) -> None:
    now = 0.0
    store = MemoryStore(clock=lambda: now, max_entries=2000)
    tracemalloc.start()
    try:
        for number in range(20_000):
            now += 0.001
            with suppress(StoreUnavailable):
                store.admit([Quota(f"{number:040}", 600, 60.0, is_anonymous)])
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2000 * 1000, f"{used / 2000:.0f} bytes a name"
