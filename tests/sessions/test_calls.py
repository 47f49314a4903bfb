"""Calls in the vocabulary of each revision: lists, results, errors, progress, batches."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.sessions.conftest import CONFIG, TOOLS, Open
from tests.sessions.conversation import CLIENT
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write
from tests.support.waiting import eventually_lines


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_has_the_words_of_its_revision(talk: Open, version: str) -> None:
    tools = {tool["name"]: tool for tool in talk(version).ask("tools/list").result["tools"]}
    add, words = tools["add"], tools["words"]
    assert ("title" in add) == (version >= "2025-06-18")
    assert ("annotations" in add) == (version >= "2025-03-26")
    assert ("outputSchema" in add) == (version >= "2025-06-18")
    if version >= "2025-06-18":
        assert set(add["outputSchema"]["properties"]) == {"total"}
        assert set(words["outputSchema"]["properties"]) == {"result"}
    assert "x-mcp-header" not in str(words)


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_are_turned_with_the_same_cursors(
    server_factory: ServerFactory, talk: Open, version: str
) -> None:
    server = server_factory(TOOLS, {**CONFIG, "tools": {"reload": False, "page_size": 3}})
    conversation = talk(version, server=server)
    names: list[str] = []
    params: dict[str, Any] = {}
    while True:
        result = conversation.ask("tools/list", params).result
        names += [tool["name"] for tool in result["tools"]]
        if "nextCursor" not in result:
            break
        params = {"cursor": result["nextCursor"]}
    assert names == sorted(server.client.tools())
    assert conversation.ask("tools/list", {"cursor": "x"}).code == -32602


@pytest.mark.parametrize("version", VERSIONS)
def test_results_have_the_form_of_their_revision(talk: Open, version: str) -> None:
    conversation = talk(version)
    added = conversation.call("add", {"a": 2}).result
    listed = conversation.call("words", {"text": "a b"}).result
    if version >= "2025-06-18":
        assert added["structuredContent"] == {"total": 3}
        assert listed["structuredContent"] == {"result": ["a", "b", "eu"]}
    else:
        assert "structuredContent" not in added and "structuredContent" not in listed
    kinds = [block["type"] for block in conversation.call("blocks").result["content"]]
    audio = "audio" if version >= "2025-03-26" else "text"
    link = "resource_link" if version >= "2025-06-18" else "text"
    assert kinds == ["text", "image", audio, link, "resource"]
    failed = conversation.call("refuse").result
    assert failed["isError"] is True and failed["content"][0]["text"] == "Not today."


@pytest.mark.parametrize("version", VERSIONS)
def test_bad_arguments_are_what_they_were_in_the_revision(talk: Open, version: str) -> None:
    answer = talk(version).call("add", {"a": "x"})
    assert answer.status == 200
    if version >= "2025-11-25":
        assert answer.result["isError"] is True and "a" in answer.text
    else:
        assert answer.code == -32602 and "Invalid arguments for add" in str(answer.last["error"])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_tool_is_a_protocol_error(talk: Open, version: str) -> None:
    answer = talk(version).call("no_such_tool")
    assert (answer.status, answer.code) == (200, -32602)


@pytest.mark.parametrize("version", VERSIONS)
def test_progress_and_log_messages_come_before_the_result(talk: Open, version: str) -> None:
    conversation = talk(version)
    params = {"_meta": {"progressToken": "p"}}
    answer = conversation.call("count", {"to": 3}, params=params)
    methods = [message.get("method") for message in answer.messages]
    assert methods[-1] is None and methods.count("notifications/progress") == 3
    assert methods.count("notifications/message") == 3  # info, until something else is asked for
    progress = next(each for each in answer.messages if each.get("method", "").endswith("progress"))
    assert ("message" in progress["params"]) == (version >= "2025-03-26")
    assert progress["params"]["progressToken"] == "p"
    for level, expected in (("debug", 6), ("info", 3), ("error", 0)):
        conversation.ask("logging/setLevel", {"level": level})
        answer = conversation.call("count", {"to": 3})
        said = [each for each in answer.messages if each.get("method") == "notifications/message"]
        assert len(said) == expected
    assert conversation.ask("logging/setLevel", {"level": "loud"}).code == -32602


def test_who_takes_json_alone_gets_the_result_alone(talk: Open) -> None:
    conversation = talk()
    headers: dict[str, Any] = {"Accept": "application/json"}
    answer = conversation.call("count", {"to": 3}, **headers)
    assert answer.response.headers["content-type"] == "application/json"
    assert len(answer.messages) == 1 and answer.text == "3 steps"
    asked = conversation.call("book", {"who": "ada"}, **headers)
    assert asked.code == -32602 and "elicitation" in asked.last["error"]["message"]


def test_who_takes_streams_alone_gets_a_stream(talk: Open) -> None:
    answer = talk().call("add", {"a": 1}, Accept="text/event-stream")
    assert answer.response.headers["content-type"].startswith("text/event-stream")
    assert answer.result["structuredContent"] == {"total": 2}


def test_limits_are_told_in_band_with_the_wait(server_factory: ServerFactory, talk: Open) -> None:
    rates = [{"tools": ["*"], "bucket": "user", "capacity": 1, "period_s": 3600}]
    conversation = talk(server=server_factory(TOOLS, {**CONFIG, "limits": {"rates": rates}}))
    conversation.call("add", {"a": 1})
    refused = conversation.call("add", {"a": 1})
    assert (refused.status, refused.code) == (200, -31429)
    assert refused.last["error"]["data"]["retryAfterMs"] > 0
    assert int(refused.response.headers["retry-after"]) > 0


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", None])
def test_batches_are_answered_where_the_revision_has_them(talk: Open, version: str | None) -> None:
    conversation = talk(version or "2025-03-26", opened=version is not None)
    batch = [
        conversation.message("ping", id=1),
        {"jsonrpc": "2.0", "method": "notifications/anything"},
        conversation.message("tools/call", {"name": "add", "arguments": {"a": 1}}, id="two"),
        conversation.message("nothing", id=3),
    ]
    response = conversation.post(batch)
    assert response.status_code == 200
    by_id = {message["id"]: message for message in response.json()}
    assert by_id[1]["result"] == {}
    assert "2" in by_id["two"]["result"]["content"][0]["text"]
    assert by_id[3]["error"]["code"] == -32601
    streamed = conversation.post(batch, Accept="text/event-stream")
    assert streamed.text.count("data:") == 3
    quiet = conversation.post([{"jsonrpc": "2.0", "method": "notifications/x"}])
    assert (quiet.status_code, quiet.content) == (202, b"")


@rows(
    "batch",
    ("empty", []),
    ("no object", [1]),
    ("initialize", [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}]),
    (
        "a modern request",
        [
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/list",
                "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}},
            }
        ],
    ),
    ("too many", [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(101)]),
)
def test_a_bad_batch_is_refused_as_a_whole(talk: Open, batch: Any) -> None:
    response = talk("2025-03-26").post(batch)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32600


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_revision_without_batches_refuses_them(talk: Open, version: str) -> None:
    conversation = talk(version)
    response = conversation.post([conversation.message("ping")])
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)


@rows(
    "body",
    ("no JSON", b"{"),
    ("no version", b'{"id":1,"method":"ping"}'),
    ("id null", b'{"jsonrpc":"2.0","id":null,"method":"ping"}'),
    ("id 1.5", b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}'),
    ("neither request nor answer", b'{"jsonrpc":"2.0","id":1}'),
)
def test_what_is_no_message_is_400(talk: Open, body: bytes) -> None:
    response = talk().post(body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in (-32700, -32600)


@rows("version", ("before the latest", "2025-06-18"), ("the latest", "2025-11-25"))
def test_who_goes_away_does_not_cancel_its_call(talk: Open, tmp_path: Path, version: str) -> None:
    conversation, path = talk(version), tmp_path / "lines"
    params = {"name": "wait", "arguments": {"path": str(path), "for_s": 0.7}}
    body = conversation.message("tools/call", params)
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(conversation.url, json=body, headers=conversation.headers(), timeout=0.3)
    assert eventually_lines(path, "ended") == ["began", "ended"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_cancels_its_own_request_and_no_other(
    talk: Open, tmp_path: Path, version: str
) -> None:
    mine, other = talk(version), talk(version)
    path = tmp_path / "lines"
    params = {"name": "wait", "arguments": {"path": str(path)}}
    body = mine.message("tools/call", params, id="same")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mine.post, body)
        eventually_lines(path, "began")
        other.notify("notifications/cancelled", {"requestId": "same"})
        mine.notify("notifications/cancelled", {"requestId": "another"})
        mine.notify("notifications/cancelled", {})
        assert not waiting.done()
        mine.notify("notifications/cancelled", {"requestId": "same", "reason": "enough"})
        response = waiting.result(10)
    assert eventually_lines(path, "cancelled") == ["began", "cancelled"]
    assert b"result" not in response.content and response.status_code in (200, 202)


def test_a_request_line_says_what_was_asked(talk: Open, old: ServerProcess) -> None:
    talk().call("add", {"a": 1})
    line = old.wait_for_log(lambda log: log.get("tool") == "add")
    assert line["method"] == "tools/call" and line["outcome"] == "ok"


def test_no_session_is_in_the_log(talk: Open, old: ServerProcess) -> None:
    conversation = talk()
    conversation.ask("ping")
    assert conversation.token and conversation.token[:40] not in old.log_text()


def test_a_request_line_says_how_it_ended(talk: Open, old: ServerProcess) -> None:
    conversation = talk()
    trace = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"
    conversation.call("add", {"a": "x"}, params={"_meta": {"traceparent": trace}}, id="bad one")
    line = old.wait_for_log(lambda log: log.get("request_id") == "bad one")
    assert (line["outcome"], line["tool"]) == ("tool_error", "add")
    assert (line["client"], line["trace_id"]) == (CLIENT["name"], "c" * 32)


KEPT = """
from typing import Annotated

from app import Header, tool


@tool(annotations={"read_only": True}, cache_ttl_s=60)
async def kept(region: Annotated[str, Header("Region")]) -> str:
    \"\"\"Always the same.\"\"\"
    return region
"""


def test_what_is_mirrored_is_mirrored_from_a_kept_result_too(talk: Open, tmp_path: Path) -> None:
    write(tmp_path / "kept.py", KEPT)
    with ServerProcess(tmp_path, CONFIG) as server:
        conversation = talk(server=server)
        for _ in range(2):
            answer = conversation.call("kept", {"region": "eu"})
            assert answer.text == "eu"
            assert answer.response.headers["mcp-param-region"] == "eu"
