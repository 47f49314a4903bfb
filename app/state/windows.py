"""Sliding windows in memory: what was let through lately, by name."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from app.state.interface import Quota, StoreUnavailable, Wait

LOOK: Final = 4
"""Names that are looked at, whether they can be forgotten, when a new one comes."""


class Window:
    """The instants of the last admissions under one name, in a ring.

    It has room for as many as fell into one period, whatever the capacity; each takes 8 bytes, and
    half of the ring may be empty.
    """

    __slots__ = ("_count", "_marks", "_oldest", "_period_s", "is_anonymous")

    def __init__(self, period_s: float, *, is_anonymous: bool = False) -> None:
        self.is_anonymous = is_anonymous
        self._period_s = period_s
        self._marks = array("d", (0.0,))
        self._oldest = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait_s(self, capacity: int, now: float) -> float:
        """Seconds until there is room for one more; not above 0 if there is room now."""
        if self._count < capacity:
            return 0.0
        # The oldest, unless the ring was filled while the capacity was a larger one.
        marks = self._marks
        decides = marks[(self._oldest + self._count - capacity) % len(marks)]
        return self._period_s - (now - decides)

    def add(self, now: float) -> None:
        """One was let through."""
        marks, oldest, count = self._marks, self._oldest, self._count
        if count and now - marks[oldest] >= self._period_s:
            # One that counts no longer makes room. Not all of them: there may be many.
            self._oldest = oldest = (oldest + 1) % len(marks)
            count -= 1
        elif count == len(marks):
            marks = self._marks = marks[oldest:] + marks[:oldest] + array("d", bytes(8 * count))
            self._oldest = oldest = 0
        marks[(oldest + count) % len(marks)] = now
        self._count = count + 1

    def is_over(self, now: float) -> bool:
        """Whether even the youngest counts no longer."""
        marks = self._marks
        youngest = marks[(self._oldest + self._count - 1) % len(marks)]
        return not self._count or now - youngest >= self._period_s


class Windows:
    """The windows of all names.

    Args:
        max_names: Beyond this many a new name is refused: dropping another one would let more
            through under it than was promised. Names that anybody can make up get half of them,
            so that strangers cannot take the places of those who are known.
    """

    def __init__(self, max_names: int) -> None:
        self._max = max_names
        self._max_anonymous = max_names // 2
        # A plain dict would search for its front again and again.
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self._anonymous = 0

    def __len__(self) -> int:
        return len(self._windows)

    def admit(self, quotas: Sequence[Quota], now: float) -> Wait | None:
        """As ``Store.admit``."""
        if len(quotas) == 1:  # the same as below, for most calls
            name, capacity, _, _ = quotas[0]
            window = self._windows.get(name)
            if window is None:
                (window,) = self._all(quotas, now)
            wait_s = window.wait_s(capacity, now)
            if wait_s > 0.0:
                return Wait(0, wait_s)
            window.add(now)
            return None
        windows = []
        longest, refusing = 0.0, -1
        for place, (name, capacity, _, _) in enumerate(quotas):
            window = self._windows.get(name)
            if window is not None:
                windows.append(window)
                wait_s = window.wait_s(capacity, now)
                if wait_s > longest:
                    longest, refusing = wait_s, place
        if refusing >= 0:
            return Wait(refusing, longest)
        if len(windows) < len(quotas):
            windows = self._all(quotas, now)
        for window in windows:
            window.add(now)
        return None

    def _all(self, quotas: Sequence[Quota], now: float) -> list[Window]:
        """The windows of these names, new ones among them."""
        self._forget_some(now)
        new = [quota for quota in quotas if quota.name not in self._windows]
        anonymous = sum(quota.is_anonymous for quota in new)
        if len(self._windows) + len(new) > self._max:
            raise StoreUnavailable(f"the store is full ({self._max} names)")
        if anonymous and self._anonymous + anonymous > self._max_anonymous:
            raise StoreUnavailable(f"the store is full ({self._max_anonymous} anonymous names)")
        for name, _, period_s, is_anonymous in new:
            self._windows[name] = Window(period_s, is_anonymous=is_anonymous)
        self._anonymous += anonymous
        return [self._windows[quota.name] for quota in quotas]

    def _forget_some(self, now: float) -> None:
        """Look at the next few, in a circle: never a long pause, and more go than come."""
        for _ in range(min(LOOK, len(self._windows))):
            name, window = next(iter(self._windows.items()))
            if window.is_over(now):
                del self._windows[name]
                self._anonymous -= window.is_anonymous
            else:
                self._windows.move_to_end(name)
