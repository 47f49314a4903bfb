"""How a server ends that is asked for it in other ways, and what cannot hold it up."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from app.cli.exits import Exit
from tests.life.watching import reasons
from tests.sessions.conversation import Conversation
from tests.support.client import read_reply
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write_tool
from tests.support.waiting import eventually, eventually_lines

TOOLS: Final = Path(__file__).parent / "tools"
LONG_S: Final = 60.0
TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def _send(server: ServerProcess, number: int) -> None:
    os.kill(server.pid, number)


def _errors(server: ServerProcess) -> list[dict[str, Any]]:
    return [log for log in server.logs() if log.get("level") in ("error", "critical")]


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param([TERM, TERM], id="SIGTERM twice"),
        pytest.param([TERM, INT], id="SIGTERM, then Ctrl+C"),
        pytest.param([INT], id="Ctrl+C"),
        pytest.param([HUP], id="the terminal is closed"),
    ],
)
def test_who_is_in_a_hurry_does_not_wait_for_the_window(
    server_factory: ServerFactory, signals: Sequence[int]
) -> None:
    config = {"server": {"drain_s": LONG_S, "shutdown_grace_s": LONG_S}}
    server = server_factory(TOOLS, config)
    with server.client.listening(id="L1") as stream:
        for number in signals[:-1]:
            _send(server, number)
            eventually(lambda: server.client.get("/readyz").status == 503, "it is not ready")
        begun = time.monotonic()
        _send(server, signals[-1])
        (message,) = stream.rest()
        assert message["result"]["resultType"] == "complete"
    assert server.wait() == Exit.OK
    assert time.monotonic() - begun < 5
    assert _errors(server) == []


def test_a_second_ctrl_c_does_not_wait_for_running_calls(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory(TOOLS, {"server": {"shutdown_grace_s": LONG_S}})
    notes = tmp_path / "notes"
    arguments = {"path": str(notes), "release": str(tmp_path / "never")}
    params = {"name": "wait", "arguments": arguments}
    with server.client.connect() as connection:
        connection.send(server.client.request("tools/call", params).encode())
        eventually_lines(notes, "started")
        _send(server, INT)
        eventually(lambda: _is_refused(server), "the socket is closed")
        begun = time.monotonic()
        _send(server, INT)
        assert server.wait() == Exit.OK
    assert time.monotonic() - begun < 5
    assert _errors(server) == []


def _is_refused(server: ServerProcess) -> bool:
    try:
        server.client.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_outside_of_a_fleet_nobody_is_waited_for(server_factory: ServerFactory) -> None:
    """Nobody looks at readiness there: listeners hear at once, and the socket closes."""
    server = server_factory(TOOLS)
    with ExitStack() as stack:
        streams = [stack.enter_context(server.client.listening(id=n)) for n in range(5)]
        begun = time.monotonic()
        server.terminate()
        for stream in streams:
            assert len(stream.rest(2)) == 1
        assert server.wait() == Exit.OK
    assert time.monotonic() - begun < 2


def test_a_question_to_a_user_does_not_take_the_grace(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory(TOOLS, {"server": {"shutdown_grace_s": LONG_S}})
    with Conversation([server]) as old:
        old.open()
        params = {"name": "ask", "arguments": {"path": str(tmp_path / "notes")}}
        with old.stream("tools/call", params) as (_, events):
            assert next(event.message for event in events if event.message)["method"]
            server.terminate()
            rest = [event.message for event in events if event.message]
    assert rest[-1]["result"]["isError"]
    assert server.wait(5) == Exit.OK


def test_a_tool_that_computes_in_the_event_loop_for_ever_does_not_hold_it_up(
    tmp_path: Path,
) -> None:
    server = ServerProcess(TOOLS, {"server": {"shutdown_grace_s": 0.1}})
    notes = tmp_path / "notes"
    with server.client.connect() as connection:
        params = {"name": "block", "arguments": {"path": str(notes)}}
        connection.send(server.client.request("tools/call", params).encode())
        eventually_lines(notes, "started")
        server.expected = Exit.STUCK
        server.stop()
    (line,) = server.logs("end_forced")
    assert line["after_s"] == 5.1


def test_new_code_answers_while_a_listener_stays(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """SH-06: nothing is restarted for new code, so no stream can hold that up."""
    write_tool(tmp_path, "answer", "old")
    server = server_factory(tmp_path)
    with server.client.listening() as stream:
        write_tool(tmp_path, "answer", "new", "Answer anew.")
        assert stream.next(5)["method"] == "notifications/tools/list_changed"
        assert server.client.call("answer").value == "new"


def test_a_request_in_the_window_may_be_the_last_of_a_connection_that_was_busy(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """One that began before SIGTERM says it too, unless its head was sent already."""
    server = server_factory(TOOLS, {"server": {"drain_s": 2}})
    notes, release = tmp_path / "notes", tmp_path / "release"
    arguments = {"path": str(notes), "release": str(release)}
    with server.client.connect() as connection:
        params = {"name": "wait", "arguments": arguments}
        connection.send(server.client.request("tools/call", params).encode())
        eventually_lines(notes, "started")
        server.terminate()
        response = eventually(
            lambda: (r := server.client.get("/readyz")).status == 503 and r, "it is not ready"
        )
        assert response and reasons(response) == (False, ["The server is about to stop."])
        release.touch()
        reply = read_reply(connection, "tools/call")
        assert (reply.text, reply.header("connection")) == ("released", "close")
        assert connection.expect_end() == b""
    assert server.wait() == Exit.OK
