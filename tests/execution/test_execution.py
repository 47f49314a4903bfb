"""What a running call says and how it ends."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from app import tool
from app.execution.execution import (
    BURST,
    INTERVAL_S,
    MAX_PENDING,
    Execution,
    Outcome,
    Surroundings,
)
from app.protocol.inbound import Call
from app.protocol.schema import RequestMeta
from app.registry.tool import compile_tool
from app.settings import Settings


@tool
def nothing() -> None: ...


TOOL = compile_tool(nothing, name="nothing", source=None, settings=Settings())


def _ignore(execution: Execution) -> None: ...


def _execution(
    token: Any = 1,
    level: str | None = "debug",
    leave: Callable[[Execution], None] = _ignore,
) -> Execution:
    meta = RequestMeta("2026-07-28", {}, None, level, token, None, {})
    loop = asyncio.get_running_loop()
    return Execution(
        TOOL,
        Call(1, "tools/call", {}, meta),
        Surroundings(loop, threading.get_ident(), leave),
        timeout_s=60,
    )


def _said(execution: Execution, key: str) -> list[Any]:
    return [orjson.loads(message)["params"][key] for message in execution.take_notifications()]


async def test_progress_that_does_not_increase_is_dropped() -> None:
    execution = _execution()
    for value in (0, 1, 1, 0.5, 2, -1, 2.5):
        execution.progress(value, 3, None)
    assert _said(execution, "progress") == [0, 1, 2, 2.5]


async def test_nothing_is_said_to_a_client_that_did_not_ask() -> None:
    execution = _execution(token=None, level=None)
    execution.progress(1, None, None)
    execution.log("emergency", "x", None)
    assert not execution.has_notifications


async def test_a_flood_of_progress_is_thinned_out_and_ends_with_the_newest() -> None:
    execution = _execution()
    began = time.monotonic()
    for value in range(10_000):
        execution.progress(value, None, None)
    took_s = time.monotonic() - began  # on a busy machine there is time for some more
    execution.finish(b"{}", Outcome.OK)
    said = _said(execution, "progress")
    assert BURST + 1 <= len(said) <= BURST + 1 + took_s / INTERVAL_S
    assert said[-1] == 9_999


async def test_a_flood_from_a_thread_reaches_the_loop_thinned_out() -> None:
    execution = _execution()

    def flood() -> None:
        for value in range(100_000):
            execution.progress(value, None, None)

    await asyncio.to_thread(flood)
    execution.finish(b"{}", Outcome.OK)
    said = _said(execution, "progress")
    assert len(said) <= MAX_PENDING
    assert said == sorted(said)


async def test_a_flood_of_logs_is_bounded() -> None:
    execution = _execution()
    for number in range(10_000):
        execution.log("info", number, None)
    assert len(execution.take_notifications()) == MAX_PENDING


@pytest.mark.parametrize(("asked", "heard"), [("debug", 8), ("warning", 5), ("emergency", 1)])
async def test_logs_below_the_level_are_not_sent(asked: str, heard: int) -> None:
    execution = _execution(level=asked)
    for level in ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]:
        execution.log(level, level, "test")
    assert len(execution.take_notifications()) == heard


@pytest.mark.parametrize(
    ("done", "total", "message", "error"),
    [
        ("1", None, None, TypeError),
        (True, None, None, TypeError),
        (1, "2", None, TypeError),
        (1, None, 5, TypeError),
        (math.nan, None, None, ValueError),
        (math.inf, None, None, ValueError),
        (1, math.nan, None, ValueError),
    ],
)
async def test_progress_that_is_no_number_is_the_authors_mistake(
    done: Any, total: Any, message: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        _execution().progress(done, total, message)


async def test_an_unknown_level_is_the_authors_mistake() -> None:
    with pytest.raises(ValueError, match="emergency"):
        _execution().log("loud", "x", None)


async def test_waiting_ends_with_the_result_and_the_first_ending_counts() -> None:
    execution = _execution()
    asyncio.get_running_loop().call_soon(execution.finish, b"1", Outcome.TIMEOUT)
    await asyncio.wait_for(execution.wait(), 5)
    execution.finish(b"2", Outcome.OK)
    execution.cancel()
    assert (execution.result, execution.outcome) == (b"1", Outcome.TIMEOUT)


async def test_nothing_is_said_after_a_cancellation() -> None:
    left: list[Execution] = []
    execution = _execution(leave=left.append)
    execution.cancel()
    execution.cancel()
    execution.progress(1, None, None)
    execution.finish(b"{}", Outcome.OK)
    assert left == [execution]
    assert execution.result is None
    assert execution.outcome is Outcome.CANCELLED
    assert not execution.has_notifications
    await asyncio.wait_for(execution.wait(), 5)


async def test_who_waits_is_woken_by_what_is_said() -> None:
    execution = _execution()
    asyncio.get_running_loop().call_soon(execution.progress, 1, None, None)
    await asyncio.wait_for(execution.wait(), 5)
    assert execution.has_notifications
