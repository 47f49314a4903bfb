"""`--workers N`: one scrape shows all processes together, whichever of them answers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.observability.watched import ADA, Watched, watched
from tests.support.stores import RedisServer
from tests.support.waiting import eventually

CALLS = {"tool": "add", "outcome": "ok"}
WORKERS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Watched]:
    with (
        RedisServer() as redis,
        watched(tmp_path, redis, args=["--workers", str(WORKERS)]) as found,
    ):
        yield found


def called(server: Watched, times: int) -> None:
    """Each on a connection of its own, so that it may reach any of them."""
    for number in range(times):
        assert server.client.call("add", {"a": number}, ADA).status == 200


def counted(server: Watched) -> float:
    return server.scrape().get("mcp_tool_calls_total", **CALLS)


def workers_of(server: Watched) -> set[int]:
    return {log["pid"] for log in server.server.logs("listening") if not _has_ended(log["pid"])}


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.timeout(120)
def test_the_sum_is_told_by_each_and_outlives_those_who_counted(server: Watched) -> None:
    eventually(lambda: server.scrape().get("mcp_server_processes") == WORKERS, "all serve", 40)
    called(server, 60)
    eventually(lambda: counted(server) == 60, "all calls are counted")
    for _ in range(10):  # whichever answers
        found = server.scrape()
        assert found.get("mcp_tool_calls_total", **CALLS) == 60
        assert found.get("mcp_calls_limit") == WORKERS * 1000
        assert found.get("mcp_tools") == 14

    victim = min(workers_of(server))
    os.kill(victim, signal.SIGKILL)
    server.server.wait_for_log(lambda log: log.get("event") == "worker_died")
    eventually(lambda: server.scrape().get("mcp_server_processes") == WORKERS, "it is replaced", 40)
    assert counted(server) == 60  # it had told the others all that it had counted
    called(server, 30)
    eventually(lambda: counted(server) == 90, "the new one counts with the others")
