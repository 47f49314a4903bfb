"""Clients of earlier revisions over stdio: the same, on one channel."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.sessions.conftest import CONFIG, TOOLS
from tests.sessions.conversation import CLIENT, EVERYTHING
from tests.support import legacy_schema
from tests.support.client import body_of, encode
from tests.support.legacy_schema import VERSIONS
from tests.support.stdio import StdioServer
from tests.support.toolfiles import write_tool
from tests.support.waiting import eventually_lines

Message = dict[str, Any]


class OldStdio(StdioServer):
    """A server that its client starts, in a revision of the `initialize` era."""

    version = "2025-11-25"

    def open(self, version: str, capabilities: Mapping[str, Any] | None = None) -> Message:
        """`initialize`, then `notifications/initialized`."""
        self.version = version
        params = {
            "protocolVersion": version,
            "capabilities": EVERYTHING if capabilities is None else capabilities,
            "clientInfo": CLIENT,
        }
        result = self.result(self.old("initialize", params))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def old(self, method: str, params: Any = None) -> str:
        """Send a request without a modern `_meta`; its id."""
        id = self.new_id()
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return id

    def use(self, tool: str, arguments: Any = None, **params: Any) -> str:
        """Call a tool; the id."""
        return self.old("tools/call", {"name": tool, "arguments": arguments or {}, **params})

    def answer(self, method: str, result: Any) -> Message:
        """Answer the next question of the server; the question."""
        question = self.wait_for(lambda message: message.get("method") == method)
        self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
        return question

    def check_output(self) -> None:
        """Every line is a message of the revision."""
        for line in bytes(self._output).splitlines():
            found = json.loads(line)
            for message in found if isinstance(found, list) else [found]:
                if "method" in message:
                    check = legacy_schema.check_request
                    (check if "id" in message else legacy_schema.check_notification)(
                        message, self.version
                    )
                else:
                    legacy_schema.check_nothing_modern(message)


@pytest.fixture
def old(request: pytest.FixtureRequest) -> Iterator[OldStdio]:
    """A server."""
    with OldStdio(TOOLS, CONFIG) as process:
        yield process


@pytest.mark.parametrize("version", VERSIONS)
def test_a_whole_conversation(old: OldStdio, version: str) -> None:
    assert old.open(version)["protocolVersion"] == version
    assert old.result(old.old("ping")) == {}
    tools = old.result(old.old("tools/list"))["tools"]
    assert ("title" in tools[0]) == (version >= "2025-06-18")
    assert "3" in str(old.result(old.use("add", {"a": 2})))
    assert old.result(old.old("logging/setLevel", {"level": "error"})) == {}
    counted = old.use("count", {"to": 2}, _meta={"progressToken": "p"})
    assert "2 steps" in str(old.result(counted))
    said = [message.get("method") for message in old.messages]
    assert said.count("notifications/progress") == 2
    assert "notifications/message" not in said
    unknown = old.response(old.old("resources/list"))
    assert unknown["error"]["code"] == -32601
    bad = old.response(old.use("add", {"a": "x"}))
    assert ("error" in bad) == (version < "2025-11-25")


def test_questions_and_answers_share_the_channel(old: OldStdio) -> None:
    old.open("2025-11-25")
    asked = old.use("book", {"who": "Ada"})
    question = old.answer("elicitation/create", {"action": "accept", "content": {"city": "Oslo"}})
    assert question["params"]["message"] == "A trip for Ada?"
    assert "Oslo" in str(old.result(asked))
    old.send({"jsonrpc": "2.0", "id": "ask-nobody", "result": {}})
    assert old.result(old.old("ping")) == {}


def test_a_request_is_cancelled_and_gets_no_answer(old: OldStdio, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    old.open("2025-11-25")
    id = old.use("wait", {"path": str(path)})
    eventually_lines(path, "began")
    old.cancel(id)
    assert eventually_lines(path, "cancelled") == ["began", "cancelled"]
    assert old.result(old.old("ping")) == {}
    assert not any(message.get("id") == id for message in old.messages)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_hears_that_tools_have_changed(tmp_path: Path, version: str) -> None:
    tools = tmp_path / "tools"
    write_tool(tools, "old", "one")
    with OldStdio(tools, {"tools": {"reload": True}}) as server:
        assert server.open(version)["capabilities"]["tools"] == {"listChanged": True}
        write_tool(tools, "new", "two")
        changed = server.wait_for(lambda message: message.get("method", "").endswith("changed"))
        assert changed == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        names = [tool["name"] for tool in server.result(server.old("tools/list"))["tools"]]
        assert names == ["new", "old"]


def test_batches_are_answered_where_the_revision_has_them(old: OldStdio) -> None:
    old.open("2025-03-26")
    batch = [
        {"jsonrpc": "2.0", "id": 71, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/anything"},
        {"jsonrpc": "2.0", "id": 72, "method": "nothing"},
    ]
    old.send(batch)
    found: Any = old.wait_for(lambda message: isinstance(message, list))
    by_id = {message["id"]: message for message in found}
    assert by_id[71]["result"] == {} and by_id[72]["error"]["code"] == -32601


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"[1]",
        b"[",
        b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]',
        b"[%b]" % encode(body_of("ping")),
    ],
)
def test_a_bad_batch_is_refused(old: OldStdio, line: bytes) -> None:
    old.open("2025-03-26")
    old.send(line)
    error = old.wait_for(lambda message: "error" in message)
    assert error["error"]["code"] == (-32700 if line == b"[" else -32600)
    assert "id" not in error  # it is that of no request


def test_requests_of_a_batch_are_requests_like_others(old: OldStdio, tmp_path: Path) -> None:
    old.open("2025-03-26")
    path = tmp_path / "lines"
    wait = {"name": "wait", "arguments": {"path": str(path)}}
    old.send(
        [
            {"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": wait},
            {"jsonrpc": "2.0", "id": "quick", "method": "ping"},
        ]
    )
    eventually_lines(path, "began")
    cancel = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "long"},
    }
    old.send([{"jsonrpc": "2.0", "id": "long2", "method": "ping"}, cancel])
    assert eventually_lines(path, "cancelled") == ["began", "cancelled"]
    for id in ("quick", "long2"):  # each alone: who cancels a request wants no answer to it

        def is_answer(message: Any, id: str = id) -> bool:
            return isinstance(message, list) and message[0]["id"] == id

        found: Any = old.wait_for(is_answer)
        assert len(found) == 1


def test_a_question_of_a_cancelled_call_is_withdrawn(old: OldStdio) -> None:
    old.open("2025-11-25")
    id = old.use("book", {"who": "Ada"})
    question = old.wait_for(lambda message: message.get("method") == "elicitation/create")
    old.cancel(id)
    withdrawn = old.wait_for(lambda message: message.get("method") == "notifications/cancelled")
    assert withdrawn["params"]["requestId"] == question["id"]


def test_an_id_under_way_is_refused_in_a_batch(old: OldStdio, tmp_path: Path) -> None:
    old.open("2025-03-26")
    path = tmp_path / "lines"
    id = old.use("wait", {"path": str(path)})
    eventually_lines(path, "began")
    old.send(
        [{"jsonrpc": "2.0", "id": each, "method": "ping"} for each in (id, "other")],
    )
    found: Any = old.wait_for(lambda message: isinstance(message, list))
    by_id = {message["id"]: message for message in found}
    assert by_id[id]["error"]["code"] == -32600 and by_id["other"]["result"] == {}
    old.cancel(id)
    eventually_lines(path, "cancelled")


def test_a_request_line_says_how_it_ended(old: OldStdio) -> None:
    old.open("2025-11-25")
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    ids = {
        "none": old.old("nothing"),
        "unknown": old.use("no_such_tool"),
        "bad": old.use("add", {"a": "x"}),
        "failed": old.use("refuse"),
        "good": old.use("add", {"a": 1}, _meta={"traceparent": trace}),
    }
    lines = {
        name: old.wait_for_log(lambda log, id=id: log.get("request_id") == id)  # type: ignore[misc]  # of this turn
        for name, id in ids.items()
    }
    outcomes = {name: line["outcome"] for name, line in lines.items()}
    assert outcomes == {
        "none": "protocol_error",
        "unknown": "protocol_error",
        "bad": "tool_error",
        "failed": "tool_error",
        "good": "ok",
    }
    assert (lines["none"]["code"], lines["unknown"]["code"]) == (-32601, -32602)
    assert lines["failed"]["tool"] == "refuse"
    assert lines["good"]["trace_id"] == "a" * 32
    assert all(line["client"] == CLIENT["name"] for line in lines.values())


def test_modern_and_old_requests_share_a_process(old: OldStdio) -> None:
    old.open("2025-06-18")
    modern = old.result(old.ask("tools/list"))
    assert modern["resultType"] == "complete"
    assert "resultType" not in old.result(old.old("tools/list"))
    old._output.clear()  # both kinds are there: no judge fits
