"""The expressions of the dashboard and of the alerts, as Prometheus evaluates them."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.support.server import ROOT

DEPLOY: Final = ROOT / "deploy"
DASHBOARD: Final = DEPLOY / "grafana/dashboards/mcp-tool-server.json"
PROMETHEUS: Final = DEPLOY / "prometheus"
_VARIABLES: Final = {"$__rate_interval": "1m", "$instance": ".*"}
_NAME: Final = re.compile(r"\b(?:mcp|process)_[a-z_]+\b")


class Panel(NamedTuple):
    """A panel of the dashboard.

    Attributes:
        queries: Their legends and expressions.
    """

    title: str
    kind: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def panels() -> Iterator[Panel]:
    """Those that show something."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        if panel["type"] != "row":
            queries = tuple(
                (each["legendFormat"], filled(each["expr"])) for each in panel["targets"]
            )
            unit = panel["fieldConfig"]["defaults"]["unit"]
            yield Panel(panel["title"], panel["type"], unit, queries)


def filled(expression: str) -> str:
    """With values in place of Grafana's variables."""
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    loaded = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Where each stands, and what it is."""
    for panel in panels():
        for _, expression in panel.queries:
            yield f"panel {panel.title}", expression
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]


def names_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return set(_NAME.findall(expression)) - {"process_name"}
