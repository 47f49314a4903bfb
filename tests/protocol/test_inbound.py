"""Classification: era, envelope metadata and standard headers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol.errors import HeaderMismatch, InvalidParams, UnsupportedProtocolVersion
from app.protocol.headers import HeaderMap
from app.protocol.inbound import (
    Call,
    Legacy,
    Notification,
    Rejected,
    Response,
    classify,
    classify_message,
    without_version,
)
from app.protocol.jsonrpc import Message

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META: dict[str, Any] = {PREFIX + "protocolVersion": VERSION, PREFIX + "clientCapabilities": {}}
HEADERS = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "fast"}
REMOVE = object()


def _classify(
    headers: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    *,
    method: str = "tools/call",
    params: Any = None,
    id: Any = 1,
) -> Any:
    """Classify a good request with some parts replaced."""
    sent = {**HEADERS, "mcp-method": method, **(headers or {})}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    merged = {**META, **(meta or {})}
    merged = {key: value for key, value in merged.items() if value is not REMOVE}
    body["params"] = {"name": "fast", "arguments": {}, "_meta": merged, **(params or {})}
    body["params"] = {key: value for key, value in body["params"].items() if value is not REMOVE}
    if id is REMOVE:
        del body["id"]
    raw = [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, values in sent.items()
        if values is not REMOVE
        for value in (values if isinstance(values, list) else [values])
    ]
    return classify(HeaderMap(raw), json.dumps(body).encode())


def test_a_good_request_is_a_call() -> None:
    call = _classify()
    assert isinstance(call, Call)
    assert (call.id, call.method, call.params["name"]) == (1, "tools/call", "fast")
    assert call.meta.protocol_version == VERSION
    assert call.meta.client_info is None


MISMATCHES: dict[str, dict[str, Any]] = {
    "no version": {"mcp-protocol-version": REMOVE},
    "an empty version": {"mcp-protocol-version": ""},
    "a legacy version": {"mcp-protocol-version": "2025-11-25"},
    "two versions": {"mcp-protocol-version": [VERSION, VERSION]},
    "two different versions": {"mcp-protocol-version": [VERSION, "2025-11-25"]},
    "no method": {"mcp-method": REMOVE},
    "another method": {"mcp-method": "tools/list"},
    "a method in upper case": {"mcp-method": "TOOLS/CALL"},
    "a method in Base64": {"mcp-method": "=?base64?dG9vbHMvY2FsbA==?="},
    "two methods": {"mcp-method": ["tools/call", "tools/call"]},
    "no name": {"mcp-name": REMOVE},
    "an empty name": {"mcp-name": ""},
    "a blank name": {"mcp-name": "  "},
    "another name": {"mcp-name": "slow"},
    "a name in upper case": {"mcp-name": "FAST"},
    "two names": {"mcp-name": ["fast", "fast"]},
    "names in one line": {"mcp-name": "fast, fast"},
    "a name in bad Base64": {"mcp-name": "=?base64?ZmFzdA?="},
    "a name in raw UTF-8": {"mcp-name": "fäst".encode()},
}


@pytest.mark.parametrize("headers", MISMATCHES.values(), ids=MISMATCHES.keys())
def test_headers_that_disagree_with_the_body_are_refused(headers: dict[str, Any]) -> None:
    rejected = _classify(headers)
    assert isinstance(rejected, Rejected)
    assert isinstance(rejected.error, HeaderMismatch)
    assert rejected.id == 1


AGREEMENTS: dict[str, dict[str, Any]] = {
    "white space around values": {"mcp-name": " fast\t", "mcp-method": " tools/call "},
    "a name in Base64": {"mcp-name": "=?base64?ZmFzdA==?="},
    "headers of other eras": {"mcp-session-id": "x", "last-event-id": "5"},
    "a parameter header": {"mcp-param-zzz": "1"},
}


@pytest.mark.parametrize("headers", AGREEMENTS.values(), ids=AGREEMENTS.keys())
def test_headers_that_agree_are_accepted(headers: dict[str, Any]) -> None:
    assert isinstance(_classify(headers), Call)


@pytest.mark.parametrize("name", ["données", " p ", "=?base64?eA==?=", "a\nb"])
def test_a_name_that_is_not_plain_needs_base64(name: str) -> None:
    raw = name.encode()
    assert isinstance(_classify({"mcp-name": raw}, params={"name": name}), Rejected)


@pytest.mark.parametrize("method", ["tools/list", "server/discover", "unknown/method"])
def test_other_methods_need_no_name_and_ignore_one(method: str) -> None:
    assert isinstance(_classify({"mcp-name": REMOVE}, method=method), Call)
    assert isinstance(_classify({"mcp-name": "whatever"}, method=method), Call)


INVALID_META: dict[str, Any] = {
    "no capabilities": {PREFIX + "clientCapabilities": REMOVE},
    "capabilities null": {PREFIX + "clientCapabilities": None},
    "capabilities text": {PREFIX + "clientCapabilities": "all"},
    "a version that is a number": {PREFIX + "protocolVersion": 1},
    "client info null": {PREFIX + "clientInfo": None},
    "client info without version": {PREFIX + "clientInfo": {"name": "x"}},
    "client info with a number": {PREFIX + "clientInfo": {"name": "x", "version": 1}},
    "an unknown log level": {PREFIX + "logLevel": "loud"},
    "log level null": {PREFIX + "logLevel": None},
    "a progress token 1.5": {"progressToken": 1.5},
    "a progress token null": {"progressToken": None},
    "a progress token true": {"progressToken": True},
    "a progress token []": {"progressToken": []},
}


@pytest.mark.parametrize("meta", INVALID_META.values(), ids=INVALID_META.keys())
def test_metadata_of_the_wrong_shape_is_invalid(meta: dict[str, Any]) -> None:
    rejected = _classify(meta=meta)
    assert isinstance(rejected, Rejected)
    assert isinstance(rejected.error, InvalidParams)
    assert rejected.id == 1


@pytest.mark.parametrize("token", ["abc", "", 0, -5, 10**30])
def test_a_progress_token_keeps_its_type(token: Any) -> None:
    call = _classify(meta={"progressToken": token})
    assert call.meta.progress_token == token
    assert type(call.meta.progress_token) is type(token)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("sent", "seen"),
    [(TRACE, TRACE), ("nonsense", None), (5, None), ("00-" + "0" * 32 + TRACE[35:], None)],
)
def test_a_malformed_trace_context_is_ignored(sent: Any, seen: str | None) -> None:
    assert _classify(meta={"traceparent": sent}).meta.trace_parent == seen


@pytest.mark.parametrize("version", ["1900-01-01", "v999.0.0", "2025-11-25"])
def test_a_version_that_is_not_served_is_told_which_are(version: str) -> None:
    rejected = _classify({"mcp-protocol-version": version}, {PREFIX + "protocolVersion": version})
    assert isinstance(rejected, Rejected)
    assert isinstance(rejected.error, UnsupportedProtocolVersion)
    assert rejected.error.data == {"supported": [VERSION], "requested": version}


NO_VERSION_IN_BODY: dict[str, tuple[Any, Any]] = {
    "a modern header": (VERSION, InvalidParams),
    "an unknown header": ("v999.0.0", UnsupportedProtocolVersion),
    "a legacy header": ("2025-06-18", Legacy),
    "no header": (REMOVE, Legacy),
    "an empty header": ("", Legacy),
}


@pytest.mark.parametrize("meta", [{}, {PREFIX + "protocolVersion": REMOVE}, REMOVE, None, 5])
@pytest.mark.parametrize(
    ("header", "expected"), NO_VERSION_IN_BODY.values(), ids=NO_VERSION_IN_BODY.keys()
)
def test_without_a_version_in_the_body_the_header_decides(
    meta: Any, header: Any, expected: Any
) -> None:
    found = _classify(
        {"mcp-protocol-version": header},
        {PREFIX + "protocolVersion": REMOVE},
        params={} if meta == {PREFIX + "protocolVersion": REMOVE} else {"_meta": meta},
    )
    assert isinstance(found.error if isinstance(found, Rejected) else found, expected)


@pytest.mark.parametrize("headers", [{}, {"mcp-method": REMOVE}, {"mcp-method": "other"}])
def test_a_well_formed_notification_is_accepted_whatever_its_headers(headers: Any) -> None:
    found = _classify(headers, id=REMOVE)
    assert isinstance(found, Notification) and found.method == "tools/call"


@given(st.binary(max_size=300), st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20))))
def test_nothing_that_comes_in_makes_the_classifier_fail(
    body: bytes, raw: list[tuple[bytes, bytes]]
) -> None:
    assert isinstance(classify(HeaderMap(raw), body), (Call, Legacy, Notification, Rejected))


@given(
    st.dictionaries(
        st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name"]),
        st.text(st.characters(codec="latin-1"), max_size=30),
    )
)
def test_only_agreeing_headers_make_a_call(headers: dict[str, str]) -> None:
    found = _classify({name: value.encode("latin-1") for name, value in headers.items()})
    agree = all(HEADERS[name] == value.strip(" \t") for name, value in headers.items())
    if agree:
        assert isinstance(found, Call)
    elif "=?base64?" not in "".join(headers.values()):
        assert isinstance(found, Rejected)


# -- without headers -----------------------------------------------------------


def _line(**changes: Any) -> bytes:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    return json.dumps({**request, **changes}).encode()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (_line(), Call),
        (_line(method="initialize"), Call),
        (_line(params={"_meta": {}}), Legacy),
        (_line(params={"_meta": None}), Legacy),
        (_line(params={}), Legacy),
        (_line(params=None), Legacy),
        (_line(method="initialize", params={"protocolVersion": "2025-11-25"}), Legacy),
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', Notification),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', Response),
        (b'{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"no"}}', Response),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', Rejected),
        (b"{", Rejected),
        (b"[]", Rejected),
        (_line(params=[]), Rejected),
        (_line(params={"_meta": {**META, PREFIX + "protocolVersion": "2025-11-25"}}), Rejected),
        (_line(params={"_meta": {PREFIX + "protocolVersion": VERSION}}), Rejected),
    ],
)
def test_without_headers_the_body_alone_decides(line: bytes, kind: type) -> None:
    assert isinstance(classify_message(line), kind)


def test_without_headers_a_notification_keeps_its_params() -> None:
    line = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
    assert classify_message(line) == Notification("notifications/cancelled", {"requestId": 7})


@given(st.binary(max_size=200))
def test_no_line_is_beyond_classification(line: bytes) -> None:
    assert isinstance(classify_message(line), (Call, Legacy, Notification, Response, Rejected))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Message(1, "initialize", {"protocolVersion": "2025-11-25"}), -32601),
        (Message(1, "tools/list", None), -32602),
        (Message(1, "tools/list", {"_meta": {}}), -32602),
    ],
)
def test_who_names_no_version_is_told_which_are_served(message: Message, code: int) -> None:
    error = without_version(message)
    assert error.code == code
    assert VERSION in error.message
