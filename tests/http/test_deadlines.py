"""Deadlines that a client asks for, and an event loop that is blocked."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import McpClient, meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write

KEY = "mcp-tool-server/timeoutMs"
TOOLS = '''
import asyncio
import time

from app import Context, tool


@tool(timeout_s=2)
async def sleeps(ctx: Context, seconds: float) -> float:
    """Wait, and say how long it might have."""
    left = ctx.remaining_s
    await asyncio.sleep(seconds)
    return left


@tool(timeout_s=2)
def sleeps_in_a_thread(ctx: Context, seconds: float) -> float:
    """Likewise."""
    left = ctx.remaining_s
    time.sleep(seconds)
    return left


@tool(timeout_s=2, isolation="process")
def sleeps_in_a_process(ctx: Context, seconds: float) -> float:
    """Likewise."""
    left = ctx.remaining_s
    time.sleep(seconds)
    return left


@tool
async def blocks(seconds: float) -> str:
    """Never await."""
    time.sleep(seconds)
    return "done"


@tool
async def computes(below: int) -> int:
    """Never await, in the interpreter."""
    return sum(number * number for number in range(below))
'''
SLEEPERS = ["sleeps", "sleeps_in_a_thread", "sleeps_in_a_process"]


@pytest.fixture(scope="module")
def server(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    """A server with slow tools of each kind."""
    folder = tmp_path_factory.mktemp("slow")
    write(folder / "slow.py", TOOLS)
    return module_server_factory(folder, {"execution": {"processes": 1}})


@pytest.fixture
def client(server: ServerProcess) -> McpClient:
    """A client of `server`."""
    return server.client


def asking(timeout_ms: Any) -> dict[str, Any]:
    """A request's `_meta` that asks for a deadline."""
    return meta(**{KEY: timeout_ms}) if timeout_ms is not None else {**meta(), KEY: None}


@pytest.mark.parametrize("tool", SLEEPERS)
def test_a_client_may_ask_for_an_earlier_deadline(client: McpClient, tool: str) -> None:
    begun = time.perf_counter()
    reply = client.call(tool, {"seconds": 1}, meta_=asking(300))
    assert (reply.status, reply.is_error) == (200, True)
    assert reply.text == "The tool did not finish within its deadline of 0.3 s."
    assert 0.3 <= time.perf_counter() - begun < 0.9


@pytest.mark.parametrize("tool", SLEEPERS)
@pytest.mark.parametrize("asked", [2001, 10**6, 10**30])
def test_no_client_gets_more_time_than_the_tool_has(
    client: McpClient, tool: str, asked: int
) -> None:
    assert 1 < client.call(tool, {"seconds": 0}, meta_=asking(asked)).value <= 2


@pytest.mark.parametrize("asked", [0, -1, 0.5, 100.0, "100", True, None, [100]])
def test_a_deadline_that_is_no_positive_integer_is_refused(client: McpClient, asked: Any) -> None:
    reply = client.call("sleeps", {"seconds": 0}, meta_=asking(asked))
    assert reply.outcome == (400, -32602)
    assert KEY in reply.error["message"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("blocks", {"seconds": 2.5}), ("computes", {"below": 60_000_000})],
)
def test_a_tool_that_blocks_the_event_loop_is_named_once(
    server: ServerProcess, tool: str, arguments: dict[str, Any]
) -> None:
    mark = server.log_mark()
    assert not server.client.call(tool, arguments, timeout_s=40).is_error
    line = server.wait_for_log(lambda log: log.get("event") == "event_loop_blocked", after=mark)
    assert (line["tool"], line["level"]) == (tool, "warning")
    assert line["place"].startswith("slow.py:")
    assert 1 <= line["seconds"] < 3
    server.client.call("sleeps", {"seconds": 1.2})
    assert len([log for log in server.logs()[mark:] if log["event"] == "event_loop_blocked"]) == 1


def test_a_tool_that_waits_blocks_nobody(server: ServerProcess, tmp_path: Path) -> None:
    mark = server.log_mark()
    for tool in SLEEPERS:
        server.client.call(tool, {"seconds": 1.8})
    assert not [log for log in server.logs()[mark:] if log["event"] == "event_loop_blocked"]
