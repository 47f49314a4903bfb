"""The dashboard, the alerts and the pipelines of `deploy/` fit the server that there is."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from app.observability import metrics
from tests.docs.markdown import DOCS, section, table_rows
from tests.observability.deployed import (
    DASHBOARD,
    DEPLOY,
    PROMETHEUS,
    Prometheus,
    expressions,
    names_in,
    panels,
    program,
    rules,
)
from tests.observability.watched import Watched, call_as_older_client, call_in_every_way, watched
from tests.support.loglines import SCHEMA
from tests.support.stores import RedisServer
from tests.support.waiting import eventually

OPERATIONS: Final = DOCS / "operations.md"
ALWAYS_THERE: Final = ("Calls by outcome", "Response time", "Credentials", "Event loop", "Memory")
"""Panels that show something after any load."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A server that the load has gone over."""
    with RedisServer() as redis, watched(tmp_path_factory.mktemp("watched"), redis) as found:
        call_in_every_way(found.client)
        call_as_older_client(found.server)
        yield found


# -- names --------------------------------------------------------------------


def test_every_metric_that_is_named_is_in_a_real_scrape(server: Watched) -> None:
    names = server.scrape().names
    wrong = {
        where: sorted(missing)
        for where, expression in expressions()
        if (missing := names_in(expression) - names)
    }

    assert wrong == {}


def test_every_expression_names_a_metric() -> None:
    up = [where for where, expression in expressions() if not names_in(expression)]

    assert up == ["alert McpServerDown"]  # which asks Prometheus itself


def test_every_metric_is_in_the_documentation_with_its_labels() -> None:
    rows = table_rows(section(OPERATIONS, "## Metrics"))
    shown = {row[0].strip("`"): (row[1], tuple(re.findall(r"`(\w+)`", row[2]))) for row in rows}

    assert shown == {
        name: (family.kind, family.labels) for name, family in metrics.FAMILIES.items()
    }


def test_every_alert_is_in_the_documentation_and_says_what_to_do() -> None:
    rows = table_rows(section(OPERATIONS, "## Alerts"))

    assert [row[0].strip("`") for row in rows] == [rule["alert"] for rule in rules()]
    assert all(row[2] for row in rows)
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical"), rule
        assert rule["annotations"]["summary"], rule


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    loaded = json.loads(DASHBOARD.read_text("utf-8"))
    shown = loaded["panels"]

    assert loaded["uid"] == "mcp-tool-server"
    assert len({panel["id"] for panel in shown}) == len(shown)
    places = [
        (x, y)
        for panel in shown
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(places)) == len(places), "panels lie upon each other"
    assert max(x for x, _ in places) < 24
    assert all(panel["description"] for panel in shown if panel["type"] != "row")


# -- the real Prometheus ------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts.test.yml"),
        ("check", "config", "prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments],
        cwd=PROMETHEUS,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_a_scrape(server: Watched) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=server.get().body,
        capture_output=True,
        check=False,
    )
    # It would have process_* as client libraries have them, whose names these are.
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said


@pytest.fixture(scope="module")
def prometheus(server: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path_factory.mktemp("prometheus"), server.admin.port)
    try:
        eventually(
            lambda: found.values("up == 1 and count_over_time(up[1m]) > 2"),
            "it scrapes",
            40,
        )
        call_in_every_way(server.client)
        eventually(
            lambda: found.values('rate(mcp_tool_calls_total{tool="fail"}[1m]) > 0'),
            "it has seen the load",
            20,
        )
        yield found
    finally:
        found.stop()


def test_the_real_prometheus_answers_every_panel(prometheus: Prometheus) -> None:
    for panel in panels():
        for _, expression in panel.queries:
            found = prometheus.ask("query", query=expression)
            assert found["resultType"] == "vector", expression
            if panel.title in ALWAYS_THERE:
                assert found["result"], panel.title


def test_the_real_prometheus_evaluates_every_alert(prometheus: Prometheus) -> None:
    def evaluated() -> list[Any]:
        groups = (prometheus.ask("rules") or {"groups": []})["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        is_done = all(rule["health"] != "unknown" for rule in found)
        return found if is_done else []

    found = eventually(evaluated, "every rule was evaluated", 20)

    assert [rule["name"] for rule in found] == [rule["alert"] for rule in rules()]
    assert {rule["health"]: rule.get("lastError") for rule in found} == {"ok": None}


# -- pipelines ----------------------------------------------------------------


def _fields(name: str, pattern: str) -> set[str]:
    text = (DEPLOY / "logging" / name).read_text("utf-8")
    code = "\n".join(
        line.partition(" #")[0] for line in text.splitlines() if line.strip()[:1] != "#"
    )
    return set(re.findall(pattern, code))


def test_pipelines_name_fields_that_lines_have() -> None:
    own = {"message", "duration_s", "read"}  # what they read from, and what they add
    vector = _fields("line.vrl", r"(?<![\w)])\.([a-z_]+)")
    logstash = _fields(
        "logstash.conf", r'(?:convert => \{ |source => |\[)"?([a-z_]+)"? ?(?:=>|\n|\])'
    )

    assert vector - own <= SCHEMA["properties"].keys()
    assert {"request_id", "arguments", "event"} <= logstash
    assert logstash - own <= SCHEMA["properties"].keys()


def test_the_language_of_vector_reads_real_lines(server: Watched) -> None:
    """The compiler and runtime of Vector's own language, where a wheel of them is installed."""
    vrl: Any = pytest.importorskip("vrl_python", reason="no wheel of Vector's language")
    program_ = (DEPLOY / "logging/line.vrl").read_text("utf-8")
    lines = [line for line in server.server.log_text().splitlines() if '"event":"request"' in line]

    def read(line: str) -> dict[str, Any]:
        event: dict[str, Any] = vrl.VRLRuntime.run(
            program_, {"message": line}, "UTC"
        ).processed_event
        return event

    assert lines
    for line in lines:
        before, after = json.loads(line), read(line)
        assert after["duration_s"] == pytest.approx(before["duration_ms"] / 1000)
        assert str(after["timestamp"])[:10] == before["timestamp"][:10]
        same = before.keys() - {"timestamp", "request_id", "arguments"}
        assert {key: after[key] for key in same} == {key: before[key] for key in same}
        assert after["request_id"] in (None, str(before["request_id"]))
    for line in ("Segmentation fault", "", "[1]", '"text"', "{"):
        assert read(line) == {"message": line, "event": "unread", "level": "warning"}


def test_the_pipeline_of_logstash_is_one() -> None:
    """By a parser of its language, where that is installed."""
    parser: Any = pytest.importorskip("logstash_pipeline_parser", reason="no parser of Logstash's")
    parsed = parser.Pipeline((DEPLOY / "logging/logstash.conf").read_text("utf-8")).parse()

    assert [part[0] for part in parsed] == ["input", "filter", "output"]
