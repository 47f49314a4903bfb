"""Each condition of a line, one fault at a time; what comes back is held against the schema."""

import json
from typing import Any

import pytest

from tests.support.client import body_of, encode, meta
from tests.support.schema import META
from tests.support.stdio import StdioFactory, StdioServer

DISCOVER = encode(body_of("server/discover", id="x"))
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"a","params":' + b"[" * 300 + b"]" * 300 + b"}"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),
        (b"{", -32700),
        (b"GET /mcp HTTP/1.1", -32700),
        (DISCOVER + b" trailing", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
        (DISCOVER.decode().encode("utf-16"), -32700),
        (DEEP, -32700),
        (b"[" + DISCOVER + b"]", -32600),
        (b"[]", -32600),
        (b"null", -32600),
        (b'"text"', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"server/discover","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"server/discover","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}', -32600),
        (b"x" * 1_048_577, -31413),
        (b'{"jsonrpc":"2.0","method":"' + b"x" * 1_048_577 + b'"}', -31413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_line_that_cannot_be_read_gets_an_error_without_id_and_harms_no_other(
    server: StdioServer, line: bytes, code: int
) -> None:
    before = len(server.messages)
    server.write(line + b"\n")

    said = server.settled()[before:]
    assert [message.get("error", {}).get("code") for message in said] == [code, None]
    assert "id" not in said[0]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"jsonrpc": "1.0"}, -32600),
        ({"method": 5}, -32600),
        ({"params": []}, -32600),
        ({"method": "nothing/like/it"}, -32601),
        ({"method": "ping"}, -32601),
        ({"method": "initialize"}, -32601),
        ({"params": None}, -32602),
        ({"params": {}}, -32602),
        ({"params": {"_meta": {}}}, -32602),
        ({"params": {"_meta": meta(clientCapabilities=None)}}, -32602),
        ({"params": {"_meta": meta(progressToken=[])}}, -32602),
        ({"params": {"_meta": meta(protocolVersion=1)}}, -32602),
        ({"params": {"_meta": meta(protocolVersion="2025-11-25")}}, -32022),
        ({"params": {"_meta": meta(protocolVersion="1900-01-01")}}, -32022),
        ({"method": "tools/call", "params": {"name": "nobody", "_meta": meta()}}, -32602),
        ({"method": "tools/list", "params": {"cursor": "forged", "_meta": meta()}}, -32602),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_request_with_one_fault_gets_its_error(
    server: StdioServer, changes: dict[str, Any], code: int
) -> None:
    id = server.new_id()
    server.send({**body_of("server/discover", id=id), **changes})

    assert server.response(id)["error"]["code"] == code


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_client_of_an_earlier_revision_is_told_what_is_served(
    server: StdioServer, version: str
) -> None:
    id = server.new_id()
    client = {"name": "old", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    server.send({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params})
    error = server.response(id)["error"]
    assert error["code"] == -32601
    assert "2026-07-28" in error["message"]

    id = server.new_id()
    server.send({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
    error = server.response(id)["error"]
    assert error["code"] == -32602
    assert "2026-07-28" in error["message"]
    assert f"{META}protocolVersion" in error["message"]


@pytest.mark.parametrize("id", [0, -1, 1, "1", "", "é", 2**53 + 1, 10**30])
def test_an_id_comes_back_as_it_was(server: StdioServer, id: Any) -> None:
    server.send(body_of("server/discover", id=id))

    assert server.response(id)["result"]["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize(
    "sent",
    [
        DISCOVER + b"\r\n",
        b"\n\r\n  \n" + DISCOVER + b"\n\n",
        b"  " + DISCOVER + b"\t\n",
        json.dumps(json.loads(DISCOVER), ensure_ascii=True).encode() + b"\n",
    ],
)
def test_carriage_returns_and_empty_lines_mean_nothing(server: StdioServer, sent: bytes) -> None:
    before = len(server.messages)
    server.write(sent)

    said = server.settled()[before:]
    assert [message.get("id") for message in said[:-1]] == ["x"]


def test_a_line_may_come_byte_by_byte(server: StdioServer) -> None:
    before = len(server.messages)
    for byte in DISCOVER + b"\n":
        server.write(bytes([byte]))

    server.wait_for(lambda message: message.get("id") == "x", after=before)


def test_a_line_as_long_as_is_allowed_is_served(server: StdioServer) -> None:
    id = server.new_id()
    message = body_of("tools/call", {"name": "echo", "arguments": {"text": ""}}, id=id)
    room = 1_048_576 - len(encode(message))
    message["params"]["arguments"]["text"] = "x" * room
    server.send(message)

    assert "result" in server.response(id)


def test_no_header_is_needed_for_a_mirrored_parameter(server: StdioServer) -> None:
    result = server.call("in_region", {"region": "eu-west1"})

    assert result["isError"] is False, result


@pytest.mark.parametrize(
    "method", ["notifications/initialized", "notifications/progress", "notifications/made/up"]
)
def test_a_notification_is_not_answered(server: StdioServer, method: str) -> None:
    before = len(server.messages)
    server.send({"jsonrpc": "2.0", "method": method})

    assert len(server.settled()[before:]) == 1


def test_a_thousand_requests_at_once_are_all_answered(server: StdioServer) -> None:
    ids = [server.new_id() for _ in range(1000)]
    calls = [
        body_of("tools/call", {"name": "quick_sync", "arguments": {"n": n}}, id=id)
        for n, id in enumerate(ids)
    ]
    server.send(*calls)

    answers = [server.response(id, 30) for id in ids]
    for number, answer in enumerate(answers):
        if "error" in answer:  # there is no room for so many in threads
            assert answer["error"]["code"] == -31503
            assert answer["error"]["data"]["retryAfterMs"] > 0
        else:
            assert answer["result"]["structuredContent"] == number
    assert sum("result" in answer for answer in answers) >= 400


def test_an_id_that_is_under_way_cannot_be_used_for_another_request(
    server: StdioServer, tmp_path: Any
) -> None:
    release = tmp_path / "release"
    arguments = {"path": str(tmp_path / "notes"), "release": str(release)}
    call = body_of("tools/call", {"name": "wait_async", "arguments": arguments}, id="twice")
    server.send(call, body_of("server/discover", id="twice"))
    assert server.response("twice")["error"]["code"] == -32600
    release.touch()
    before = len(server.messages)
    server.wait_for(lambda message: "result" in message and message["id"] == "twice")

    # Once it is answered the id is free; and a number is another id than its digits.
    server.send(body_of("server/discover", id="twice"), body_of("server/discover", id=5))
    server.send(body_of("server/discover", id="5"))
    server.settled()
    said = [message["id"] for message in server.messages[before:] if "result" in message]
    assert {"twice", 5, "5"} <= set(said)


def test_rates_hold_as_they_do_over_http(start: StdioFactory) -> None:
    rates = [{"tools": ["*"], "bucket": "user", "capacity": 1, "period_s": 3600}]
    server = start(config={"limits": {"rates": rates}})
    server.call("quick_sync")

    error = server.response(server.begin("quick_sync"))["error"]
    assert error["code"] == -31429
    assert error["data"]["retryAfterMs"] > 1000
    server.result(server.ask("server/discover"))


def test_progress_and_messages_come_before_the_result(server: StdioServer) -> None:
    id = server.begin("count", {"steps": 3}, meta=meta(progressToken="t", logLevel="info"))
    server.result(id)

    mine = [message for message in server.messages if message in server.about("t")]
    assert [message["params"]["progress"] for message in mine] == [1, 2, 3]
    assert server.messages[-1]["id"] == id
    server.result(server.begin("say", {"data": "psst"}, meta=meta(logLevel="info")))
    assert server.messages[-2]["params"]["data"] == "psst"


def test_each_request_leaves_a_line_in_the_log_without_a_status(server: StdioServer) -> None:
    id = server.begin("quick_sync")
    server.result(id)

    line = server.wait_for_log(lambda log: log.get("request_id") == id)
    assert line["tool"] == "quick_sync"
    assert line["outcome"] == "ok"
    assert "status" not in line
