"""Event streams: when an answer becomes one, how it is written, what it carries."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.sse import Comment
from tests.support.waiting import eventually, eventually_lines

TOKEN = meta(progressToken="t")


@pytest.fixture(scope="module")
def quick(module_server_factory: ServerFactory) -> ServerProcess:
    """A server that shows signs of life every 0.3 s, where the shipped one waits 10 s and 15 s."""
    return module_server_factory(
        config={
            "execution": {"silence_s": 0.3, "keep_alive_s": 0.3},
            "server": {"request_timeout_s": 0.5},
            "tools": {"reload": False},
        }
    )


def waiting(folder: Path, **more: Any) -> dict[str, Any]:
    """Arguments of a tool that waits until `release` is there."""
    return {"path": str(folder / "notes"), "release": str(folder / "release"), **more}


def test_a_tool_that_is_quick_and_quiet_is_answered_in_json(client: McpClient) -> None:
    reply = client.call("echo", {"text": "t"}, meta_=TOKEN)
    assert not reply.streamed
    assert len(reply.messages) == 1


@pytest.mark.parametrize("tool", ["wait_async", "wait_sync"])
def test_a_silent_tool_becomes_a_stream_that_shows_signs_of_life(
    quick: ServerProcess, tmp_path: Path, tool: str
) -> None:
    """ST-01, ST-04 without a proxy: comments only, then the result."""
    params = {"name": tool, "arguments": waiting(tmp_path)}
    with quick.client.stream("tools/call", params, id="s") as stream:
        for _ in range(4):
            assert isinstance(stream.reader.next(3.0), Comment)
        (tmp_path / "release").touch()
        message = stream.next()
        assert message["id"] == "s"
        assert message["result"]["content"][0]["text"] == "released"
        assert stream.rest() == []
        stream.reader.assert_one_terminator()


def test_a_silent_tool_of_a_json_client_is_waited_for(quick: ServerProcess, tmp_path: Path) -> None:
    """ST-14: no stream for a client that does not accept one."""
    request = quick.client.request(
        "tools/call",
        {"name": "wait_async", "arguments": waiting(tmp_path)},
        {"Accept": "application/json"},
    )
    with quick.client.connect() as connection:
        connection.send(request.encode())
        eventually_lines(tmp_path / "notes", "started")
        with quick.client.connect() as other:  # long enough for a stream to have begun
            for _ in range(3):
                assert quick.client.ask("tools/list", connection=other).status == 200
        (tmp_path / "release").touch()
        response = connection.read_response()
    assert response.media_type == "application/json"
    assert response.json()["result"]["content"][0]["text"] == "released"


@rows(
    "how, outcome",
    ("ST-01 a header", {"headers": {"Mcp-Name": "x"}}, (400, -32020)),
    ("ST-01 a method", {"method": "tools/none"}, (404, -32601)),
    ("ST-01 a tool", {"params": {"name": "nobody"}}, (400, -32602)),
    ("ST-01 a version", {"meta_": meta(clientCapabilities=None)}, (400, -32602)),
    (
        "ST-01 a mirrored parameter",
        {"params": {"name": "in_region", "arguments": {"region": "x"}}},
        (400, -32020),
    ),
)
def test_what_is_wrong_before_the_tool_runs_is_plain_json(
    client: McpClient, how: dict[str, Any], outcome: tuple[int, int]
) -> None:
    """wire §0.2: also for a client that would rather have a stream."""
    call: dict[str, Any] = {"method": "tools/call", "params": {"name": "echo"}, "headers": {}} | how
    call["headers"] = {"Accept": "text/event-stream"} | call["headers"]
    reply = client.ask(**call)
    assert reply.outcome == outcome
    assert reply.response.media_type == "application/json"


@pytest.mark.parametrize(
    "token", ["t", "", 7, 0, -1, 2**53], ids=lambda token: f"wire §5 {token!r}"
)
def test_progress_carries_the_token_with_its_type(client: McpClient, token: Any) -> None:
    """wire §5 progressToken, wire §5 SSE response."""
    reply = client.call("count", {"steps": 3}, meta_=meta() | {"progressToken": token})
    assert reply.streamed
    progress = reply.notifications("notifications/progress")
    assert [each["progress"] for each in progress] == [1, 2, 3]
    assert all(each["progressToken"] == token for each in progress)
    assert all(type(each["progressToken"]) is type(token) for each in progress)
    assert [each["total"] for each in progress] == [3, 3, 3]
    assert [each["message"] for each in progress] == ["step 1", "step 2", "step 3"]
    assert "_meta" not in progress[0] or "subscriptionId" not in str(progress[0]["_meta"])
    assert reply.text == "3 steps"


def test_fractions_are_progress(client: McpClient) -> None:
    reply = client.call("count", {"steps": 3, "fractions": True}, meta_=TOKEN)
    values = [each["progress"] for each in reply.notifications("notifications/progress")]
    assert values == [0.5, 1, 1.5]


def test_progress_from_a_thread_arrives(client: McpClient) -> None:
    reply = client.call("count_in_thread", {"steps": 3}, meta_=TOKEN)
    values = [each["progress"] for each in reply.notifications("notifications/progress")]
    assert values[-1] == 3
    assert values == sorted(set(values))


def test_progress_that_does_not_increase_is_dropped(client: McpClient) -> None:
    reply = client.call("count_backwards", meta_=TOKEN)
    values = [each["progress"] for each in reply.notifications("notifications/progress")]
    assert values == [1, 3, 4]


def test_a_flood_of_progress_is_thinned_out_and_its_end_arrives(client: McpClient) -> None:
    reply = client.call("flood", {"count": 20_000}, meta_=TOKEN)
    values = [each["progress"] for each in reply.notifications("notifications/progress")]
    assert 1 <= len(values) < 2_000
    assert values == sorted(set(values))
    assert values[-1] == 20_000
    assert reply.text == "done"


def test_without_a_token_there_is_no_progress(client: McpClient) -> None:
    reply = client.call("count", {"steps": 2})
    assert len(reply.messages) == 1


@pytest.mark.parametrize("tool", ["count", "count_in_thread"])
def test_a_json_answer_is_the_response_and_never_a_notification(
    client: McpClient, tool: str
) -> None:
    """ST-14."""
    reply = client.call(tool, {}, {"Accept": "application/json"}, meta_=TOKEN, id="j")
    assert not reply.streamed
    assert reply.last["id"] == "j"
    assert reply.text == "3 steps"


# -- log messages ----------------------------------------------------------------

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_client_gets_messages_from_its_level_on(client: McpClient, level: str) -> None:
    reply = client.call("say_all", meta_=meta(logLevel=level))
    levels = [each["level"] for each in reply.notifications("notifications/message")]
    assert levels == LEVELS[LEVELS.index(level) :]


def test_without_a_level_there_are_no_messages(client: McpClient) -> None:
    """wire §5 logLevel absent."""
    for own in (meta(), TOKEN):
        assert client.call("say_all", meta_=own).notifications("notifications/message") == []


def test_a_message_carries_its_data_and_logger(client: McpClient) -> None:
    data = {"a": [1, "é"]}
    reply = client.call("say", {"level": "warning", "data": data}, meta_=meta(logLevel="debug"))
    (message,) = reply.notifications("notifications/message")
    assert message["data"] == data
    assert message["logger"] == "speaker"
    assert reply.text == "said"


def test_messages_and_progress_come_before_the_result(client: McpClient) -> None:
    reply = client.call("count", {"steps": 2}, meta_=TOKEN)
    assert ["method" in each for each in reply.messages] == [True, True, False]


# -- form ----------------------------------------------------------------------------


def test_a_message_is_one_data_line_whatever_is_in_it(client: McpClient) -> None:
    """ST-09: more than 64 KiB, every terminator, one line."""
    reply = client.call("give_lines", {}, {"Accept": "text/event-stream"})
    assert reply.streamed
    assert reply.value["text"].startswith('a\r\nb\nc\td"e\\f\u2028g\u0085hé€😀')
    raw = reply.response.body
    assert raw.count(b"\ndata:") + raw.startswith(b"data:") == 1
    assert len(raw) > 65_536
    assert not raw.startswith(b"\xef\xbb\xbf")
    assert raw.endswith((b"\n\n", b"\r\n\r\n"))
    assert b"\nid:" not in raw and b"\nretry:" not in raw


@pytest.mark.parametrize("coding", ["gzip, br", "gzip", "*"])
def test_streams_are_not_compressed(client: McpClient, coding: str) -> None:
    """ST-07."""
    headers = {"Accept-Encoding": coding}
    with client.listening(headers=headers) as stream:
        assert stream.response.header("content-encoding") is None
    reply = client.call("count", {}, headers, meta_=TOKEN)
    assert reply.streamed and reply.text == "3 steps"


def test_a_stream_may_be_read_by_what_follows_on_the_connection(client: McpClient) -> None:
    with client.connect() as connection:
        for number in range(3):
            reply = client.call("count", {}, meta_=TOKEN, id=number, connection=connection)
            assert reply.streamed and reply.last["id"] == number
        assert client.call("echo", {"text": "t"}, connection=connection).value == "t"


def test_a_failure_after_the_stream_began_rides_it(client: McpClient, tmp_path: Path) -> None:
    """wire §5 errors after SSE started, RS-12."""
    params = {"name": "fail_after", "arguments": waiting(tmp_path)}
    with client.stream("tools/call", params, meta_=TOKEN) as stream:
        assert stream.next()["method"] == "notifications/progress"
        (tmp_path / "release").touch()
        message = stream.next()
        assert message["result"]["isError"] is True
        assert "hunter2" not in str(message)
        assert stream.rest() == []


def test_the_first_event_is_not_held_back(client: McpClient, tmp_path: Path) -> None:
    """ST-02 without a proxy, ST-07: headers and event arrive while the tool still waits."""
    params = {"name": "wait_async", "arguments": waiting(tmp_path, progress=True)}
    with client.stream("tools/call", params, meta_=TOKEN) as stream:
        assert stream.next(2.0)["params"]["progress"] == 1
        (tmp_path / "release").touch()
        assert stream.next()["result"]["content"][0]["text"] == "released"


# -- deadlines ---------------------------------------------------------------------------


@rows(
    "tool",
    ("EX-04 in the loop", "too_slow_async"),
    ("EX-04 in a thread", "too_slow_sync"),
    ("EX-04 swallows the cancellation", "stubborn"),
)
def test_a_deadline_is_kept_whatever_the_tool_does(
    client: McpClient, tmp_path: Path, tool: str
) -> None:
    arguments = waiting(tmp_path)
    if tool == "too_slow_async":
        del arguments["release"]
    reply = client.call(tool, arguments, timeout_s=5.0)
    assert reply.status == 200
    assert reply.is_error
    assert "0.3" in reply.text
    assert client.call("quick_sync", {"n": 3}).value in (3, {"result": 3})
    (tmp_path / "release").touch()
    if tool != "too_slow_async":
        eventually_lines(tmp_path / "notes", "finished")


def test_a_listen_stream_has_no_deadline(server_factory: ServerFactory, tmp_path: Path) -> None:
    """ST-06: neither the tools' deadline nor that of a request ends it."""
    (tmp_path / "a.py").write_text("from app import tool\n", "utf-8")
    server = server_factory(
        tmp_path,
        {
            "execution": {"timeout_s": 0.2, "keep_alive_s": 0.3},
            "server": {"request_timeout_s": 0.2, "keep_alive_s": 0.3},
        },
    )
    with server.client.listening() as stream:
        for _ in range(5):  # 1.5 s: seven times each deadline
            stream.reader.next_comment(3.0)
        (tmp_path / "b.py").write_text(
            'from app import tool\n\n\n@tool\ndef b() -> int:\n    """B."""\n    return 1\n',
            "utf-8",
        )
        assert stream.next()["method"] == "notifications/tools/list_changed"


def test_threads_do_not_hold_up_the_loop(client: McpClient, tmp_path: Path) -> None:
    """EX-01: while sync tools wait, everything else is answered."""
    requests = [client.connect() for _ in range(3)]
    for number, connection in enumerate(requests):
        folder = tmp_path / str(number)
        folder.mkdir()
        params = {"name": "wait_sync", "arguments": waiting(folder)}
        connection.send(client.request("tools/call", params).encode())
        eventually_lines(folder / "notes", "started")
    assert client.get("/healthz").status == 200
    assert client.ask("tools/list", timeout_s=2.0).status == 200
    assert client.call("quick_sync", {"n": 1}, timeout_s=2.0).status == 200
    for number, connection in enumerate(requests):
        (tmp_path / str(number) / "release").touch()
        assert connection.read_response().status == 200
        connection.close()


def test_more_calls_than_allowed_are_sent_away_politely(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """wire §0.4 503, wire §0.5: and discovery is never limited."""
    server = server_factory(config={"limits": {"concurrent_calls": 1}, "tools": {"reload": False}})
    client = server.client
    params = {"name": "wait_async", "arguments": waiting(tmp_path)}
    with client.connect() as busy:
        busy.send(client.request("tools/call", params).encode())
        eventually_lines(tmp_path / "notes", "started")
        reply = client.call("echo", {"text": "t"}, id="late")
        assert reply.outcome in ((503, -31503), (429, -31429))
        assert int(reply.header("retry-after") or "") >= 1
        assert reply.error["data"]["retryAfterMs"] >= 1
        assert reply.last["id"] == "late"
        for method in ("server/discover", "tools/list"):
            assert client.ask(method).status == 200
        assert client.ask("notifications/x", body={"jsonrpc": "2.0", "method": "x"}).status == 202
        (tmp_path / "release").touch()
        assert busy.read_response().status == 200
    eventually(lambda: client.call("echo", {"text": "t"}).status == 200, "a free place")


def test_a_message_without_json_form_is_the_tools_failure_alone(
    server_factory: ServerFactory,
) -> None:
    """RS-04, RS-06: neither sent as something else, nor the end of the server."""
    client = server_factory(config={"tools": {"reload": False}}).client
    for kind in ("object", "bytes", "surrogate", "nan", "cycle"):
        own = meta(logLevel="debug")
        reply = client.call("say_odd", {"kind": kind}, meta_=own, timeout_s=5.0)
        assert reply.is_error, kind
        assert reply.notifications("notifications/message") == []
        assert client.call("echo", {"text": "next"}, timeout_s=5.0).value == "next"
