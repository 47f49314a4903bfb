"""What a scrape says, by the parsers of prometheus-client itself."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics


class Scrape(NamedTuple):
    """The samples of a scrape.

    Attributes:
        names: Of the families, as rules may use them: with their endings.
        values: By name and labels.
    """

    names: frozenset[str]
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def get(self, name: str, **labels: str) -> float:
        """One sample; 0 where there is none."""
        return self.values.get((name, frozenset(labels.items())), 0.0)

    def sum(self, name: str, **labels: str) -> float:
        """All samples that have these labels, among others."""
        wanted = set(labels.items())
        return sum(
            value
            for (each, found), value in self.values.items()
            if each == name and wanted <= found
        )

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label has."""
        return {dict(found).get(label, "") for each, found in self.values if each == name}


def scraped(text: str, *, is_openmetrics: bool = False) -> Scrape:
    """Read a scrape."""
    read: Any = (openmetrics if is_openmetrics else parser).text_string_to_metric_families
    families: Iterable[Any] = read(text)
    names: set[str] = set()
    values = {}
    for family in families:
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        names |= {family.name + ending for ending in endings.get(family.type, ("",))}
        for sample in family.samples:
            values[sample.name, frozenset(sample.labels.items())] = sample.value
    return Scrape(frozenset(names), values)
