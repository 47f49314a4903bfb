"""What equal calls are, and how much is kept of them."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.execution.caching import ENTRY_BYTES, Key, ResultCache
from app.protocol.jsonrpc import canonical, loads

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner)
    ),
    max_leaves=12,
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same data with the members of its objects in another order."""
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(inner, chance) for key, inner in items}
    if isinstance(value, list):
        return [shuffled(inner, chance) for inner in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1, 1.0 and true are three."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(repr(one) == repr(other))


@given(JSON, st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_count(value: Any, chance: random.Random) -> None:
    assert canonical(value) == canonical(shuffled(value, chance))


@given(JSON, JSON)
def test_different_arguments_are_never_taken_for_equal(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == same(one, other)


@given(JSON)
def test_the_canonical_form_is_the_same_data(value: Any) -> None:
    assert same(loads(canonical(value)), value)


def _key(number: int) -> Key:
    return Key(b"t", is_draft=False, who=None, digest=number.to_bytes(4))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 900)), max_size=60))
def test_no_more_is_kept_than_there_is_room_for(puts: list[tuple[int, int]]) -> None:
    cache = ResultCache(4000, clock=lambda: 0.0)
    for number, size in puts:
        cache.put(_key(number), bytes(size), 10)
        kept = [found for other in range(21) if (found := cache.get(_key(other))) is not None]
        assert sum(len(result) + ENTRY_BYTES for result in kept) <= 4000
        assert cache.get(_key(number)) == bytes(size)


def test_a_result_that_is_larger_than_the_room_is_not_kept() -> None:
    cache = ResultCache(1000, clock=lambda: 0.0)
    cache.put(_key(1), bytes(100), 10)
    cache.put(_key(2), bytes(1000), 10)
    assert cache.get(_key(1)) == bytes(100) and cache.get(_key(2)) is None


def test_each_result_has_a_time_of_its_own() -> None:
    now = 0.0
    cache = ResultCache(10_000, clock=lambda: now)
    cache.put(_key(1), b"1", 10)
    cache.put(_key(2), b"2", 5)
    now = 5.0
    assert cache.get(_key(1)) == b"1" and cache.get(_key(2)) is None
    now = 10.0
    assert cache.get(_key(1)) is None
