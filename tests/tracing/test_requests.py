"""Each request has its span: its name, attributes and status are those of the conventions."""

import secrets
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.sessions.conversation import Conversation
from tests.support.cases import rows
from tests.support.client import McpClient, body_of, encode, meta
from tests.support.collector import Collector
from tests.support.issuer import Issuer
from tests.support.server import ServerProcess
from tests.support.toolfiles import write_tool
from tests.support.waiting import eventually
from tests.tracing.conftest import Trace, config

CALL = {"gen_ai.operation.name": "execute_tool"}


@rows(
    "method, tool",
    ("a call", "tools/call", "take"),
    ("a list", "tools/list", None),
    ("discovery", "server/discover", None),
)
def test_a_request_that_is_answered_has_a_span_of_its_kind(
    client: McpClient, collector: Collector, caller: Trace, method: str, tool: str | None
) -> None:
    params = {} if tool is None else {"name": tool}
    client.ask(method, params, id="request-7", meta_=caller.meta())

    name = method if tool is None else f"{method} {tool}"
    span = collector.wait(caller.id, name)[name]
    seen = dict(span.attributes)
    assert seen.pop("client.port") > 0
    assert seen == {
        "mcp.method.name": method,
        "mcp.protocol.version": "2026-07-28",
        "jsonrpc.request.id": "request-7",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "mcp_tool_server.outcome": "ok",
        **({} if tool is None else CALL | {"gen_ai.tool.name": tool}),
    }
    assert (span.kind, span.parent, span.status) == ("SERVER", caller.span, "UNSET")
    assert span.ended_ns >= span.began_ns
    assert span.scope == "mcp-tool-server"


@rows(
    "how, name, expected",
    ("refused", {"tool": "refuse", "arguments": {"text": "x"}}, "refuse", ("tool_error", None)),
    ("crashed", {"tool": "crash", "arguments": {"text": "x"}}, "crash", ("internal_error", None)),
    ("late", {"tool": "dawdle"}, "dawdle", ("timeout", None)),
    ("late in a thread", {"tool": "dawdle_in_thread"}, "dawdle_in_thread", ("timeout", None)),
    (
        "arguments that do not fit",
        {"tool": "take", "arguments": {"number": "x"}},
        "take",
        ("tool_error", None),
    ),
    ("an unknown tool", {"tool": "nobody"}, "", ("protocol_error", -32602, "InvalidParams")),
    ("the wrong network", {"tool": "guarded"}, "guarded", ("denied", -31403, "Forbidden")),
    (
        "a bad deadline",
        {"tool": "take", "extra": {"mcp-tool-server/timeoutMs": -1}},
        "take",
        ("protocol_error", -32602, "InvalidParams"),
    ),
    (
        "headers that disagree",
        {"tool": "take", "headers": {"Mcp-Name": "other"}},
        "",
        ("protocol_error", -32020, "HeaderMismatch"),
    ),
    (
        "a version that is not served",
        {
            "tool": "take",
            "headers": {"MCP-Protocol-Version": "2030-01-01"},
            "extra": {"io.modelcontextprotocol/protocolVersion": "2030-01-01"},
        },
        "",
        ("protocol_error", -32022, "UnsupportedProtocolVersion"),
    ),
)
def test_a_request_that_fails_has_its_error(
    client: McpClient, collector: Collector, how: dict[str, Any], name: str, expected: Any
) -> None:
    caller, (outcome, code, *described) = Trace(), expected
    how = dict(how)
    about = caller.meta(**how.pop("extra", {}))
    reply = client.call(how.pop("tool"), how.pop("arguments", {}), meta_=about, **how)

    title = f"tools/call {name}".strip()
    span = collector.wait(caller.id, title)[title]
    assert span.attributes["mcp_tool_server.outcome"] == outcome
    assert span.attributes.get("rpc.response.status_code") == (None if code is None else str(code))
    assert span.error == ("tool_error" if code is None else str(code))
    assert (span.status, span.description) == ("ERROR", "".join(described))
    assert span.parent == caller.span
    assert reply.code == code
    has_id = "error id" in (reply.text if code is None else "")
    assert ("mcp_tool_server.error_id" in span.attributes) is has_id


def test_what_is_counted_out_is_told_so(client: McpClient, collector: Collector) -> None:
    first, second = Trace(), Trace()
    first.call(client, "rare")
    assert second.call(client, "rare").code == -31429

    span = collector.wait(second.id, "tools/call rare")["tools/call rare"]
    assert span.attributes["mcp_tool_server.outcome"] == "limited"
    assert span.error == "-31429"
    assert collector.wait(first.id, "tools/call rare")["tools/call rare"].status == "UNSET"


@pytest.mark.parametrize("method", ["foo/bar", "x" * 5000, "tools/call\n", "\x00"])
def test_a_method_that_a_client_makes_up_names_no_span(
    client: McpClient, collector: Collector, caller: Trace, method: str
) -> None:
    body = body_of(method, meta_=caller.meta())
    client.ask("tools/list", body=body)

    (span,) = collector.wait_for(lambda each: each.trace == caller.id)
    assert span.name == span.attributes["mcp.method.name"] == "_OTHER"
    assert span.status == "ERROR"


@pytest.mark.parametrize("tool", ["nobody", "y" * 5000, "a\nb"])
def test_a_tool_that_a_client_makes_up_is_in_no_span(
    client: McpClient, collector: Collector, caller: Trace, tool: str
) -> None:
    caller.call(client, tool)

    (span,) = collector.wait_for(lambda each: each.trace == caller.id)
    assert span.name == "tools/call"
    assert "gen_ai.tool.name" not in span.attributes
    assert tool not in str(span)


@pytest.mark.parametrize(
    ("id", "seen"),
    [(0, "0"), (10**30, str(10**30)), ("", ""), ("i" * 5000, "i" * 64), ("a\nb", r"a\nb")],
)
def test_an_id_is_bounded_and_printable(
    client: McpClient, collector: Collector, caller: Trace, id: Any, seen: str
) -> None:
    client.ask("tools/list", id=id, meta_=caller.meta())

    span = collector.wait(caller.id, "tools/list")["tools/list"]
    assert span.attributes["jsonrpc.request.id"] == seen


def test_a_notification_has_a_span_without_an_id(
    client: McpClient, collector: Collector, caller: Trace
) -> None:
    body = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1, "_meta": {"traceparent": caller.parent}},
    }
    assert client.ask("notifications/cancelled", body=body).status == 202

    span = collector.wait(caller.id, "notifications/cancelled")["notifications/cancelled"]
    assert "jsonrpc.request.id" not in span.attributes
    assert (span.kind, span.status) == ("SERVER", "UNSET")


@rows(
    "body",
    ("no JSON", b"{"),
    ("no message", encode({"jsonrpc": "2.0"})),
    ("an answer", encode({"jsonrpc": "2.0", "id": 1, "result": {}})),
)
def test_what_is_no_request_has_no_span(
    client: McpClient, server: ServerProcess, body: bytes
) -> None:
    mark = server.log_mark()
    client.ask("tools/list", headers={"traceparent": Trace().parent}, body=body)

    line = server.wait_for_log(
        lambda log: log.get("event") == "request" and log["method"] is None, after=mark
    )
    assert "trace_id" not in line


def test_a_stranger_has_no_span(client: McpClient, server: ServerProcess) -> None:
    mark = server.log_mark()
    about = {"Authorization": "Bearer of-nobody", "traceparent": Trace().parent}
    assert client.ask("tools/list", headers=about).status == 401

    line = server.wait_for_log(lambda log: log.get("status") == 401, after=mark)
    assert "trace_id" not in line


def test_a_client_that_goes_has_not_made_an_error(
    client: McpClient, collector: Collector, caller: Trace
) -> None:
    request = client.request("tools/call", {"name": "wait_long"}, meta_=caller.meta())
    with client.connect() as connection:
        connection.send(request.encode())
        client.ask("server/discover")
    spans = collector.wait(caller.id, "tools/call wait_long", "run wait_long")

    for span in (spans["tools/call wait_long"], spans["run wait_long"]):
        assert span.attributes["mcp_tool_server.outcome"] == "cancelled"
        assert (span.status, span.error) == ("UNSET", None)


def test_a_listener_has_one_span_with_what_it_was_told(
    collector: Collector, caller: Trace, tmp_path: Path
) -> None:
    write_tool(tmp_path, "one")
    filters = {"notifications": {"toolsListChanged": True}}
    name = "subscriptions/listen"
    with ServerProcess(
        tmp_path, config(tools={"reload": True}), env=collector.environment
    ) as server:
        with server.client.stream(name, filters, meta_=caller.meta()) as stream:
            stream.next()
            write_tool(tmp_path, "two")
            assert stream.next()["method"] == "notifications/tools/list_changed"
        span = collector.wait(caller.id, name)[name]

    assert span.events == ["notifications/tools/list_changed"]
    assert span.attributes["mcp_tool_server.outcome"] in ("ok", "cancelled")
    assert span.status == "UNSET"


# -- what a request consists of ---------------------------------------------------


@rows(
    "tool, runs_in",
    ("a task", "place", "loop"),
    ("a thread", "place_in_thread", "thread"),
    ("a process", "place_in_process", "process"),
)
def test_the_run_of_a_tool_is_a_child_of_its_request(
    client: McpClient, collector: Collector, caller: Trace, tool: str, runs_in: str
) -> None:
    caller.call(client, tool)

    spans = collector.wait(caller.id, f"run {tool}", f"tools/call {tool}")
    run, request = spans[f"run {tool}"], spans[f"tools/call {tool}"]
    assert (run.kind, run.parent) == ("INTERNAL", request.id)
    assert run.attributes == {
        "gen_ai.tool.name": tool,
        "mcp_tool_server.runs_in": runs_in,
        "mcp_tool_server.outcome": "ok",
    }
    assert request.began_ns <= run.began_ns <= run.ended_ns <= request.ended_ns
    assert "queue" not in spans


@rows(
    "tool, error",
    ("refused", "refuse", "tool_error"),
    ("crashed", "crash", "internal_error"),
    ("late", "dawdle", "timeout"),
    ("late in a thread", "dawdle_in_thread", "timeout"),
)
def test_a_run_that_fails_says_how(
    client: McpClient, collector: Collector, caller: Trace, tool: str, error: str
) -> None:
    arguments = {"text": "x"} if tool in ("refuse", "crash") else {}
    caller.call(client, tool, arguments)

    run = collector.wait(caller.id, f"run {tool}")[f"run {tool}"]
    assert (run.error, run.status) == (error, "ERROR")
    assert run.events == []  # an exception's text may hold what was sent


@pytest.mark.parametrize("tool", ["thread", "process"])
def test_a_call_that_waits_for_its_turn_says_how_long(
    client: McpClient, collector: Collector, caller: Trace, tmp_path: Path, tool: str
) -> None:
    name, gate = f"hold_{tool}", tmp_path / "gate"
    holding = threading.Thread(target=client.call, args=(name, {"file": str(gate)}))
    holding.start()
    eventually(Path(f"{gate}.begun").exists, "the first call runs")
    with client.connect() as connection:
        # The second one is read by the server before a third that has to connect first.
        client.ask("server/discover", connection=connection)
        waiting = client.request(
            "tools/call", {"name": f"place_in_{tool}", "arguments": {}}, meta_=caller.meta()
        )
        connection.send(waiting.encode())
        client.ask("server/discover")
        gate.touch()
        holding.join()
        spans = collector.wait(caller.id, "queue", f"run place_in_{tool}")
    request = collector.wait(caller.id, f"tools/call place_in_{tool}")[
        f"tools/call place_in_{tool}"
    ]

    queue, run = spans["queue"], spans[f"run place_in_{tool}"]
    assert queue.parent == run.parent == request.id
    assert queue.began_ns < queue.ended_ns <= run.began_ns


def test_each_try_is_a_run(client: McpClient, collector: Collector, caller: Trace) -> None:
    assert caller.call(client, "shaky", {"name": secrets.token_hex(4)}).text == "now"

    runs = collector.wait_for(lambda span: (span.trace, span.name) == (caller.id, "run shaky"), 2)
    assert {run.error for run in runs} == {None, "tool_error"}
    request = collector.wait(caller.id, "tools/call shaky")["tools/call shaky"]
    assert {run.parent for run in runs} == {request.id}
    assert request.status == "UNSET"


def test_a_kept_result_has_no_run(client: McpClient, collector: Collector) -> None:
    first, second = Trace(), Trace()
    number = {"number": secrets.randbelow(10**9)}
    first.call(client, "kept", number)
    second.call(client, "kept", number)

    assert "run kept" in collector.wait(first.id, "tools/call kept", "run kept")
    assert "run kept" not in collector.wait(second.id, "tools/call kept")


def test_who_calls_is_a_span_where_it_had_to_wait(
    client: McpClient, collector: Collector, issuer: Issuer
) -> None:
    token = {"Authorization": f"Bearer {issuer.token()}"}
    new, known = Trace(), Trace()
    for trace in (new, known):
        assert trace.call(client, "take", headers=token).text == "0"

    spans = collector.wait(new.id, "tools/call take", "authenticate")
    request, asking = spans["tools/call take"], spans["authenticate"]
    assert asking.parent == request.id
    assert request.began_ns <= asking.began_ns <= asking.ended_ns <= request.ended_ns
    assert "authenticate" not in collector.wait(known.id, "tools/call take")


# -- the initialize era -----------------------------------------------------------


def test_a_session_has_spans_of_its_revision(
    server: ServerProcess, collector: Collector, caller: Trace
) -> None:
    about = {"_meta": {"traceparent": caller.parent}}
    with Conversation([server], "2025-11-25") as conversation:
        conversation.open({})
        assert conversation.call("take", {}, params=about).text == "0"
        conversation.call("nobody", {}, params=about)
    (call,) = collector.wait_for(
        lambda span: span.name == "tools/call take" and span.trace == caller.id
    )
    (unknown,) = collector.wait_for(
        lambda span: span.name == "tools/call" and span.trace == caller.id
    )

    assert call.attributes["mcp.protocol.version"] == "2025-11-25"
    assert call.attributes["mcp.session.id"] == unknown.attributes["mcp.session.id"]
    assert call.attributes["mcp.session.id"] != conversation.token
    assert call.parent == caller.span
    assert unknown.error == "-32602"
    opening = collector.wait_for(lambda span: span.name == "initialize")[-1]
    assert opening.attributes["mcp.protocol.version"] == "2025-11-25"
    assert collector.wait_for(lambda span: span.name == "notifications/initialized")


def test_each_request_of_a_batch_has_its_span(
    server: ServerProcess, collector: Collector, caller: Trace
) -> None:
    about = {"_meta": {"traceparent": caller.parent}}
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": about},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "take", **about}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "no", **about}},
    ]
    with Conversation([server], "2025-03-26") as conversation:
        conversation.open({})
        assert conversation.post(calls).status_code == 200
    spans = collector.wait(caller.id, "tools/list", "tools/call take", "run take", "tools/call")

    assert {span.parent for name, span in spans.items() if name != "run take"} == {caller.span}
    assert spans["run take"].parent == spans["tools/call take"].id
    assert spans["tools/call"].error == "-32602"


def test_the_line_of_a_request_names_its_trace(
    client: McpClient, server: ServerProcess, collector: Collector
) -> None:
    mark = server.log_mark()
    client.call("take", {}, id="alone", meta_=meta())
    line = server.wait_for_log(lambda log: log.get("request_id") == "alone", after=mark)

    span = collector.wait(line["trace_id"], "tools/call take")["tools/call take"]
    assert span.parent == ""
    assert span.attributes["jsonrpc.request.id"] == "alone"
