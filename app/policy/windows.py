"""Time windows: hours of the day and days of the week, as a clock on a wall shows them.

A window is open whenever a clock in its zone shows a time inside it. So where daylight-saving time
ends, the repeated hour counts twice; where it begins, the hour that no clock shows never comes.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from functools import lru_cache, partial
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from app.settings.policies import DAYS, Conditions

DAY_S: Final = 86_400
EVERY_DAY: Final = frozenset(range(7))
REMEMBERED: Final = 256

_HORIZON_S: Final = 56 * DAY_S
"""A window of one weekday opens every week, but for hours or days that a zone leaves out."""

_STEP_S: Final = 6 * 3600
"""No zone changes its offset twice in this time."""


class Span(NamedTuple):
    """The window is ``open``, or is not, from ``since`` to before ``until``, in POSIX time."""

    since: float
    until: float
    open: bool


_NOTHING_YET: Final = Span(math.inf, -math.inf, open=False)


@dataclass(frozen=True, slots=True)
class Window:
    """A time window.

    Attributes:
        start_s: Seconds on the clock from which it is open.
        end_s: Seconds on the clock from which it is not; before ``start_s``: on the next day.
        days: Days on which it begins; Monday is 0.
    """

    zone: ZoneInfo
    start_s: int
    end_s: int
    days: frozenset[int]
    # The span that was asked for last: requests come at instants that lie close together.
    _known: list[Span] = field(default_factory=lambda: [_NOTHING_YET], compare=False, repr=False)

    def is_open(self, now: float) -> bool:
        """Whether it is open at an instant (POSIX time)."""
        return self.span(now).open

    def next_edge(self, now: float) -> float:
        """The next instant after ``now`` at which it opens or closes, exact to the second."""
        return self.span(now).until

    def span(self, now: float) -> Span:
        """A span that holds ``now``; it ends where the window next opens or closes."""
        known = self._known[0]
        if not known.since <= now < known.until:
            second = math.floor(now)  # edges are whole seconds
            known = Span(second, self._next_change(second), self._shows(second))
            self._known[0] = known
        return known

    def _shows(self, second: int) -> bool:
        """Whether the clock shows a time inside the window."""
        local = datetime.fromtimestamp(second, self.zone)
        clock, today = _clock_s(local), local.weekday()
        if self.start_s < self.end_s:
            return self.start_s <= clock < self.end_s and today in self.days
        if clock >= self.start_s:
            return today in self.days
        return clock < self.end_s and (today - 1) % 7 in self.days

    def _next_change(self, second: int) -> float:
        is_open = self._shows(second)
        try:
            for begin in range(second, second + _HORIZON_S, DAY_S):
                for edge in self._candidates(begin, begin + DAY_S):
                    if self._shows(edge) != is_open:
                        return edge
        except (OverflowError, ValueError):
            pass  # beyond the year 9999
        return math.inf

    def _candidates(self, begin: int, end: int) -> list[int]:
        """Every instant of a day at which it can open or close, in order; and some more."""
        found = set(self._transitions(begin, end))
        first = datetime.combine(datetime.fromtimestamp(begin, self.zone), time.min)
        for day in (-1, 0, 1, 2):
            for clock_s in (self.start_s, self.end_s):
                local = (first + timedelta(days=day, seconds=clock_s)).replace(tzinfo=self.zone)
                # A time that comes twice has two instants.
                found.update(int(local.replace(fold=fold).timestamp()) for fold in (0, 1))
        return sorted(edge for edge in found if begin < edge <= end)

    def _transitions(self, begin: int, end: int) -> Iterator[int]:
        """Where the clock is put forward or back: it then jumps over edges of the window."""
        for low in range(begin, end, _STEP_S):
            before, later = self._offset(low), range(low + 1, low + _STEP_S + 1)
            if self._offset(later[-1]) != before:
                yield later[bisect_left(later, True, key=partial(self._has_left, before))]

    def _offset(self, second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, self.zone).utcoffset()

    def _has_left(self, offset: timedelta | None, second: int) -> bool:
        return self._offset(second) != offset


def window_of(conditions: Conditions) -> Window | None:
    """The window that conditions describe; None if it never closes."""
    return _window(conditions.time, conditions.days, conditions.timezone)


@lru_cache(REMEMBERED)
def _window(time_: str | None, days: tuple[str, ...], timezone: str) -> Window | None:
    """Rules often have the same window; its edges are then worked out once for all of them."""
    start_s, end_s = (0, DAY_S) if time_ is None else map(_seconds, time_.split("-"))
    begins = frozenset(day for item in days for day in _days(item)) or EVERY_DAY
    if (start_s, end_s, begins) == (0, DAY_S, EVERY_DAY):
        return None
    return Window(ZoneInfo(timezone), start_s, end_s, begins)


def _clock_s(local: datetime) -> int:
    return local.hour * 3600 + local.minute * 60 + local.second


def _seconds(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60


def _days(item: str) -> Iterator[int]:
    """``sat`` or ``fri-mon``, the latter over the end of the week."""
    first, _, last = item.partition("-")
    day, final = DAYS.index(first), DAYS.index(last or first)
    yield day
    while day != final:
        day = (day + 1) % 7
        yield day
