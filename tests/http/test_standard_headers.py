"""MCP-Protocol-Version, Mcp-Method and Mcp-Name against the body."""

from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, meta, sentinel
from tests.support.server import ServerProcess

VERSION = "2026-07-28"
ECHO: dict[str, Any] = {"name": "echo", "arguments": {"text": "t"}}
Changes = dict[str, str | bytes | None]


@rows(
    "changes",
    ("wire §3 version missing", {"MCP-Protocol-Version": None}),
    ("wire §3 version empty", {"MCP-Protocol-Version": ""}),
    ("wire §3 version mismatch", {"MCP-Protocol-Version": "2099-01-01"}),
    ("wire §3 version legacy in the header", {"MCP-Protocol-Version": "2025-11-25"}),
    ("wire §3 version raw bytes", {"MCP-Protocol-Version": b"2026-07-28\xff"}),
    ("wire §3 version encoded", {"MCP-Protocol-Version": sentinel(VERSION)}),
    ("wire §3 method missing", {"Mcp-Method": None}),
    ("wire §3 method empty", {"Mcp-Method": ""}),
    ("wire §3 method mismatch", {"Mcp-Method": "tools/list"}),
    ("wire §3 method case", {"Mcp-Method": "Tools/Call"}),
    ("wire §3 method base64", {"Mcp-Method": sentinel("tools/call")}),
    ("wire §3 name missing", {"Mcp-Name": None}),
    ("wire §3 name empty", {"Mcp-Name": ""}),
    ("wire §3 name mismatch", {"Mcp-Name": "add"}),
    ("wire §3 name case", {"Mcp-Name": "Echo"}),
    ("wire §3 sentinel padding", {"Mcp-Name": "=?base64?ZWNobw=?="}),
    ("wire §3 sentinel no padding", {"Mcp-Name": "=?base64?ZWNobw?="}),
    ("wire §3 sentinel alphabet", {"Mcp-Name": "=?base64?ZWNo!bw==?="}),
    ("wire §3 sentinel white space", {"Mcp-Name": "=?base64?ZWNo bw==?="}),
    ("wire §3 sentinel url-safe", {"Mcp-Name": "=?base64?__-_?="}),
    ("wire §3 sentinel bad UTF-8", {"Mcp-Name": "=?base64?//79?="}),
    ("wire §3 sentinel trailing bits", {"Mcp-Name": "=?base64?ZWNobx==?="}),
    ("wire §3 sentinel of nothing", {"Mcp-Name": "=?base64??="}),
    ("wire §3 sentinel upper case is literal", {"Mcp-Name": "=?BASE64?ZWNobw==?="}),
    ("wire §3 sentinel without prefix is literal", {"Mcp-Name": "ZWNobw==?="}),
    ("wire §3 sentinel without suffix is literal", {"Mcp-Name": "=?base64?ZWNobw=="}),
    ("wire §3 sentinel that overlaps is literal", {"Mcp-Name": "=?base64?="}),
    ("wire §3 raw non-ASCII", {"Mcp-Name": "écho".encode()}),
    ("HD-11 comma-joined name", {"Mcp-Name": "echo, echo"}),
    ("HD-11 comma-joined version", {"MCP-Protocol-Version": f"{VERSION}, {VERSION}"}),
    ("HD-11 comma-joined method", {"Mcp-Method": "tools/call,tools/call"}),
    ("HD-12 value case", {"mcp-METHOD": "Tools/Call"}),
)
def test_a_header_that_disagrees_with_the_body_is_refused(
    client: McpClient, changes: Changes
) -> None:
    """HD-04, HD-14: always as HTTP 400, with the request's id."""
    reply = client.ask("tools/call", ECHO, changes, id="h-1")
    assert reply.outcome == (400, -32020)
    assert reply.last["id"] == "h-1"


@pytest.mark.parametrize("value", [b"ec\x01ho", b"ec\x7fho", b"ec\x00ho", b"echo\x1b[2J"])
def test_a_control_character_never_gets_through(client: McpClient, value: bytes) -> None:
    """HD-02: refused by the HTTP parser or by us, but refused."""
    with client.connect() as connection:
        connection.send(client.request("tools/call", ECHO, {"Mcp-Name": value}).encode())
        assert connection.read_response().status == 400


@rows(
    "name",
    ("HD-02 UTF-8 bytes", "données".encode()),
    ("HD-02 Latin-1 bytes", "données".encode("latin-1")),
)
def test_raw_bytes_are_refused_even_if_the_body_has_the_same_name(
    client: McpClient, name: bytes
) -> None:
    reply = client.ask("tools/call", {"name": "données"}, {"Mcp-Name": name})
    assert reply.outcome == (400, -32020)


@rows(
    "changes",
    ("wire §3 white space", {"Mcp-Name": " \techo\t ", "Mcp-Method": "  tools/call "}),
    ("wire §3 white space around the version", {"MCP-Protocol-Version": f"\t{VERSION} "}),
    ("wire §3 sentinel valid", {"Mcp-Name": sentinel("echo")}),
    ("HD-12 names in lower case", {"mcp-method": "tools/call", "mcp-name": "echo"}),
    ("HD-12 names in upper case", {"MCP-METHOD": "tools/call", "MCP-NAME": "echo"}),
    ("wire §3 session id", {"Mcp-Session-Id": "1868a90c"}),
    ("wire §3 last event id", {"Last-Event-ID": "5"}),
    ("wire §5 traceparent malformed", {"traceparent": "00-nonsense"}),
)
def test_what_the_specification_allows_is_served(client: McpClient, changes: Changes) -> None:
    """HD-01."""
    reply = client.ask("tools/call", ECHO, changes)
    assert reply.value == "t"
    assert reply.header("mcp-session-id") is None
    assert reply.header("last-event-id") is None


@rows(
    "copies",
    ("wire §3 duplicate header", [("Mcp-Name", "add")]),
    ("wire §3 duplicate header, same value", [("Mcp-Name", "echo")]),
    ("HD-11 other case", [("MCP-NAME", "echo")]),
    ("HD-11 two methods", [("Mcp-Method", "tools/call")]),
    ("HD-11 two versions", [("MCP-Protocol-Version", VERSION)]),
    ("HD-11 a legacy version as well", [("MCP-Protocol-Version", "2025-11-25")]),
    ("HD-11 an empty copy", [("Mcp-Name", "")]),
)
def test_a_header_sent_twice_is_refused(client: McpClient, copies: list[tuple[str, str]]) -> None:
    assert client.ask("tools/call", ECHO, extra=copies).outcome == (400, -32020)


@rows(
    "name",
    ("HD-01 CJK name", "天気"),
    ("HD-01 emoji", "😀"),
    ("HD-01 a URI", "file:///päth/ü"),
    ("HD-01 white space at the ends", " echo "),
    ("HD-01 a name that looks encoded", "=?base64?ZWNobw==?="),
)
def test_an_encoded_name_is_decoded_before_it_is_compared(client: McpClient, name: str) -> None:
    """The tool does not exist, but headers and body agree: -32602, not -32020."""
    assert client.call(name).outcome == (400, -32602)


def test_a_name_that_looks_encoded_must_be_encoded(client: McpClient) -> None:
    """wire §3 literal sentinel-looking name."""
    name = "=?base64?ZWNobw==?="
    assert client.call(name, {}, {"Mcp-Name": name}).outcome == (400, -32020)


@rows(
    "name, header",
    ("wire §3 sentinel upper case", "=?BASE64?ZWNobw==?=", "=?BASE64?ZWNobw==?="),
    ("wire §3 sentinel without prefix", "ZWNobw==?=", "ZWNobw==?="),
    ("wire §3 sentinel without suffix", "=?base64?ZWNobw==", "=?base64?ZWNobw=="),
    ("wire §3 sentinel that overlaps", "=?base64?=", "=?base64?="),
    ("wire §3 sentinel decodes to nothing", "", "=?base64??="),
)
def test_what_only_resembles_the_sentinel_is_literal(
    client: McpClient, name: str, header: str
) -> None:
    assert client.call(name, {}, {"Mcp-Name": header}).outcome == (400, -32602)


def test_a_name_is_ignored_where_no_method_needs_it(client: McpClient) -> None:
    """wire §3 name on other methods."""
    for name in ("anything", "=?base64?!?=", b"\xff"):
        assert client.ask("tools/list", headers={"Mcp-Name": name}).status == 200


def test_a_missing_name_header_is_a_mismatch_even_without_a_name(client: McpClient) -> None:
    """wire §3 params.name absent, wire §0.2."""
    assert client.ask("tools/call", {"arguments": {}}).outcome == (400, -32020)
    # With a header and no name, one of the two is wrong: either code says so.
    reply = client.ask("tools/call", {"arguments": {}}, {"Mcp-Name": "echo"})
    assert reply.outcome in ((400, -32020), (400, -32602))


@rows(
    "version",
    ("wire §3 unknown version", "2099-01-01"),
    ("wire §3 garbage version", "v999.0.0"),
    ("wire §3 legacy version in both", "2025-11-25"),
    ("wire §3 oldest version in both", "2024-11-05"),
)
def test_a_version_that_is_not_served_is_refused_with_those_that_are(
    client: McpClient, version: str
) -> None:
    """wire §0.7."""
    served = client.ask("server/discover").result["supportedVersions"]
    reply = client.ask(
        "tools/list",
        headers={"MCP-Protocol-Version": version},
        meta_=meta(protocolVersion=version),
    )
    assert reply.outcome == (400, -32022)
    assert reply.error["data"]["requested"] == version
    # What wraps an older version in the modern way is told that this opens with initialize.
    is_old = version in served
    expected = [each for each in served if each >= "2026"] if is_old else served
    assert reply.error["data"]["supported"] == expected
    assert ("initialize" in reply.error["message"]) == is_old


def test_a_very_long_version_is_not_repeated_at_length(client: McpClient) -> None:
    version = "9" * 5000
    reply = client.ask(
        "tools/list",
        headers={"MCP-Protocol-Version": version},
        meta_=meta(protocolVersion=version),
    )
    assert reply.outcome == (400, -32022)
    assert len(reply.response.body) < 1000


@pytest.mark.parametrize("version", [7, None, True, ["2026-07-28"], {}])
def test_a_version_that_is_no_text_is_refused(client: McpClient, version: Any) -> None:
    """wire §3 body version non-string."""
    own = meta() | {"io.modelcontextprotocol/protocolVersion": version}
    assert client.ask("tools/list", meta_=own).outcome in ((400, -32602), (400, -32020))


def test_refusals_come_in_the_documented_order(client: McpClient) -> None:
    """wire §0.2: each request has every fault from its own on."""
    legacy = meta(protocolVersion="2025-11-25")
    bad = {"Mcp-Method": "x", "Mcp-Name": "x"}
    steps: list[tuple[dict[str, Any], int]] = [
        ({"headers": {**bad, "Origin": "http://evil.test", "Accept": "text/html"}}, -31403),
        ({"headers": {**bad, "Content-Type": "text/plain"}, "body": b"{"}, -31415),
        ({"headers": bad, "body": b"{"}, -32700),
        ({"headers": bad, "id": 1.5, "meta_": {}}, -32600),
        ({"headers": bad, "meta_": {}}, -32602),
        ({"headers": bad, "meta_": legacy}, -32020),
        ({"headers": {"MCP-Protocol-Version": "2025-11-25"}, "meta_": legacy}, -32022),
    ]
    for how, code in steps:
        assert client.ask("foo/bar", **how).code == code, how
    assert client.ask("foo/bar", {"cursor": 7}).code == -32601
    assert client.ask("tools/call", {"name": "nobody", "arguments": []}).code == -32602
    # Mirrored parameters come before arguments.
    assert client.call("in_region", {"region": "eu", "x": 1}).code == -32020


def test_the_log_does_not_take_its_method_from_a_header(
    client: McpClient, server: ServerProcess
) -> None:
    """Authorise and record by the body; the header only has to agree."""
    mark = server.log_mark()
    client.ask("tools/call", ECHO, {"Mcp-Method": "x-from-the-header"})
    line = server.wait_for_log(lambda log: log.get("event") == "request", after=mark)
    assert line.get("method") != "x-from-the-header"
