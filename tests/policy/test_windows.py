"""Time windows: the clock on the wall, midnight, and the nights on which clocks are changed."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.policy.windows import Window, window_of
from app.settings.policies import Conditions
from tests.policy.reference import clock_is_inside
from tests.support.cases import rows

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def window(**conditions: Any) -> Window:
    made = window_of(Conditions(**conditions))
    assert made is not None
    return made


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def edges(of: Window, begin: str, end: str) -> list[str]:
    """The edges between two instants, as UTC, each with what begins there."""
    found, now = [], utc(begin)
    while (now := of.next_edge(now)) <= utc(end):
        instant = datetime.fromtimestamp(now, UTC).isoformat(" ").removesuffix("+00:00")
        found.append(f"{instant} {'opens' if of.is_open(now) else 'closes'}")
    return found


OFFICE = {"time": "09:00-17:00", "days": ("mon-fri",)}
NIGHT = {"time": "22:00-06:00", "days": ("fri",)}


@rows(
    "conditions, local, is_open",
    ("it opens with its first instant", OFFICE, "2026-06-01T09:00:00", True),
    ("and not a moment before", OFFICE, "2026-06-01T08:59:59.999999", False),
    ("it is open until its end", OFFICE, "2026-06-01T16:59:59.999999", True),
    ("at which it is closed", OFFICE, "2026-06-01T17:00:00", False),
    ("other days are not its own", OFFICE, "2026-06-06T12:00:00", False),
    ("a night begins on its day", NIGHT, "2026-06-05T22:00:00", True),
    ("and goes on into the next", NIGHT, "2026-06-06T05:59:59", True),
    ("until the morning", NIGHT, "2026-06-06T06:00:00", False),
    ("the morning of its day is yesterday's night", NIGHT, "2026-06-05T05:00:00", False),
    ("the evening of the next day is another night", NIGHT, "2026-06-06T22:00:00", False),
    ("a night every day", {"time": "22:00-06:00"}, "2026-06-03T01:00:00", True),
    ("a day alone is whole", {"days": ("sat",)}, "2026-06-06T00:00:00", True),
    ("to its last moment", {"days": ("sat",)}, "2026-06-06T23:59:59.999999", True),
    ("and no longer", {"days": ("sat",)}, "2026-06-07T00:00:00", False),
    ("days go over the end of the week", {"days": ("sat-mon",)}, "2026-06-07T12:00:00", True),
    ("as far as they say", {"days": ("sat-mon",)}, "2026-06-09T00:00:00", False),
    ("days add up", {"days": ("mon", "wed-thu")}, "2026-06-04T12:00:00", True),
    ("and leave gaps", {"days": ("mon", "wed-thu")}, "2026-06-02T12:00:00", False),
    ("until midnight", {"time": "18:00-24:00"}, "2026-06-02T23:59:59", True),
    ("midnight by its other name", {"time": "18:00-00:00"}, "2026-06-02T23:59:59", True),
    ("after midnight", {"time": "18:00-00:00"}, "2026-06-02T00:00:00", False),
)
@pytest.mark.parametrize("zone", ["UTC", BERLIN, NEW_YORK, LORD_HOWE, "Asia/Kathmandu"])
def test_a_window(zone: str, conditions: dict[str, Any], local: str, is_open: bool) -> None:
    now = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone)).timestamp()
    assert window(**conditions, timezone=zone).is_open(now) is is_open


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"timezone": BERLIN},
        {"time": "00:00-24:00"},
        {"days": ("mon-sun",)},
        {"days": ("tue-mon",)},
    ],
)
def test_what_is_always_open_is_no_window(conditions: dict[str, Any]) -> None:
    assert window_of(Conditions(**conditions)) is None


@rows(
    "zone, conditions, begin, end, expected",
    (
        "a week has ten edges, two of which lie far apart",
        BERLIN,
        {"time": "09:00-17:00", "days": ("thu-mon",)},
        "2026-06-04 12:00",
        "2026-06-11 06:00",
        [
            *("2026-06-04 15:00:00 closes", "2026-06-05 07:00:00 opens"),
            *("2026-06-05 15:00:00 closes", "2026-06-06 07:00:00 opens"),
            *("2026-06-06 15:00:00 closes", "2026-06-07 07:00:00 opens"),
            *("2026-06-07 15:00:00 closes", "2026-06-08 07:00:00 opens"),
            "2026-06-08 15:00:00 closes",
        ],
    ),
    (
        "days that follow each other have no edge between them",
        BERLIN,
        {"days": ("mon-fri",)},
        "2026-06-01 00:00",
        "2026-06-09 00:00",
        ["2026-06-05 22:00:00 closes", "2026-06-07 22:00:00 opens"],
    ),
    (
        "Berlin, spring: the day is 23 hours long",
        BERLIN,
        {"days": ("sun",)},
        "2026-03-28 12:00",
        "2026-03-30 12:00",
        ["2026-03-28 23:00:00 opens", "2026-03-29 22:00:00 closes"],
    ),
    (
        "Berlin, spring: what begins in the hour left out opens after it",
        BERLIN,
        {"time": "02:30-04:00"},
        "2026-03-28 12:00",
        "2026-03-29 12:00",
        ["2026-03-29 01:00:00 opens", "2026-03-29 02:00:00 closes"],
    ),
    (
        "Berlin, spring: what ends in the hour left out closes before it",
        BERLIN,
        {"time": "01:00-02:30"},
        "2026-03-28 12:00",
        "2026-03-29 12:00",
        ["2026-03-29 00:00:00 opens", "2026-03-29 01:00:00 closes"],
    ),
    (
        "Berlin, spring: what lies in the hour left out stays closed",
        BERLIN,
        {"time": "02:15-02:45"},
        "2026-03-28 00:00",
        "2026-03-30 06:00",
        [
            *("2026-03-28 01:15:00 opens", "2026-03-28 01:45:00 closes"),
            *("2026-03-30 00:15:00 opens", "2026-03-30 00:45:00 closes"),
        ],
    ),
    (
        "Berlin, spring: a night is an hour shorter",
        BERLIN,
        {"time": "22:00-06:00", "days": ("sat",)},
        "2026-03-28 12:00",
        "2026-03-29 12:00",
        ["2026-03-28 21:00:00 opens", "2026-03-29 04:00:00 closes"],
    ),
    (
        "Berlin, spring: once a week in the hour left out is two weeks apart",
        BERLIN,
        {"time": "02:15-02:45", "days": ("sun",)},
        "2026-03-22 12:00",
        "2026-04-05 12:00",
        ["2026-04-05 00:15:00 opens", "2026-04-05 00:45:00 closes"],
    ),
    (
        "Berlin, autumn: what the clock shows twice is open twice",
        BERLIN,
        {"time": "02:15-02:45"},
        "2026-10-24 12:00",
        "2026-10-25 12:00",
        [
            *("2026-10-25 00:15:00 opens", "2026-10-25 00:45:00 closes"),
            *("2026-10-25 01:15:00 opens", "2026-10-25 01:45:00 closes"),
        ],
    ),
    (
        "Berlin, autumn: what ends in the repeated hour opens again with it",
        BERLIN,
        {"time": "01:00-02:30"},
        "2026-10-24 12:00",
        "2026-10-25 12:00",
        [
            *("2026-10-24 23:00:00 opens", "2026-10-25 00:30:00 closes"),
            *("2026-10-25 01:00:00 opens", "2026-10-25 01:30:00 closes"),
        ],
    ),
    (
        "New York, spring",
        NEW_YORK,
        {"time": "02:30-09:00", "days": ("sun",)},
        "2026-03-08 00:00",
        "2026-03-09 00:00",
        ["2026-03-08 07:00:00 opens", "2026-03-08 13:00:00 closes"],
    ),
    (
        "New York, autumn: a night is an hour longer",
        NEW_YORK,
        {"time": "22:00-06:00", "days": ("sat",)},
        "2026-10-31 12:00",
        "2026-11-01 18:00",
        ["2026-11-01 02:00:00 opens", "2026-11-01 11:00:00 closes"],
    ),
    (
        "Lord Howe, spring: half an hour is left out",
        LORD_HOWE,
        {"time": "02:15-02:45"},
        "2026-10-03 12:00",
        "2026-10-03 18:00",
        ["2026-10-03 15:30:00 opens", "2026-10-03 15:45:00 closes"],
    ),
    (
        "Lord Howe, autumn: half an hour comes twice",
        LORD_HOWE,
        {"time": "01:45-02:15"},
        "2026-04-04 12:00",
        "2026-04-04 18:00",
        [
            *("2026-04-04 14:45:00 opens", "2026-04-04 15:00:00 closes"),
            *("2026-04-04 15:15:00 opens", "2026-04-04 15:45:00 closes"),
        ],
    ),
    (
        "Lord Howe, autumn: what ends in it is open twice",
        LORD_HOWE,
        {"time": "01:15-01:40"},
        "2026-04-04 12:00",
        "2026-04-04 18:00",
        [
            *("2026-04-04 14:15:00 opens", "2026-04-04 14:40:00 closes"),
            *("2026-04-04 15:00:00 opens", "2026-04-04 15:10:00 closes"),
        ],
    ),
    (
        "Samoa left out a whole Friday",
        "Pacific/Apia",
        {"days": ("fri",)},
        "2011-12-24 12:00",
        "2012-01-07 12:00",
        ["2012-01-05 10:00:00 opens", "2012-01-06 10:00:00 closes"],
    ),
)
def test_the_edges_of_a_window(
    zone: str, conditions: dict[str, Any], begin: str, end: str, expected: list[str]
) -> None:
    assert edges(window(**conditions, timezone=zone), begin, end) == expected


def test_an_edge_is_after_the_instant_that_one_asks_for() -> None:
    office = window(time="09:00-17:00")
    opens, closes = utc("2026-06-01 09:00"), utc("2026-06-01 17:00")
    assert office.next_edge(opens - 0.001) == opens
    assert office.next_edge(opens) == closes
    assert office.next_edge(closes - 0.001) == closes


def test_the_end_of_the_calendar_is_no_edge() -> None:
    assert window(time="09:00-17:00").next_edge(utc("9999-12-31 18:00")) == math.inf


def test_equal_windows_are_one() -> None:
    assert window(time="09:00-17:00") is window(time="09:00-17:00", networks=("10.0.0.0/8",))
    assert window(time="09:00-17:00") != window(time="09:00-17:01")


CLOCKS = st.integers(0, 1439).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
TIMES = st.tuples(CLOCKS, CLOCKS).filter(lambda pair: pair[0] != pair[1]).map("-".join)
NIGHTS = st.sampled_from(
    ["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-10-03", "2026-04-04"]
).map(utc)
WINDOWS = st.builds(
    Conditions,
    time=st.none() | TIMES,
    days=st.sets(st.sampled_from(["mon", "wed-fri", "sat", "sun", "sat-mon"])).map(tuple),
    timezone=st.sampled_from(["UTC", BERLIN, NEW_YORK, LORD_HOWE, "Asia/Kathmandu"]),
)


@settings(deadline=None)
@given(WINDOWS, NIGHTS, st.floats(-4, 4))
def test_every_minute_agrees_with_the_clock_and_no_edge_is_missed(
    conditions: Conditions, night: float, days: float
) -> None:
    made = window_of(conditions)
    begin = night + timedelta(days=days).total_seconds()
    minutes = range(int(begin // 60) + 1, int(begin // 60) + 1 + 3 * 1440)
    expected = [clock_is_inside(conditions, minute * 60) for minute in minutes]
    if made is None:
        assert all(expected)
        return
    assert [made.is_open(minute * 60) for minute in minutes] == expected
    changes = [
        minute * 60
        for minute, before, after in zip(minutes[1:], expected, expected[1:], strict=False)
        if before != after
    ]
    found, now = [], minutes[0] * 60.0
    while (now := made.next_edge(now)) <= minutes[-1] * 60:
        found.append(now)
    assert found == changes
