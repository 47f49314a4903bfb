"""`_meta`, methods, versions and eras; what a request must say before anything runs."""

import json
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, body_of, encode, meta
from tests.support.schema import META
from tests.support.server import ServerFactory

VERSION = "2026-07-28"
LEGACY_VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
INFO = {"name": "a client", "version": "1.0"}
WITHOUT_HEADERS = {"MCP-Protocol-Version": None, "Mcp-Method": None}


@rows(
    "params",
    ("wire §5 _meta missing", {"_meta": None}),
    ("PR-02 _meta null", {"_meta": "null"}),
    ("wire §5 _meta empty", {"_meta": {}}),
    ("wire §5 no protocolVersion", {"_meta": meta(protocolVersion=None)}),
    ("wire §5 no clientCapabilities", {"_meta": meta(clientCapabilities=None)}),
    ("wire §5 clientCapabilities null", {"_meta": meta() | {f"{META}clientCapabilities": None}}),
    ("wire §5 clientCapabilities string", {"_meta": meta(clientCapabilities="{}")}),
    ("wire §5 clientCapabilities array", {"_meta": meta(clientCapabilities=[])}),
    ("PR-02 _meta array", {"_meta": []}),
    ("wire §5 clientInfo malformed", {"_meta": meta(clientInfo={"name": "x"})}),
    ("wire §5 clientInfo string", {"_meta": meta(clientInfo="x")}),
    ("wire §5 clientInfo wrong types", {"_meta": meta(clientInfo={"name": 1, "version": "1"})}),
    ("wire §5 clientInfo null", {"_meta": meta() | {f"{META}clientInfo": None}}),
    ("wire §5 logLevel unknown", {"_meta": meta(logLevel="loud")}),
    ("wire §5 logLevel case", {"_meta": meta(logLevel="INFO")}),
    ("wire §5 logLevel number", {"_meta": meta(logLevel=3)}),
    ("wire §5 logLevel array", {"_meta": meta(logLevel=["info"])}),
    ("wire §5 progressToken 1.5", {"_meta": meta(progressToken=1.5)}),
    ("wire §5 progressToken null", {"_meta": meta() | {"progressToken": None}}),
    ("wire §5 progressToken array", {"_meta": meta(progressToken=[])}),
    ("wire §5 progressToken object", {"_meta": meta(progressToken={})}),
    ("wire §5 progressToken true", {"_meta": meta(progressToken=True)}),
)
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
def test_a_meta_that_is_incomplete_or_malformed_is_refused(
    client: McpClient, method: str, params: dict[str, Any]
) -> None:
    own: dict[str, Any] = {"name": "echo", "arguments": {"text": "t"}}
    params = (own if method == "tools/call" else {}) | params
    body = body_of(method, params, id="m")
    if params["_meta"] is None:
        del body["params"]["_meta"]
    elif params["_meta"] == "null":
        body["params"]["_meta"] = None
    reply = client.ask(method, own if method == "tools/call" else {}, body=body)
    assert reply.outcome == (400, -32602)
    assert reply.last["id"] == "m"


@rows(
    "key, own",
    ("PR-02 protocolVersion", "protocolVersion", meta(protocolVersion=None)),
    ("PR-02 clientCapabilities", "clientCapabilities", meta(clientCapabilities=None)),
    ("PR-02 clientInfo", "clientInfo", meta(clientInfo=[])),
    ("PR-02 logLevel", "logLevel", meta(logLevel="x")),
    ("PR-02 progressToken", "progressToken", meta(progressToken=1.5)),
)
def test_a_refused_meta_names_the_key(client: McpClient, key: str, own: dict[str, Any]) -> None:
    assert key in client.ask("tools/list", meta_=own).error["message"]


@rows(
    "own",
    ("wire §5 clientInfo absent", meta()),
    ("wire §5 clientInfo given", meta(clientInfo=INFO)),
    ("clientInfo with everything", meta(clientInfo=INFO | {"title": "T", "icons": [], "x": 1})),
    ("capabilities of nobody", meta(clientCapabilities={"x": {}, "extensions": {"a/b": {}}})),
    ("keys of others", meta() | {"example.com/trace": {"a": [1]}}),
    ("wire §0.18 traceparent malformed", meta(traceparent="nonsense")),
    ("wire §0.18 traceparent not text", meta(traceparent=7)),
    ("progressToken empty", meta(progressToken="")),
    ("progressToken zero", meta(progressToken=0)),
    ("logLevel", meta(logLevel="emergency")),
)
def test_a_meta_that_is_complete_is_served(client: McpClient, own: dict[str, Any]) -> None:
    assert client.call("echo", {"text": "t"}, meta_=own).value == "t"


@rows(
    "method",
    ("wire §5 unknown method", "foo/bar"),
    ("wire §5 ping", "ping"),
    ("wire §5 initialize", "initialize"),
    ("wire §5 logging/setLevel", "logging/setLevel"),
    ("wire §5 resources/subscribe", "resources/subscribe"),
    ("PR-01 resources/unsubscribe", "resources/unsubscribe"),
    ("wire §5 unadvertised resources", "resources/list"),
    ("wire §5 unadvertised templates", "resources/templates/list"),
    ("wire §5 unadvertised prompts", "prompts/list"),
    ("wire §5 unadvertised completion", "completion/complete"),
    ("wire §6 tasks/list", "tasks/list"),
    ("wire §6 tasks/result", "tasks/result"),
    ("PR-01 a notification's name", "notifications/cancelled"),
    ("PR-01 a prefix", "tools"),
    ("PR-01 case", "Tools/List"),
    ("PR-01 empty", "."),
)
def test_a_method_that_is_not_served_is_not_found(client: McpClient, method: str) -> None:
    reply = client.ask(method, id="u")
    assert reply.outcome == (404, -32601)
    assert reply.last["id"] == "u"


@rows(
    "method, params",
    ("wire §6 tasks/get", "tasks/get", {"taskId": "t"}),
    ("wire §6 tasks/cancel", "tasks/cancel", {"taskId": "t"}),
    ("wire §5 unadvertised prompts/get", "prompts/get", {"name": "p"}),
    ("wire §5 unadvertised resources/read", "resources/read", {"uri": "u"}),
)
def test_a_method_with_a_name_that_is_not_served_is_not_found(
    client: McpClient, method: str, params: dict[str, str]
) -> None:
    (name,) = params.values()
    reply = client.ask(method, params, {"Mcp-Name": name})
    assert reply.outcome == (404, -32601)


def test_a_long_method_is_not_repeated_at_length(client: McpClient) -> None:
    reply = client.ask("x/" + "y" * 20_000)
    assert reply.outcome == (404, -32601)
    assert len(reply.response.body) < 2000


@rows(
    "params, headers",
    ("wire §5 unknown tool", {"name": "nobody"}, {}),
    ("wire §5 unknown tool by case", {"name": "ECHO"}, {}),
    ("wire §5 arguments array", {"name": "echo", "arguments": []}, {}),
    ("wire §5 arguments string", {"name": "echo", "arguments": "{}"}, {}),
    ("wire §5 arguments number", {"name": "echo", "arguments": 0}, {}),
    ("wire §5 arguments false", {"name": "echo", "arguments": False}, {}),
    ("wire §5 unknown tool, empty name", {"name": ""}, {"Mcp-Name": "=?base64??="}),
)
def test_a_call_that_is_no_call_is_invalid_params(
    client: McpClient, params: dict[str, Any], headers: dict[str, str]
) -> None:
    assert client.ask("tools/call", params, headers, id=5).outcome == (400, -32602)


@pytest.mark.parametrize("name", [7, None, [], {}, True])
def test_a_name_that_is_no_text_is_refused(client: McpClient, name: Any) -> None:
    """wire §5 name int: -32602, or -32020 because no header can agree with it."""
    reply = client.ask("tools/call", {"name": name, "arguments": {}}, {"Mcp-Name": "7"})
    assert reply.outcome in ((400, -32602), (400, -32020))


def test_an_unknown_tool_is_not_described(client: McpClient) -> None:
    """The same answer for every unknown name, whatever it resembles."""
    errors = {client.call(name).error["message"].replace(name, "") for name in ("ech", "zzz")}
    assert len(errors) == 1


def test_discover_says_what_is_served(client: McpClient) -> None:
    """wire §5 discover, PR-11."""
    result = client.ask("server/discover").result
    assert result["supportedVersions"] == [VERSION, *LEGACY_VERSIONS]
    assert set(result["capabilities"]) <= {"tools", "logging"}
    assert "tools" in result["capabilities"]
    assert result["instructions"] == "Use these tools to test a client."
    assert result["_meta"][f"{META}serverInfo"]["name"] == "fixture-server"
    assert result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private")
    assert "serverInfo" not in result


def test_every_result_says_who_answers(client: McpClient) -> None:
    """wire §5 every result, wire §5 serverInfo."""
    names = {
        reply.result["_meta"][f"{META}serverInfo"]["name"]
        for reply in (
            client.ask("server/discover"),
            client.ask("tools/list"),
            client.call("echo", {"text": "t"}),
            client.call("fail"),
        )
    }
    assert names == {"fixture-server"}


# -- eras --------------------------------------------------------------------


@pytest.fixture(scope="module")
def modern_alone(module_server_factory: ServerFactory) -> McpClient:
    """A client of a server that serves no older revision."""
    return module_server_factory(config={"legacy": {"enabled": False}}).client


def test_a_request_of_no_era_is_told_what_is_served(modern_alone: McpClient) -> None:
    """wire §0.1 neither header nor _meta, PR-04 where no older revision is served."""
    for method, params in (
        ("tools/list", {}),
        ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}),
        ("initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": INFO}),
        ("ping", None),
    ):
        body = {"jsonrpc": "2.0", "id": 4, "method": method}
        body |= {} if params is None else {"params": params}
        reply = modern_alone.ask(method, {}, WITHOUT_HEADERS, body=body)
        assert reply.outcome == (400, -32020), method
        assert VERSION in reply.error["message"]
        assert reply.last["id"] == 4
        assert reply.header("mcp-session-id") is None
    served = modern_alone.ask("server/discover").result["supportedVersions"]
    assert served == [VERSION]


def test_a_legacy_body_under_a_modern_header_lacks_meta(client: McpClient) -> None:
    """wire §0.1."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    assert client.ask("tools/list", body=body).outcome == (400, -32602)


def test_a_modern_initialize_is_not_found_and_told_what_is_served(client: McpClient) -> None:
    """wire §0.1, PR-01."""
    reply = client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert reply.outcome == (404, -32601)
    assert VERSION in reply.error["message"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_legacy_request_gets_an_answer_that_helps(modern_alone: McpClient, version: str) -> None:
    """PR-11 where no older revision is served: 400 and the served versions."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": None}
    reply = modern_alone.ask("tools/list", {}, headers, body=body)
    assert reply.status == 400
    assert reply.code in (-32020, -32022)
    assert VERSION in str(reply.error)


def test_eras_do_not_rub_off_on_each_other(client: McpClient) -> None:
    """PR-11: interleaved on one connection, each request is judged alone."""
    bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    legacy = {"MCP-Protocol-Version": "2025-06-18", "Mcp-Method": None}
    with client.connect() as connection:
        for _ in range(3):
            assert client.ask("tools/list", connection=connection).status == 200
            for headers in (legacy, WITHOUT_HEADERS):
                request = client.request("tools/list", {}, headers, body=bare)
                response = connection.exchange(request)
                result = json.loads(response.body)["result"]
                assert "resultType" not in result and result["tools"]


# -- notifications -------------------------------------------------------------


def notification(method: str, params: Any = None) -> bytes:
    """A notification's body."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return encode(message if params is None else message | {"params": params})


@rows(
    "body, headers",
    (
        "wire §5 notification cancelled",
        notification("notifications/cancelled", {"requestId": 7}),
        {},
    ),
    ("wire §5 notification unknown", notification("notifications/foo"), {}),
    ("wire §5 notification initialized", notification("notifications/initialized"), {}),
    ("wire §5 notification with _meta", notification("notifications/foo", {"_meta": meta()}), {}),
    (
        "wire §5 notification without Mcp-Method",
        notification("notifications/foo"),
        {"Mcp-Method": None},
    ),
    (
        "wire §5 notification Mcp-Method mismatch",
        notification("notifications/foo"),
        {"Mcp-Method": "tools/list"},
    ),
    ("wire §5 notification without headers", notification("notifications/foo"), WITHOUT_HEADERS),
    ("CX-07 cancelled without requestId", notification("notifications/cancelled", {}), {}),
    ("CX-07 cancelled without params", notification("notifications/cancelled"), {}),
    ("CX-07 roots", notification("notifications/roots/list_changed"), {}),
    ("PR-01 unknown notification", notification("notifications/foo", {"a": 1}), {}),
)
def test_a_well_formed_notification_is_accepted_without_a_body(
    client: McpClient, body: bytes, headers: dict[str, str | None]
) -> None:
    """wire §0.11."""
    reply = client.ask("notifications/foo", {}, headers, body=body)
    assert (reply.status, reply.response.body) == (202, b"")


def test_a_notification_with_bad_params_is_refused(client: McpClient) -> None:
    """wire §5 notification params array."""
    body = notification("notifications/foo", [1])
    assert client.ask("notifications/foo", body=body).outcome == (400, -32600)


def test_a_notification_of_a_version_that_is_not_served_is_answered_without_error(
    client: McpClient,
) -> None:
    """wire §5 notification unsupported version: 202, or the version's refusal."""
    body = notification("notifications/foo", {"_meta": meta(protocolVersion="2099-01-01")})
    headers = {"MCP-Protocol-Version": "2099-01-01"}
    reply = client.ask("notifications/foo", {}, headers, body=body)
    assert reply.status == 202 or reply.outcome == (400, -32022)


# -- concurrency -----------------------------------------------------------------


def test_two_calls_with_the_same_id_get_their_own_results(client: McpClient) -> None:
    """wire §5 concurrent same id, SN-09."""
    requests = [
        client.request("tools/call", {"name": "count", "arguments": {"steps": steps}}, id=7)
        for steps in (2, 5, 3, 4)
    ]
    connections = [client.connect() for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        connection.send(request.encode())
    replies = [connection.read_response() for connection in connections]
    for connection in connections:
        connection.close()
    texts = [reply.json()["result"]["content"][0]["text"] for reply in replies]
    assert texts == ["2 steps", "5 steps", "3 steps", "4 steps"]


@rows(
    "code, how",
    ("PR-12 parse error", -32700, {"body": b"{"}),
    ("PR-12 invalid request", -32600, {"body": b"[]"}),
    ("PR-12 not found", -32601, {"method": "foo"}),
    ("PR-12 invalid params", -32602, {"meta_": {}}),
    ("PR-12 mismatch", -32020, {"headers": {"Mcp-Method": "x"}}),
    ("PR-12 wrong type", -31415, {"headers": {"Content-Type": "text/plain"}}),
    ("PR-12 not acceptable", -31406, {"headers": {"Accept": "text/html"}}),
    ("PR-12 forbidden", -31403, {"headers": {"Origin": "null"}}),
)
def test_every_error_has_a_code_of_its_class_and_that_class_one_status(
    client: McpClient, code: int, how: dict[str, Any]
) -> None:
    """wire §0.3, wire §0.4. The harness checks the same for every answer in this suite."""
    reply = client.ask(how.pop("method", "tools/list"), **how)
    assert reply.code == code
    assert reply.response.media_type == "application/json"
