"""Clients that go away, and notifications that cancel nothing."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, encode, meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.waiting import eventually, eventually_lines

SOON_S = 1.0  # what a client that went away may still cost


def arguments(folder: Path, name: str = "", **more: Any) -> dict[str, Any]:
    """Arguments of a tool that waits until `release` is there."""
    return {"path": str(folder / f"notes{name}"), "release": str(folder / "release"), **more}


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_closing_a_stream_cancels_the_tool(client: McpClient, tmp_path: Path, leave: str) -> None:
    """CX-01, ST-17, wire §5 disconnect."""
    notes = tmp_path / "notes"
    params = {"name": "wait_async", "arguments": arguments(tmp_path, progress=True)}
    with client.stream("tools/call", params, meta_=meta(progressToken=1)) as stream:
        stream.next()
        getattr(stream.connection, leave)()
        assert eventually_lines(notes, "closed", SOON_S) == ["started", "cancelled", "closed"]


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
def test_leaving_before_the_first_byte_cancels_the_tool(
    client: McpClient, tmp_path: Path, leave: str, accept: str
) -> None:
    """CX-02 without a proxy, wire §5 disconnect in JSON mode."""
    notes = tmp_path / "notes"
    params = {"name": "wait_async", "arguments": arguments(tmp_path)}
    connection = client.connect()
    connection.send(client.request("tools/call", params, {"Accept": accept}).encode())
    eventually_lines(notes, "started")
    getattr(connection, leave)()
    assert eventually_lines(notes, "closed", SOON_S) == ["started", "cancelled", "closed"]


def test_a_thread_learns_that_its_caller_has_gone(client: McpClient, tmp_path: Path) -> None:
    """CX-04: it cannot be stopped, but it can look."""
    notes = tmp_path / "notes"
    params = {"name": "wait_sync", "arguments": arguments(tmp_path)}
    connection = client.connect()
    connection.send(client.request("tools/call", params).encode())
    eventually_lines(notes, "started")
    connection.close()
    eventually_lines(notes, "cancelled", SOON_S)
    (tmp_path / "release").touch()
    eventually_lines(notes, "finished")


def test_a_cancelled_call_is_logged_as_such(
    client: McpClient, server: ServerProcess, tmp_path: Path
) -> None:
    """ST-17: and as no error of the server."""
    mark = server.log_mark()
    params = {"name": "wait_async", "arguments": arguments(tmp_path)}
    connection = client.connect()
    connection.send(client.request("tools/call", params).encode())
    eventually_lines(tmp_path / "notes", "started")
    connection.close()
    line = server.wait_for_log(
        lambda log: log.get("event") == "request" and log.get("tool") == "wait_async", after=mark
    )
    assert "cancel" in str(line["outcome"]) or "disconnect" in str(line["outcome"])
    assert line.get("level") not in ("error", "critical")


@pytest.fixture(scope="module")
def narrow(module_server_factory: ServerFactory) -> ServerProcess:
    """A server with four threads for sync tools."""
    return module_server_factory(
        config={"execution": {"threads": 4, "timeout_s": 5}, "tools": {"reload": False}}
    )


def test_abandoned_threads_do_not_block_quick_tools(narrow: ServerProcess, tmp_path: Path) -> None:
    """CX-04: three times as many callers leave as there are threads."""
    client = narrow.client
    connections = []
    for number in range(12):
        params = {"name": "wait_sync", "arguments": arguments(tmp_path, str(number))}
        connections.append(client.connect())
        connections[-1].send(client.request("tools/call", params).encode())
    for number in range(4):
        eventually_lines(tmp_path / f"notes{number}", "started")
    for connection in connections:
        connection.close()
    for number in range(10):
        assert client.call("quick_sync", {"n": number}, timeout_s=5.0).text == str(number)
    assert client.get("/healthz").status == 200
    (tmp_path / "release").touch()
    for number in range(4):
        eventually_lines(tmp_path / f"notes{number}", "finished")
    for number in range(10):
        assert client.call("quick_sync", {"n": number}).text == str(number)


@rows(
    "headers",
    ("CX-06 with Mcp-Method", {}),
    ("CX-06 without Mcp-Method", {"Mcp-Method": None}),
)
def test_a_posted_cancellation_cancels_nothing(
    client: McpClient, tmp_path: Path, headers: dict[str, None]
) -> None:
    """wire §0.11: an id is no proof of ownership."""
    callers = {}
    for caller in "AB":
        params = {"name": "wait_async", "arguments": arguments(tmp_path, caller)}
        callers[caller] = client.connect()
        callers[caller].send(client.request("tools/call", params, id=7).encode())
        eventually_lines(tmp_path / f"notes{caller}", "started")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    reply = client.ask("notifications/cancelled", {}, headers, body=encode(cancel))
    assert (reply.status, reply.response.body) == (202, b"")
    (tmp_path / "release").touch()
    for caller, connection in callers.items():
        message = connection.read_response().json()
        assert message["result"]["content"][0]["text"] == "released"
        assert (tmp_path / f"notes{caller}").read_text().split() == [
            "started",
            "finished",
            "closed",
        ]
        connection.close()


def test_nothing_is_left_after_many_clients_have_gone(
    client: McpClient, server: ServerProcess, tmp_path: Path
) -> None:
    """EX-09: connect, begin, leave, at every stage."""

    def sockets() -> int:
        return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))

    client.call("echo", {"text": "t"})
    before = sockets()
    request = client.request(
        "tools/call",
        {"name": "wait_async", "arguments": arguments(tmp_path, progress=True)},
        meta_=meta(progressToken=1),
    ).encode()
    for stage in range(60):
        connection = client.connect()
        connection.send(request[: len(request) * (stage % 3 + 1) // 3])
        if stage % 3 == 2 and stage % 2:
            connection.open_response()
        connection.reset() if stage % 2 else connection.close()
    eventually(lambda: sockets() <= before + 2, "all connections closed")
    notes = tmp_path / "notes"
    eventually(
        lambda: notes.read_text().count("started") == notes.read_text().count("closed"),
        "every call that began has ended",
    )
    assert client.call("echo", {"text": "t"}).value == "t"
    server.assert_clean_log()
