"""`notifications/cancelled` stops a request, and nothing more is said about it."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURE_TOOLS
from tests.support.client import body_of, meta
from tests.support.stdio import StdioFactory, StdioServer
from tests.support.waiting import eventually_lines

ISOLATED = FIXTURE_TOOLS.parent / "isolated"


def cancelled(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def test_an_asynchronous_tool_is_stopped(server: StdioServer, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    id = server.begin("wait_async", {"path": str(notes), "progress": True})
    eventually_lines(notes, "started")
    server.cancel(id)

    assert eventually_lines(notes, "closed") == ["started", "cancelled", "closed"]
    server.settled()
    assert server.about(id) == []
    line = server.wait_for_log(lambda log: log.get("request_id") == id)
    assert line["outcome"] == "cancelled"


def test_what_a_tool_says_after_it_was_cancelled_is_not_sent(
    server: StdioServer, tmp_path: Path
) -> None:
    notes, release = tmp_path / "notes", tmp_path / "release"
    arguments = {"path": str(notes), "release": str(release)}
    id = server.begin("wait_sync", arguments, meta=meta(progressToken="token"))
    eventually_lines(notes, "started")
    server.cancel(id)
    eventually_lines(notes, "cancelled")
    release.touch()

    eventually_lines(notes, "finished")
    server.settled()
    assert server.about(id) == server.about("token") == []


def test_a_tool_in_a_process_is_killed(start: StdioFactory) -> None:
    server = start(ISOLATED, {"tools": {"reload": False}}, is_noisy=True)
    id = server.begin("sleeps", {"seconds": 60})
    server.result(server.begin("sleeps", {"seconds": 0}))  # the one before runs by now
    server.cancel(id)

    line = server.wait_for_log(lambda log: log.get("event") == "process_replaced")
    assert line["reason"] == "cancelled"
    server.settled()
    assert server.about(id) == []


def test_a_request_and_its_cancellation_may_come_together(
    server: StdioServer, tmp_path: Path
) -> None:
    ids = [server.new_id() for _ in range(50)]
    for id in ids:
        arguments = {"path": str(tmp_path / id)}
        call = body_of("tools/call", {"name": "wait_async", "arguments": arguments}, id=id)
        server.send(call, cancelled(id))

    server.settled()
    assert [message for id in ids for message in server.about(id)] == []
    for id in ids:
        server.wait_for_log(partial(_is_about, id))


def _is_about(id: str, log: dict[str, Any]) -> bool:
    return log.get("request_id") == id


def test_a_cancelled_id_is_free_again(server: StdioServer, tmp_path: Path) -> None:
    arguments = {"path": str(tmp_path / "notes")}
    call = body_of("tools/call", {"name": "wait_async", "arguments": arguments}, id="again")
    server.send(call, cancelled("again"), body_of("server/discover", id="again"))

    assert "supportedVersions" in server.result("again")
    server.settled()
    assert len(server.about("again")) == 1


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"requestId": None},
        {"requestId": True},
        {"requestId": ["held"]},
        {"requestId": {"a": 1}},
        {"requestId": "unknown"},
        {"requestId": "r1"},
        {"requestId": 9, "reason": 5},
    ],
)
def test_what_cancels_nothing_is_ignored(
    server: StdioServer, tmp_path: Path, params: dict[str, Any] | None
) -> None:
    notes, release = tmp_path / "notes", tmp_path / "release"
    server.result(server.begin("quick_sync"))
    id = server.begin("wait_async", {"path": str(notes), "release": str(release)})
    eventually_lines(notes, "started")
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    server.send(message if params is None else {**message, "params": params})
    server.settled()
    release.touch()

    assert server.result(id)["structuredContent"] == "released"


def test_an_id_is_cancelled_in_its_own_type_alone(server: StdioServer, tmp_path: Path) -> None:
    release = tmp_path / "release"
    for id in (77, "77"):
        arguments = {"path": str(tmp_path / repr(id)), "release": str(release)}
        server.send(body_of("tools/call", {"name": "wait_async", "arguments": arguments}, id=id))
    eventually_lines(tmp_path / "77", "started")
    server.cancel(77)
    eventually_lines(tmp_path / "77", "closed")
    release.touch()

    server.result("77")
    assert [type(message["id"]) for message in server.about("77")] == [str]
    assert server.about(77) == []
