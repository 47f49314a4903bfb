"""The log: one line per request, nothing that a client could use, nothing that it may not know."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.server import Log, ServerFactory, ServerProcess

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARY = "canary-5e1f"


def line_of(server: ServerProcess, mark: int, **fields: Any) -> Log:
    """The request line that has the given fields."""
    return server.wait_for_log(
        lambda log: (
            log.get("event") == "request"
            and all(log.get(key) == value for key, value in fields.items())
        ),
        after=mark,
    )


def after_all(server: ServerProcess) -> str:
    """The whole log, once a later request is in it."""
    mark = server.log_mark()
    server.client.ask("server/discover")
    line_of(server, mark, method="server/discover")
    return server.log_text()


def test_a_request_has_one_line_that_says_what_became_of_it(
    client: McpClient, server: ServerProcess
) -> None:
    mark = server.log_mark()
    own = meta(clientInfo={"name": "a client", "version": "1.0"}, traceparent=TRACE)
    client.call("echo", {"text": "t"}, meta_=own, id="log-1")
    line = line_of(server, mark, method="tools/call")
    assert line["tool"] == "echo"
    assert line["request_id"] == "log-1"
    assert line["status"] == 200
    assert line["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert "a client" in line["client"]
    assert 0 <= line["duration_ms"] < 10_000
    after_all(server)
    requests = [log for log in server.logs("request")[0:] if log.get("request_id") == "log-1"]
    assert len(requests) == 1


@rows(
    "how, expected",
    ("a parse error", {"body": b"{"}, {"status": 400}),
    ("a mismatch", {"headers": {"Mcp-Name": "x"}}, {"status": 400}),
    ("an unknown tool", {"params": {"name": "nobody"}}, {"status": 400}),
    ("an unknown method", {"method": "foo/bar"}, {"status": 404}),
    ("a wrong type", {"headers": {"Content-Type": "text/plain"}}, {"status": 415}),
    ("a foreign origin", {"headers": {"Origin": "http://evil.test"}}, {"status": 403}),
    ("a wrong method", {"http": "DELETE"}, {"status": 405}),
    ("a notification", {"body": {"jsonrpc": "2.0", "method": "x"}}, {"status": 202}),
)
def test_a_refused_request_has_a_line_too(
    client: McpClient, server: ServerProcess, how: dict[str, Any], expected: dict[str, Any]
) -> None:
    mark = server.log_mark()
    client.ask(**{"method": "tools/call", "params": {"name": "echo"}} | how)
    line_of(server, mark, **expected)


def test_outcomes_are_told_apart(client: McpClient, server: ServerProcess) -> None:
    outcomes = {}
    for name, tool, arguments in (
        ("good", "echo", {"text": "t"}),
        ("bad arguments", "echo", {}),
        ("tool error", "fail_for_the_model", {}),
        ("failure", "fail", {}),
    ):
        mark = server.log_mark()
        client.call(tool, arguments)
        outcomes[name] = line_of(server, mark, tool=tool)["outcome"]
    assert outcomes["good"] not in (outcomes["bad arguments"], outcomes["failure"])
    assert outcomes["failure"] != outcomes["tool error"]


def test_a_streamed_call_has_its_line_when_it_ends(
    client: McpClient, server: ServerProcess
) -> None:
    mark = server.log_mark()
    client.call("count", meta_=meta(progressToken=1), id="log-2")
    line = line_of(server, mark, request_id="log-2")
    assert (line["tool"], line["status"]) == ("count", 200)
    assert line["duration_ms"] >= 40  # the tool pauses three times


@rows(
    "how",
    ("an argument", {"arguments": {"text": CANARY}}),
    ("an argument's name", {"arguments": {CANARY: 1}}),
    ("a wrong argument", {"tool": "add", "arguments": {"a": CANARY}}),
    ("an argument of a failing tool", {"tool": "fail", "arguments": {"path": None, CANARY: 1}}),
    ("a stringified argument", {"tool": "take_tags", "arguments": {"tags": f'["{CANARY}", 1]'}}),
    ("a mirrored argument", {"tool": "in_region", "arguments": {"region": CANARY}}),
    ("a parameter header", {"headers": {"Mcp-Param-Region": CANARY}, "arguments": {"text": "t"}}),
    ("a token", {"headers": {"Authorization": f"Bearer {CANARY}"}, "arguments": {"text": "t"}}),
    ("a cookie", {"headers": {"Cookie": f"a={CANARY}"}, "arguments": {"text": "t"}}),
    ("a token in the query", {"path": f"/mcp?access_token={CANARY}", "arguments": {"text": "t"}}),
    ("a body that is not JSON", {"body": b'{"text": "' + CANARY.encode()}),
    (
        "a value in _meta",
        {"meta_": meta() | {"example.com/key": CANARY}, "arguments": {"text": "t"}},
    ),
)
def test_what_a_client_sends_is_not_logged(
    client: McpClient, server: ServerProcess, how: dict[str, Any]
) -> None:
    """AU-16, AU-17 as far as they need no authentication."""
    how = {"tool": "echo"} | how
    client.call(how.pop("tool"), **how)
    assert CANARY not in after_all(server)


@rows(
    "text",
    ("line breaks", 'x\n{"event":"request","method":"forged"}'),
    ("carriage returns", "x\r\nforged"),
    ("terminal codes", "\x1b[31mred\x1b]0;title\x07"),
    ("other line breaks", "a\u2028b\u0085c\u2029d"),
    ("a null byte", "a\x00b"),
    ("directions", "a\u202eb"),
    ("length", "n" * 100_000),
    ("format strings", "%s %(x)s {x} {0.__class__}"),
)
def test_a_client_does_not_control_lines_of_the_log(
    client: McpClient, server: ServerProcess, text: str
) -> None:
    mark = server.log_mark()
    info = {"name": text, "version": text}
    client.call("echo", {"text": "t"}, meta_=meta(clientInfo=info), id="inject")
    line = line_of(server, mark, request_id="inject")
    assert len(str(line["client"])) <= 300
    client.ask("tools/list", id=text)
    client.ask("x/" + text, {}, {"Mcp-Method": "x"})
    client.call(text, {}, id=8)
    client.ask("tools/list", meta_=meta(traceparent=text))
    after_all(server)
    raw = server.log_text()
    assert not [log for log in server.logs() if log.get("method") == "forged"]
    assert server.noise() == []
    for forbidden in ("\x1b", "\x07", "\x00", "\r", "\u2028", "\u0085", "\u202e"):
        assert forbidden not in raw, repr(forbidden)
    assert max(map(len, raw.splitlines())) < 20_000


def test_headers_do_not_control_lines_of_the_log(client: McpClient, server: ServerProcess) -> None:
    for value in (b"\xff\xfe", "\u00e9".encode(), b"a\tb", b"%s{x}"):
        for name in ("Origin", "Mcp-Method", "Mcp-Name", "User-Agent", "traceparent"):
            client.ask("tools/call", {"name": "echo"}, {name: value})
    after_all(server)
    assert server.noise() == []


def test_a_path_does_not_control_lines_of_the_log(client: McpClient, server: ServerProcess) -> None:
    for path in ("/x%0aforged", "/%1b[31m", "/" + "p" * 10_000, "/%ff%fe", "/a?b=%0d%0a"):
        client.get(path)
    text = after_all(server)
    assert server.noise() == []
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 20_000


def test_the_answer_does_not_tell_what_the_log_tells(client: McpClient) -> None:
    """RS-12: the log has the traceback, the answer has its id."""
    text = client.call("fail").text
    assert "hunter2" not in text
    assert len(text) < 300


@pytest.mark.parametrize("level", ["debug", "info"])
def test_levels_change_how_much_is_said_and_nothing_else(
    server_factory: ServerFactory, tmp_path: Path, level: str
) -> None:
    """AU-16: not even at debug do arguments or tokens appear."""
    server = server_factory(config={"logging": {"level": level}, "tools": {"reload": False}})
    headers = {"Authorization": f"Bearer {CANARY}", "Mcp-Param-Region": CANARY}
    assert server.client.call("echo", {"text": CANARY}, headers).text == CANARY
    server.client.call("in_region", {"region": CANARY}, {"Mcp-Param-Region": CANARY})
    server.client.call("fail", {"path": str(tmp_path / CANARY)})
    server.client.call("add", {"a": CANARY})
    server.client.ask("tools/list", body=CANARY.encode())
    server.stop()
    text = server.log_text()
    # The failing tool's own traceback must not show its arguments either.
    assert CANARY not in text.replace(json.dumps(str(tmp_path))[1:-1], "")
