"""Bodies that are not JSON, not JSON-RPC, or JSON-RPC of a strange kind."""

import json
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, body_of, encode, meta
from tests.support.http1 import strict_json

LIST = body_of("tools/list")
GOOD = encode(LIST)


def with_literal(literal: bytes) -> bytes:
    """A call whose argument is `literal`, which no encoder of ours would write."""
    body = encode(body_of("tools/call", {"name": "echo_any", "arguments": {"value": "HERE"}}))
    return body.replace(b'"HERE"', literal)


@rows(
    "body",
    ("wire §1 unparsable", b"{"),
    ("wire §1 unparsable: a word", b"hello"),
    ("wire §1 unparsable: single quotes", b"{'jsonrpc':'2.0'}"),
    ("wire §1 empty body", b""),
    ("wire §1 whitespace body", b" \r\n\t"),
    ("wire §1 trailing garbage", GOOD + b"x"),
    ("wire §1 trailing garbage: a second message", GOOD + GOOD),
    ("wire §1 invalid UTF-8", with_literal(b'"\xff\xfe"')),
    ("wire §1 invalid UTF-8: overlong", with_literal(b'"\xc0\xaf"')),
    ("wire §1 invalid UTF-8: surrogate", with_literal(b'"\xed\xa0\x80"')),
    ("wire §1 UTF-16", GOOD.decode().encode("utf-16")),
    ("wire §1 UTF-16 without mark", GOOD.decode().encode("utf-16-le")),
    ("wire §1 nesting 100k", b"[" * 100_000 + b"]" * 100_000),
    ("wire §1 nesting 100k in arguments", with_literal(b"[" * 100_000 + b"]" * 100_000)),
    ("AR-22 nested objects", with_literal(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
    ("AR-22 never closed", b"[" * 100_000),
    ("wire §1 NaN", with_literal(b"NaN")),
    ("wire §1 Infinity", with_literal(b"-Infinity")),
    ("wire §1 lone surrogate", with_literal(rb'"\ud800"')),
    ("AR-21 lone low surrogate", with_literal(rb'"a\udfff"')),
    ("AR-21 reversed pair", with_literal(rb'"\udc00\ud800"')),
    ("AR-21 surrogate in a key", with_literal(rb'{"\ud800":1}')),
)
def test_a_body_that_is_not_json_is_a_parse_error_without_id(
    client: McpClient, body: bytes
) -> None:
    reply = client.ask("tools/call", headers={"Mcp-Name": "echo_any"}, body=body)
    assert reply.outcome == (400, -32700)
    assert "id" not in reply.last
    assert client.call("echo", {"text": "next"}).value == "next"


@rows(
    "body",
    ("wire §1 array", [LIST]),
    ("wire §1 empty array", []),
    ("PR-07 two requests", [LIST, LIST]),
    ("PR-07 a request and a notification", [LIST, {"jsonrpc": "2.0", "method": "notifications/x"}]),
    ("wire §1 scalar", 7),
    ("wire §1 null body", None),
    ("wire §1 string body", "tools/list"),
    ("PR-09 true", True),
)
def test_a_body_that_is_not_one_object_is_an_invalid_request(client: McpClient, body: Any) -> None:
    reply = client.ask("tools/list", body=encode(body))
    assert reply.outcome == (400, -32600)
    assert "id" not in reply.last


MISSING = object()


def changed(**members: Any) -> dict[str, Any]:
    """The usual request with top-level members replaced, or left out."""
    body = {**body_of("tools/list", id=31), **members}
    return {key: value for key, value in body.items() if value is not MISSING}


@rows(
    "body",
    ("wire §1 jsonrpc missing", changed(jsonrpc=MISSING)),
    ("wire §1 jsonrpc 1.0", changed(jsonrpc="1.0")),
    ("PR-09 jsonrpc a number", changed(jsonrpc=2.0)),
    ("wire §1 method missing", changed(method=MISSING)),
    ("wire §1 method not a string", changed(method=1)),
    ("PR-09 method null", changed(method=None)),
    ("wire §1 params array", changed(params=[])),
    ("PR-09 params a string", changed(params="x")),
    ("PR-09 params a number", changed(params=0)),
)
def test_a_broken_envelope_is_an_invalid_request_that_echoes_the_id(
    client: McpClient, body: dict[str, Any]
) -> None:
    reply = client.ask("tools/list", body=body)
    assert reply.outcome == (400, -32600)
    assert reply.last["id"] == 31


@rows(
    "body",
    ("wire §1 params null", changed(params=None)),
    ("wire §1 params absent", changed(params=MISSING)),
)
def test_params_must_be_there_because_meta_must_be(client: McpClient, body: Any) -> None:
    reply = client.ask("tools/list", body=body)
    assert reply.status == 400
    # Null may count as a wrong type or as an absent object; absent is the missing `_meta`.
    assert reply.code in ((-32600, -32602) if "params" in body else (-32602,))
    assert reply.last["id"] == 31


@rows(
    "bad",
    ("wire §1 id null", None),
    ("wire §1 id true", True),
    ("wire §1 id 1.5", 1.5),
    ("wire §1 id array", []),
    ("wire §1 id object", {}),
)
def test_an_id_that_is_no_id_is_an_invalid_request(client: McpClient, bad: Any) -> None:
    reply = client.ask("tools/list", id=bad)
    assert reply.outcome == (400, -32600)
    assert "id" not in reply.last


IDS: list[Any] = [0, -1, 1, "1", "", 2**53, 2**53 + 1, 2**63 - 1, -(2**63), "x" * 200, 'q"\n€😀']
SITUATIONS: dict[str, dict[str, Any]] = {
    "result": {"method": "tools/list"},
    "unknown method": {"method": "foo/bar"},
    "header mismatch": {"method": "tools/list", "headers": {"Mcp-Method": "tools/call"}},
    "bad params": {"method": "tools/list", "params": {"cursor": 7}},
    "bad version": {
        "method": "tools/list",
        "headers": {"MCP-Protocol-Version": "2099-01-01"},
        "meta_": meta(protocolVersion="2099-01-01"),
    },
    "tool error": {"method": "tools/call", "params": {"name": "fail"}},
    "not acceptable": {"method": "subscriptions/listen", "headers": {"Accept": "application/json"}},
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("id", IDS, ids=[f"PR-06 {str(id)[:24]!r}" for id in IDS])
def test_an_id_comes_back_with_its_value_and_type(
    client: McpClient, id: Any, situation: str
) -> None:
    """wire §1 id > 2^53, wire §1 id empty string."""
    reply = client.ask(**SITUATIONS[situation], id=id)
    if situation == "not acceptable" and "id" not in reply.last:
        assert reply.status == 406  # refused before the body was read
        return
    assert reply.last["id"] == id
    assert type(reply.last["id"]) is type(id)


@rows("literal", ("wire §1 id 1.0", b"1.0"), ("wire §1 id 1e2", b"1e2"))
def test_an_integral_number_is_no_id_or_comes_back_as_integer(
    client: McpClient, literal: bytes
) -> None:
    reply = client.ask("tools/list", body=GOOD.replace(b'"id":1', b'"id":' + literal))
    if reply.status == 200:
        assert type(reply.last["id"]) is int
        assert reply.last["id"] == float(literal)
    else:
        assert reply.outcome == (400, -32600)


@pytest.mark.parametrize("id", [2**64, 10**30, -(10**40)])
def test_an_id_beyond_64_bits_is_exact_or_refused(client: McpClient, id: int) -> None:
    """AR-16, wire §0.10."""
    reply = client.ask("tools/list", id=id)
    if reply.status == 200:
        assert reply.last["id"] == id
    else:
        assert reply.outcome == (400, -32700)
        assert "id" not in reply.last


def test_a_request_without_id_is_a_notification(client: McpClient) -> None:
    """wire §1 id absent."""
    reply = client.ask("tools/list", body=changed(id=MISSING))
    assert (reply.status, reply.response.body) == (202, b"")


@rows(
    "extra",
    ("wire §1 unknown member", {"extra": {"a": 1}}),
    ("wire §1 result beside method", {"result": {}}),
    ("wire §1 error beside method", {"error": {"code": 1, "message": "x"}}),
)
def test_members_that_mean_nothing_are_ignored(client: McpClient, extra: Any) -> None:
    assert client.ask("tools/list", body={**LIST, **extra}).status == 200


def test_a_byte_order_mark_is_stripped_or_refused(client: McpClient) -> None:
    """wire §1 BOM."""
    reply = client.ask("tools/list", body=b"\xef\xbb\xbf" + GOOD)
    assert reply.status == 200 or reply.outcome == (400, -32700)


@rows(
    "first, second, header",
    ("wire §1 duplicate keys", "echo", "add", "echo"),
    ("wire §1 duplicate keys: the last", "add", "echo", "echo"),
)
def test_of_two_equal_keys_headers_and_execution_see_the_same(
    client: McpClient, first: str, second: str, header: str
) -> None:
    params = f'"name":"{first}","name":"{second}","arguments":{{"text":"t"}}'.encode()
    body = encode(body_of("tools/call", {"name": "NAME", "arguments": {}}))
    body = body.replace(b'"name":"NAME","arguments":{}', params)
    reply = client.ask("tools/call", {"name": header}, body=body)
    if reply.status == 200:
        assert second == header and reply.value == "t"
    else:
        assert reply.outcome in ((400, -32020), (400, -32700))


@rows(
    "literal",
    ("wire §1 1e999", b"1e999"),
    ("wire §1 -1e999", b"-1e999"),
    ("wire §1 5000 digits", b"9" * 5000),
    ("AR-16 5000 digits after the point", b"0." + b"3" * 5000),
)
def test_a_number_beyond_every_range_is_never_echoed_wrongly(
    client: McpClient, literal: bytes
) -> None:
    reply = client.ask("tools/call", {"name": "echo_any"}, body=with_literal(literal))
    assert b"Infinity" not in reply.response.body
    if reply.status == 200 and not reply.is_error:
        assert strict_json(reply.text.encode())["value"] == json.loads(literal)
    elif reply.status == 400:
        assert reply.code == -32700


@pytest.mark.parametrize("depth", [10, 60, 150])
def test_reasonable_nesting_is_served(client: McpClient, depth: int) -> None:
    """AR-22."""
    reply = client.ask(
        "tools/call", {"name": "echo_any"}, body=with_literal(b"[" * depth + b"]" * depth)
    )
    assert reply.status == 200
    assert not reply.is_error


@pytest.mark.parametrize("depth", range(190, 270, 7))
def test_nesting_near_any_limit_is_served_or_refused_in_order(
    client: McpClient, depth: int
) -> None:
    """AR-22."""
    body = with_literal(b"[" * depth + b"]" * depth)
    reply = client.ask("tools/call", {"name": "echo_any"}, body=body)
    assert reply.status == 200 or reply.outcome == (400, -32700)


def test_a_posted_response_is_an_invalid_request(client: McpClient) -> None:
    """wire §5 posted response, wire §0.11, PR-09."""
    answers: list[dict[str, Any]] = [{"result": {}}, {"error": {"code": -1, "message": "no"}}]
    for answer in answers:
        reply = client.ask("tools/list", body={"jsonrpc": "2.0", "id": 9, **answer})
        assert reply.outcome == (400, -32600)
