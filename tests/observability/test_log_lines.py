"""The line of a request is as documented, whichever door it came in by and however it ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.auth.office import Headers, api_key, key_table
from tests.sessions.conversation import Conversation
from tests.support.client import McpClient, meta
from tests.support.loglines import SCHEMA, wrong_lines
from tests.support.server import Log, ServerFactory, ServerProcess
from tests.support.stdio import StdioServer

TOOLS: Final = Path(__file__).with_name("tools")
KEY: Final = api_key("ada")[0]
WHO: Final[Headers] = {"X-API-Key": KEY}
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONFIG: Final[dict[str, Any]] = {
    "auth": {
        "api_keys": [{**key_table("ada", KEY), "tenant": "acme"}],
        "allow_unauthenticated": True,
        "default": "allow",
    },
    "tools": {"reload": False},
    "execution": {"processes": 1},
}
FORM: Final[dict[str, Any]] = {"elicitation": {"form": {}}}


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> ServerProcess:
    """The server that the tests of this module share."""
    return module_server_factory(TOOLS, CONFIG)


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> McpClient:
    return server.client


@pytest.fixture(scope="module")
def session(server: ServerProcess) -> Iterator[Conversation]:
    """A session of the revision that has batches."""
    with Conversation([server], "2025-03-26", WHO) as conversation:
        conversation.open()
        yield conversation


def line(server: ServerProcess, **fields: Any) -> Log:
    """The first line of a request that has these fields."""
    return server.wait_for_log(
        lambda log: (
            log.get("event") == "request"
            and all(log.get(key) == value for key, value in fields.items())
        )
    )


def test_a_call_says_who_asked_what_of_which_version_and_got_what(
    server: ServerProcess, client: McpClient
) -> None:
    own = meta(clientInfo={"name": "a client", "version": "1"}, traceparent=TRACE)
    client.call("add", {"a": 1, "b": 2}, WHO, meta_=own, id="first")
    found = dict(line(server, request_id="first"))

    assert len(found.pop("tool_version")) == 12
    assert found.pop("duration_ms") > 0
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "event": "request",
        "level": "info",
        "method": "tools/call",
        "outcome": "ok",
        "request_id": "first",
        "status": 200,
        "address": "127.0.0.1",
        "issuer": "api-key",
        "subject": "ada",
        "tenant": "acme",
        "client": "a client",
        "tool": "add",
        "content_types": ["text", "structured"],
        "attempt": 1,
        "trace_id": TRACE[3:35],
        "revision": "2026-07-28",
    }


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("picture", {"outcome": "ok", "content_types": ["image", "text"], "attempt": 1}),
        ("flaky", {"outcome": "ok", "attempt": 2}),
        ("refuse", {"outcome": "tool_error", "content_types": ["text"], "attempt": 1}),
        ("fail", {"outcome": "internal_error", "attempt": 1}),
        ("hang", {"outcome": "timeout", "attempt": 1}),
        ("hang_in_thread", {"outcome": "timeout", "attempt": 1}),
        ("crash", {"outcome": "internal_error", "attempt": 1}),
        ("ask", {"outcome": "input_required", "content_types": []}),
        ("secret", {"outcome": "denied", "status": 403}),
        ("talk", {"outcome": "ok"}),
        ("nobody\n" + "x" * 500, {"outcome": "protocol_error", "status": 400}),
    ],
)
def test_each_end_has_its_line(
    server: ServerProcess, client: McpClient, tool: str, expected: dict[str, Any]
) -> None:
    own = meta(clientCapabilities=FORM, progressToken=1)
    client.call(tool, {}, WHO, meta_=own, id=f"end of {tool}"[:40])
    found = line(server, request_id=f"end of {tool}"[:40].replace("\n", "\\n"))

    assert {key: found.get(key) for key in expected} == expected
    assert ("tool_version" in found) is (not tool.startswith("nobody"))


def test_a_tool_that_is_asked_too_often_is_named(server: ServerProcess, client: McpClient) -> None:
    for _ in range(2):
        client.call("seldom", {}, WHO)

    assert line(server, tool="seldom", outcome="limited")["setting"] == "rate_limit"


def test_what_is_kept_and_repeated_is_told(server: ServerProcess, client: McpClient) -> None:
    for _ in range(2):
        client.call("kept", {"text": "t"}, WHO)
        client.call("add", {"a": 1}, WHO, meta_=meta(**{"mcp-tool-server/idempotencyKey": "k"}))

    assert line(server, tool="kept", cache="miss")["attempt"] == 1
    assert "attempt" not in line(server, tool="kept", cache="hit")
    assert line(server, tool="add", cache="repeated")["outcome"] == "ok"


def test_arguments_are_shown_where_the_tool_says_so(
    server: ServerProcess, client: McpClient
) -> None:
    client.call("shown", {"text": "for joe@example.com", "password": "hunter2"}, WHO)
    client.call("shown", {"text": 1}, WHO, id="wrong")

    found = line(server, tool="shown")
    assert found["arguments"] == {"text": "for [email]", "password": "[secret]"}
    assert line(server, request_id="wrong")["arguments"] == {"text": 1}
    assert not [
        log for log in server.logs("request") if "arguments" in log and log["tool"] != "shown"
    ]


def test_an_override_shows_the_arguments_of_a_tool(
    server_factory: ServerFactory,
) -> None:
    overrides = {"add": {"log_arguments": True}, "shown": {"log_arguments": False}}
    server = server_factory(TOOLS, {"tools": {"reload": False}, "overrides": overrides})
    server.client.call("add", {"a": 1})
    server.client.call("shown", {"text": "t"})

    assert line(server, tool="add")["arguments"] == {"a": 1}
    assert "arguments" not in line(server, tool="shown")


def test_a_session_says_which_revision_it_speaks(
    server: ServerProcess, session: Conversation
) -> None:
    session.call("add", {"a": 1}, id="older")
    found = line(server, request_id="older")

    assert (found["revision"], found["client"]) == (
        "2025-03-26",
        line(server, method="initialize")["client"],
    )
    assert (found["tool"], found["content_types"]) == (
        "add",
        ["text", "structured"],  # as the tool gave it; this revision has no place for the second
    )


def test_each_call_of_a_batch_has_a_line_of_its_own(
    server: ServerProcess, session: Conversation
) -> None:
    calls = [("add", {"a": 1}), ("fail", {}), ("nobody", {}), ("refuse", {})]
    batch = [
        session.message("tools/call", {"name": name, "arguments": arguments}, f"batched {name}")
        for name, arguments in calls
    ]
    session.post(batch)

    outcomes = {name: line(server, request_id=f"batched {name}")["outcome"] for name, _ in calls}
    assert outcomes == {
        "add": "ok",
        "fail": "internal_error",
        "nobody": "protocol_error",
        "refuse": "tool_error",
    }
    assert line(server, method="batch")["revision"] == "2025-03-26"
    assert line(server, request_id="batched add")["subject"] == "ada"


def test_what_is_no_call_has_a_line_as_well(server: ServerProcess, client: McpClient) -> None:
    hows: tuple[dict[str, Any], ...] = (
        {"http": "DELETE"},
        {"body": b"{"},
        {"method": "x" * 5000, "headers": {"Mcp-Method": "x" * 5000}},
        {"headers": {"Origin": "https://evil.example.com"}},
        {"headers": {"X-API-Key": "wrong"}},
        {"id": 1 << 80},
        {"id": "\u0000" * 500},
    )
    for how in hows:
        client.ask(**{"method": "tools/list", **how})
    client.ask("tools/list", id="last")
    line(server, request_id="last")

    assert wrong_lines(server.logs()) == []


def test_lines_of_stdio_are_the_same(tmp_path: Path) -> None:
    with StdioServer(TOOLS, {**CONFIG, "auth": {}}) as server:
        server.call("add", {"a": 1})
        server.call("picture")
        server.response(server.begin("nobody"))
        found = line(server, tool="add")
        assert found["content_types"] == ["text", "structured"] and "status" not in found
        line(server, tool="nobody")
        assert wrong_lines(server.logs()) == []


def test_every_member_of_the_schema_is_seen(server: ServerProcess) -> None:
    """The shape has nothing that traffic does not have; this test stands last."""
    seen = {key for log in server.logs("request") for key in log}

    assert seen == set(SCHEMA["properties"]) - {"worker_pid"}


def test_the_judge_of_lines_finds_what_is_wrong() -> None:
    good = {
        "event": "request",
        "level": "info",
        "timestamp": "2026-07-28T09:00:00.000000Z",
        "method": None,
        "outcome": "ok",
        "duration_ms": 1.0,
        "request_id": 1,
    }
    assert wrong_lines([good, {"event": "other"}]) == []
    for change in ({"tool": "x" * 129}, {"extra": 1}, {"outcome": "good"}, {"timestamp": "now"}):
        assert wrong_lines([{**good, **change}])
