"""The time of day anywhere, from the IANA time zone database."""

import difflib
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel, Field

from app import ToolError, tool


class CurrentTime(BaseModel):
    timezone: Annotated[str, Field(description="IANA name of the time zone.")]
    time: Annotated[datetime, Field(description="Date and time there, with its UTC offset.")]
    utc_offset: Annotated[str, Field(description="Offset from UTC, such as +05:30.")]
    weekday: Annotated[str, Field(description="Day of the week there, in English.")]


@tool(
    title="Current time",
    annotations={"read_only": True, "open_world": False},
)
def get_current_time(
    timezone: Annotated[
        str,
        Field(description="IANA time zone such as Europe/Berlin.", examples=["Asia/Tokyo"]),
    ] = "UTC",
) -> CurrentTime:
    """Tell the current date and time in a time zone, with the weekday and the UTC offset."""
    name, zone = find_zone(timezone)
    return describe(name, datetime.now(zone))


def find_zone(wanted: str) -> tuple[str, tzinfo]:
    """The zone with this name in any case, with spaces for underscores.

    Raises:
        ToolError: There is none; names like it are in the text.
    """
    if wanted.strip().upper() == "UTC":  # needs no database
        return "UTC", UTC
    name = _zones().get(_key(wanted))
    if name is None:
        raise ToolError(f"There is no time zone {wanted[:100]!r}. {_advice(wanted)}")
    return name, ZoneInfo(name)


def describe(name: str, moment: datetime) -> CurrentTime:
    """What the tool says of an instant; `moment` knows its zone."""
    return CurrentTime(
        timezone=name,
        time=moment.replace(microsecond=0),
        utc_offset=f"{moment:%z}"[:3] + ":" + f"{moment:%z}"[3:5],
        weekday=f"{moment:%A}",
    )


def _key(name: str) -> str:
    return name.strip().replace(" ", "_").casefold()


@cache
def _zones() -> dict[str, str]:
    """Every zone by its key. A look-up here, not in the file system: `wanted` is not trusted."""
    return {_key(name): name for name in available_timezones()}


def _advice(wanted: str) -> str:
    zones = _zones()
    if not zones:
        return "This server has no time zone database and knows UTC alone."
    # A city alone ("Tokyo") is the most common slip, so each zone also goes by its last part.
    cities = {key.rpartition("/")[2]: name for key, name in sorted(zones.items())}
    close = [
        *(cities[key] for key in _similar(wanted, cities)),
        *(zones[key] for key in _similar(wanted, zones)),
    ]
    names = list(dict.fromkeys(close))[:4]
    if not names:
        return "Use an IANA name such as Europe/Berlin or America/New_York."
    return f"Did you mean {' or '.join(names)}?"


def _similar(wanted: str, keys: dict[str, str]) -> list[str]:
    return difflib.get_close_matches(_key(wanted[:100]), keys, n=3, cutoff=0.75)
