import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app import ToolError
from tests.support.client import McpClient
from tools.get_current_time import _zones, describe, find_zone, get_current_time


@pytest.mark.parametrize(
    ("zone", "instant", "time", "utc_offset", "weekday"),
    [
        ("UTC", "2025-01-01T00:00:00", "2025-01-01T00:00:00+00:00", "+00:00", "Wednesday"),
        # Both sides of the change to summer time.
        ("Europe/Berlin", "2025-03-30T00:59:59", "2025-03-30T01:59:59+01:00", "+01:00", "Sunday"),
        ("Europe/Berlin", "2025-03-30T01:00:00", "2025-03-30T03:00:00+02:00", "+02:00", "Sunday"),
        ("Asia/Kolkata", "2025-06-01T20:00:00", "2025-06-02T01:30:00+05:30", "+05:30", "Monday"),
        ("Asia/Kathmandu", "2025-06-01T12:00:00", "2025-06-01T17:45:00+05:45", "+05:45", "Sunday"),
        (
            "Pacific/Marquesas",
            "2025-06-01T04:00:00",
            "2025-05-31T18:30:00-09:30",
            "-09:30",
            "Saturday",
        ),
    ],
)
def test_an_instant_is_described_in_its_zone(
    zone: str, instant: str, time: str, utc_offset: str, weekday: str
) -> None:
    name, found = find_zone(zone)
    moment = datetime.fromisoformat(instant).replace(tzinfo=UTC, microsecond=123_456)

    described = describe(name, moment.astimezone(found))

    assert described.model_dump() == {
        "timezone": zone,
        "time": datetime.fromisoformat(time),
        "utc_offset": utc_offset,
        "weekday": weekday,
    }
    assert described.time.microsecond == 0


def test_every_zone_of_the_database_is_found_by_its_name() -> None:
    assert {find_zone(name)[0] for name in zoneinfo.available_timezones()} == (
        zoneinfo.available_timezones()
    )


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("utc", "UTC"),
        (" Europe/Berlin ", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("America/New York", "America/New_York"),
    ],
)
def test_case_and_spaces_do_not_matter(wanted: str, name: str) -> None:
    assert find_zone(wanted)[0] == name


@pytest.mark.parametrize(
    ("wanted", "advice"),
    [
        ("Berlin", "Did you mean Europe/Berlin"),
        ("New York", "America/New_York"),
        ("Tokio", "Asia/Tokyo"),
        ("Europe/Lodnon", "Europe/London"),
        ("Narnia", "Use an IANA name such as"),
        ("Europe", "There is no time zone 'Europe'"),
        ("", "There is no time zone ''"),
        ("../../etc/passwd", "There is no time zone"),
        ("/etc/localtime", "There is no time zone"),
        ("a\0b", "There is no time zone"),
        ("x" * 100_000, "There is no time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_names_like_it(wanted: str, advice: str) -> None:
    with pytest.raises(ToolError) as refused:
        find_zone(wanted)

    assert advice in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.fixture
def machine_without_zones() -> Iterator[None]:
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    _zones.cache_clear()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()
    _zones.cache_clear()


@pytest.mark.usefixtures("machine_without_zones")
def test_zones_are_there_on_a_machine_that_has_none() -> None:
    assert find_zone("Asia/Tokyo")[0] == "Asia/Tokyo"


def test_the_clock_is_that_of_the_machine() -> None:
    before = datetime.now(UTC)

    answer = get_current_time(timezone="Asia/Tokyo")

    assert timedelta(seconds=-1) <= answer.time - before < timedelta(seconds=10)
    assert answer.utc_offset == "+09:00"


def test_the_served_default_is_utc(served: McpClient) -> None:
    value = served.call("get_current_time", {}).value

    assert value["timezone"] == "UTC"
    assert datetime.fromisoformat(value["time"]).utcoffset() == timedelta(0)


def test_the_model_hears_of_an_unknown_zone(served: McpClient) -> None:
    reply = served.call("get_current_time", {"timezone": "Mars/Olympus"})

    assert reply.is_error
    assert "There is no time zone 'Mars/Olympus'." in reply.text
