"""The expressions of the dashboard and of the alerts, as Prometheus evaluates them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.support.server import ROOT
from tests.support.stores import free_port

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


def program(name: str) -> str:
    """A program of Prometheus."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; Debian has it in the package prometheus")
    return found


class Prometheus:
    """One that scrapes a server every second, with our rules."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = free_port()
        self.config = folder / "prometheus.yml"
        self.config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{PROMETHEUS / 'alerts.yml'}]\n"
            "scrape_configs:\n"
            "  - job_name: mcp-tool-server\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        )
        self.log = (folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={self.config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API; None while it does not listen."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        try:
            answer = httpx2.get(url, params=parameters, trust_env=False).json()
        except (httpx2.HTTPError, ValueError):
            return None
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expression: str) -> list[Any]:
        found = self.ask("query", query=expression)
        return [] if found is None else list(found["result"])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()
