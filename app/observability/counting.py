"""Counts of this process: plain numbers in dictionaries, read when somebody scrapes.

A counter of prometheus-client takes a lock for each step, and a file mapped into memory where there
are several processes; see ``docs/decisions``. These take neither: a family is changed in the event
loop alone, or in one other thread alone, and reading it copies it in one step.

What a label may say is a closed set that the caller keeps. Should one slip, a family has a bound of
its own, beyond which everything counts as ``OTHER``.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

OTHER: Final = "(other)"
"""Label of what came after a family was full."""

MAX_SERIES: Final = 10_000
"""Series of one family; a histogram has a bound for its labels."""

Labels = tuple[str, ...]


class Family:
    """Metrics with one name.

    Args:
        name: With its unit, and ``_total`` at the end of counters, as Prometheus advises.
        help: One sentence.
        labels: Names of the labels.
    """

    kind: Literal["counter", "gauge", "histogram"]

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:  # noqa: A002  # Prometheus' word
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self.values: dict[Labels, Any] = {}

    def copy(self) -> dict[Labels, Any]:
        """The present values, by those of the labels."""
        return dict(self.values)

    def _admitted(self, labels: Labels) -> Labels:
        return labels if len(self.values) < MAX_SERIES else (OTHER,) * len(self.labels)


class Counter(Family):
    """Only grows."""

    kind = "counter"

    def inc(self, *labels: str) -> None:
        """Count one."""
        try:
            self.values[labels] += 1
        except KeyError:
            self.add(1, *labels)

    def add(self, amount: float, *labels: str) -> None:
        """Count several."""
        if labels not in self.values:
            labels = self._admitted(labels)
        self.values[labels] = self.values.get(labels, 0) + amount


class Gauge(Family):
    """What is the case now.

    Args:
        across: What several processes have in common: the sum, the largest or the least.
    """

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002  # as of Family
        labels: Sequence[str] = (),
        *,
        across: Literal["sum", "max", "min"] = "sum",
    ) -> None:
        super().__init__(name, help, labels)
        self.across = across

    def set(self, value: float, *labels: str) -> None:
        """It is so now."""
        if labels not in self.values:
            labels = self._admitted(labels)
        self.values[labels] = value

    def replace(self, values: Mapping[Labels, float]) -> None:
        """It is so now, and there is no other series."""
        self.values = dict(values)


class Histogram(Family):
    """How often a value was up to each of the bounds.

    A series is a list: a count for each bound and for what is beyond the last, then the sum.

    Args:
        bounds: Upper ones, in order.
    """

    kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002  # as of Family
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float],
    ) -> None:
        super().__init__(name, help, labels)
        self.bounds = tuple(bounds)

    def rebound(self, bounds: Sequence[float]) -> None:
        """Have other bounds from now on; what was observed before is forgotten."""
        if tuple(bounds) != self.bounds:
            self.values, self.bounds = {}, tuple(bounds)

    def observe(self, value: float, *labels: str) -> None:
        """One more value."""
        try:
            series = self.values[labels]
        except KeyError:
            series = self._begin(labels)
        series[bisect_left(self.bounds, value)] += 1
        series[-1] += value

    def _begin(self, labels: Labels) -> list[float]:
        empty: list[float] = [0] * (len(self.bounds) + 2)
        series: list[float] = self.values.setdefault(self._admitted(labels), empty)
        return series

    def copy(self) -> dict[Labels, Any]:
        return {labels: list(series) for labels, series in dict(self.values).items()}


class Names:
    """Names that may become labels, each for as long as the process lives.

    Args:
        most: How many; those that come later are ``OTHER`` together.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """What a name is called in labels."""
        if name in self._known:
            return name
        if len(self._known) >= self.most:
            return OTHER
        self._known.add(name)
        return name
