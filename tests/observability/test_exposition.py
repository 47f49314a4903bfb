"""The text that Prometheus reads."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.observability import metrics
from app.observability.exposition import Exposition, rendered
from app.observability.sharing import Folder, Snapshot
from app.settings import Settings
from tests.support.cases import rows
from tests.support.scraped import scraped

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"
HOSTILE = 'a"b\\c\n# TYPE x counter\nx 1\u2028\x00\ufeff{}'
ONE = Snapshot(
    {
        "mcp_tool_calls_total": {("echo", "ok"): 3, (HOSTILE, "ok"): 1},
        "mcp_response_time_seconds": {("echo",): [1, 2, 0, 0.6]},
        "mcp_calls_in_flight": {(): 2},
    },
    {"mcp_response_time_seconds": (0.1, 0.5)},
)


def test_the_parser_of_prometheus_reads_what_was_counted() -> None:
    content_type, text = rendered(ONE)
    found = scraped(text.decode())

    assert content_type.startswith("text/plain")
    assert found.get("mcp_tool_calls_total", tool="echo", outcome="ok") == 3
    assert found.get("mcp_tool_calls_total", tool=HOSTILE, outcome="ok") == 1
    buckets = {"0.1": 1.0, "0.5": 3.0, "+Inf": 3.0}
    for bound, count in buckets.items():
        assert found.get("mcp_response_time_seconds_bucket", tool="echo", le=bound) == count
    assert found.get("mcp_response_time_seconds_count", tool="echo") == 3
    assert found.get("mcp_response_time_seconds_sum", tool="echo") == 0.6
    assert metrics.FAMILIES.keys() <= {name.removesuffix("_bucket") for name in found.names}


def test_openmetrics_is_spoken_where_it_is_asked_for() -> None:
    content_type, text = rendered(ONE, OPENMETRICS)
    found = scraped(text.decode(), is_openmetrics=True)

    assert content_type.startswith("application/openmetrics-text")
    assert found.get("mcp_tool_calls_total", tool="echo", outcome="ok") == 3
    assert "mcp_calls_in_flight" in found.names


@rows(
    "accept",
    ("nothing", ""),
    ("anything", "*/*"),
    ("something else", "image/png"),
    ("a wrong version", "application/openmetrics-text;version=9"),
    ("a broken one", "application/openmetrics-text;version"),
    ("signs", ";;;,,,===\x00\n"),
    ("length", "text/plain," * 100_000),
)
def test_whatever_is_asked_for_there_is_text(accept: str) -> None:
    content_type, text = rendered(ONE, accept)

    assert "\n" not in content_type
    assert text.startswith(b"# HELP")


@given(st.text(max_size=200))
def test_no_header_stops_it(accept: str) -> None:
    assert rendered(ONE, accept)[1]


async def test_readers_are_asked_before_gauges_are_told() -> None:
    end = metrics.read_with(lambda: metrics.CALLS_IN_FLIGHT.set(41))
    try:
        _, text = await Exposition()()
    finally:
        end()

    assert b"\nmcp_calls_in_flight 41.0\n" in text
    assert b"\nmcp_server_processes 1.0\n" in text
    assert b"\nprocess_resident_memory_bytes " in text


async def test_several_are_told_together_also_while_they_write(tmp_path: Path) -> None:
    one, other = Exposition(Folder(tmp_path, "one")), Exposition(Folder(tmp_path, "other"))
    async with one.sharing():
        async with other.sharing(), asyncio.timeout(20):
            while b"\nmcp_server_processes 2.0\n" not in (await one())[1]:  # noqa: ASYNC110  # a file
                await asyncio.sleep(0.01)
        assert b"\nmcp_server_processes 1.0\n" in (await one())[1]


async def test_a_folder_that_is_gone_leaves_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    exposition = Exposition(Folder(folder, "one"))
    (folder / "one.alive").unlink()
    folder.rmdir()

    for _ in range(2):
        assert b"mcp_server_processes 1.0" in (await exposition())[1]
    assert capsys.readouterr().out.count("metrics_not_shared") == 1


@rows(
    "buckets",
    ("none", []),
    ("falling", [1.0, 0.5]),
    ("twice", [0.5, 0.5]),
    ("zero", [0.0, 1.0]),
    ("endless", [1.0, float("inf")]),
    ("no number", [float("nan")]),
)
def test_buckets_that_are_none_stop_the_start(buckets: list[float]) -> None:
    with pytest.raises(ValueError, match="buckets"):
        Settings.model_validate({"metrics": {"buckets": buckets}})
