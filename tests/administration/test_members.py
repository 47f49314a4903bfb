"""Heartbeats: who is there, what they disagree about, and what hostile ones can do."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.fleet.members import (
    ALIVE_S,
    CLOCK_S,
    MAX_BEAT,
    MAX_MEMBERS,
    Member,
    Members,
    disagreements,
    has_one_catalog,
    parse_member,
)
from tests.auth.desk import Clock
from tests.support.cases import rows

ONE = Member(
    replica="host-1",
    pid=1,
    started=1_000_000.0,
    clock=1_000_000.0,
    version="0.1.0",
    configuration="c" * 16,
    keys=("a" * 16,),
    catalog="d" * 16,
    revision=7,
    reloads=0,
)


def other(**changes: Any) -> Member:
    return replace(ONE, **{"replica": "host-2", **changes})


def heard(*members: Member, clock: Clock | None = None) -> Members:
    clock = clock or _clock()
    found = Members(ONE.name, clock=clock, monotonic=clock)
    found.is_here(ONE)
    for member in members:
        assert found.hear(member.encode())
    return found


def _clock() -> Clock:
    clock = Clock()
    clock.now = ONE.clock
    return clock


def test_a_heartbeat_is_read_as_it_was_sent() -> None:
    for member in (ONE, other(draining=True), other(leaving=True, keys=())):
        assert parse_member(member.encode()) == member


def test_a_newer_version_may_say_more() -> None:
    said = {**orjson.loads(ONE.encode()), "mood": "good"}
    assert parse_member(orjson.dumps(said)) == ONE


scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@given(st.binary(max_size=100) | values.map(orjson.dumps))
def test_garbage_is_not_heard(data: bytes) -> None:
    assert not heard().hear(data)


@rows(
    "change",
    ("no name", {"replica": ""}),
    ("control characters", {"replica": "a\nb"}),
    ("a name that is a list", {"replica": ["a"]}),
    ("an endless name", {"replica": "a" * 81}),
    ("markup", {"replica": "[red]a"}),
    ("a version that is none", {"version": "1 <script>"}),
    ("a fingerprint that is none", {"configuration": "x"}),
    ("many keys", {"keys": ["a" * 16] * 33}),
    ("keys in a text", {"keys": "a" * 16}),
    ("a key that is a number", {"keys": [1]}),
    ("a revision that is true", {"revision": True}),
    ("a revision without end", {"revision": 1 << 60}),
    ("a revision below zero", {"revision": -1}),
    ("a clock that is a word", {"clock": "now"}),
    ("a clock beyond all years", {"clock": 1e300}),
    ("draining in words", {"draining": "yes"}),
    ("a process that is a text", {"pid": "1"}),
)
def test_a_heartbeat_with_one_fault_is_not_heard(change: dict[str, Any]) -> None:
    said = {**orjson.loads(other().encode()), **change}
    members = heard()
    assert not members.hear(orjson.dumps(said))
    assert len(members.living()) == 1


@pytest.mark.parametrize(
    "name", [each for each in orjson.loads(ONE.encode()) if each not in ("draining", "leaving")]
)
def test_one_without_a_member_neither(name: str) -> None:
    said = orjson.loads(other().encode())
    del said[name]
    assert not heard().hear(orjson.dumps(said))


def test_members_and_their_words_are_bounded() -> None:
    members = heard()
    for number in range(MAX_MEMBERS + 50):
        members.hear(other(pid=number).encode())
    assert len(members.living()) == MAX_MEMBERS
    assert not members.hear(other(replica="late").encode())
    assert not members.hear(other().encode() + b" " * MAX_BEAT)


def test_a_heartbeat_is_not_heard_at_the_cost_of_looking_through_all() -> None:
    clock = _clock()
    members = heard(*(other(pid=number) for number in range(MAX_MEMBERS - 1)), clock=clock)
    assert not members.hear(other(replica="late").encode())
    known = members._heard
    for number in range(100):
        assert members.hear(other(pid=number).encode())
        assert not members.hear(other(replica="late", pid=number).encode())
    assert members._heard is known, "it was made anew"
    clock.now += ALIVE_S
    assert members.hear(other(replica="late").encode()), "others have gone"


def test_who_says_nothing_has_gone_and_who_says_goodbye_at_once() -> None:
    clock = _clock()
    members = heard(other(), other(replica="host-3"), clock=clock)
    assert len(members.living()) == 3
    members.hear(other(replica="host-3", leaving=True).encode())
    assert members.replicas() == {"host-1", "host-2"}
    clock.passes(ALIVE_S)
    assert members.replicas() == {"host-1"}  # this process is there, whatever the bus does


def test_nobody_speaks_for_this_process() -> None:
    members = heard()
    assert members.hear(replace(ONE, revision=0, leaving=True).encode())
    assert members.hear(replace(ONE, revision=0).encode())
    assert members.behind(7) == []


def test_who_is_behind_is_named() -> None:
    members = heard(other(revision=6), other(replica="host-3", revision=8, reloads=1))
    assert members.behind(7) == ["host-2/1"]
    assert members.behind(8) == ["host-1/1", "host-2/1"]
    assert members.not_reloaded(1) == ["host-1/1", "host-2/1"]


@rows(
    "changes, kinds",
    ("alike", {}, []),
    ("other settings", {"configuration": "e" * 16}, ["configuration"]),
    ("other tools alone", {"catalog": "e" * 16}, []),
    ("another key", {"keys": ("b" * 16,)}, ["keys"]),
    ("a further key that nothing is sealed with", {"keys": ("a" * 16, "b" * 16)}, []),
    ("a newest key that others do not have", {"keys": ("b" * 16, "a" * 16)}, ["keys"]),
    ("a clock that goes a little wrong", {"clock": ONE.clock + CLOCK_S}, []),
    ("a clock ahead", {"clock": ONE.clock + CLOCK_S + 1}, ["clock"]),
    ("a clock a minute behind", {"clock": ONE.clock - 60}, ["clock"]),
    ("all of it", {"clock": 0.0, "keys": ("b" * 16,), "configuration": "e" * 16},
     ["configuration", "keys", "clock"]),
)  # fmt: skip
def test_what_they_disagree_about_is_told(changes: dict[str, Any], kinds: list[str]) -> None:
    found = disagreements(heard(other(**changes)).living())
    assert [each.partition(":")[0] for each in found] == kinds


def test_different_tools_show_without_being_a_disagreement() -> None:
    assert has_one_catalog(heard(other()).living())
    assert not has_one_catalog(heard(other(catalog="e" * 16)).living())
