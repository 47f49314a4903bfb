"""Nothing that a client sends yields a 5xx, a hang, or an error in the log."""

import random
from typing import Any

import pytest

from tests.support.client import McpClient, body_of, encode, meta
from tests.support.http1 import Connection, ConnectionEndedError
from tests.support.server import ServerProcess

HEADERS = (
    "Accept",
    "Accept-Encoding",
    "Access-Control-Request-Headers",
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Content-Type",
    "Cookie",
    "Forwarded",
    "Host",
    "Last-Event-ID",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Param-Region",
    "Mcp-Session-Id",
    "Origin",
    "TE",
    "Upgrade",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "traceparent",
)
VALUES: tuple[str | bytes, ...] = (
    "",
    " ",
    ",",
    ",,;;==",
    ";q=",
    "application/json;q=abc, text/event-stream;q=2",
    "application/json;q=0.5;q=0",
    'text/html;a="unclosed, application/json',
    "*/json",
    "/",
    "a" * 5000,
    "a," * 2000,
    "http://[::1",
    "http://[v1.x]",
    "http://localhost:99999",
    "http://localhost:abc",
    "http://user:pw@localhost",
    "//localhost",
    "localhost:",
    ":8000",
    "[::1",
    "[",
    "]",
    "127.1",
    "0x7f.1",
    "::1",
    "%00",
    "%s%s%n",
    "{0.__class__}",
    "=?base64?====?=",
    "=?base64?" + "A" * 3001 + "?=",
    "nan",
    "-0",
    "9" * 400,
    b"\xff\xfe\xfd",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    "00-" + "0" * 32 + "-" + "0" * 16 + "-00",
)


def survives(client: McpClient, connection: Connection, request: bytes) -> Connection:
    """Send, read whatever comes, and return a connection to go on with."""
    connection.send(request)
    try:
        response = connection.read_response()
    except ConnectionEndedError:
        connection.close()
        return client.connect()
    assert response.status < 500, (response, request[:500])
    if response.header("connection") == "close":
        connection.close()
        return client.connect()
    return connection


def assert_no_error(server: ServerProcess, mark: int) -> None:
    """The log has no line of level error since `mark`."""
    errors = [log for log in server.logs()[mark:] if log.get("level") in ("error", "critical")]
    assert not errors, errors[:3]


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_value_is_too_strange(
    client: McpClient, server: ServerProcess, name: str
) -> None:
    mark = server.log_mark()
    connection = client.connect()
    params = {"name": "in_maybe_region", "arguments": {}}
    for value in VALUES:
        request = client.request("tools/call", params, {name: value}).encode()
        connection = survives(client, connection, request)
        request = client.request("tools/call", params, extra=[(name, value)]).encode()
        connection = survives(client, connection, request)
    connection.close()
    assert_no_error(server, mark)


STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**63,
    10**30,
    "",
    "x" * 10_000,
    "\x00",
    "\u2028😀",
    "__class__",
    [],
    [[]],
    [None] * 1000,
    {},
    {"": None},
    {"__proto__": {}, "constructor": {}},
    {str(number): number for number in range(1000)},
)
PLACES: dict[str, Any] = {
    "top level": lambda value: body_of("tools/list") | {"extra": value},
    "jsonrpc": lambda value: body_of("tools/list") | {"jsonrpc": value},
    "id": lambda value: body_of("tools/list") | {"id": value},
    "params": lambda value: body_of("tools/list") | {"params": value},
    "params member": lambda value: body_of("tools/list", {"x": value}),
    "cursor": lambda value: body_of("tools/list", {"cursor": value}),
    "_meta": lambda value: body_of("tools/list", {"_meta": value}),
    "version": lambda value: body_of(
        "tools/list", meta_=meta() | {"io.modelcontextprotocol/protocolVersion": value}
    ),
    "capabilities": lambda value: body_of(
        "tools/list", meta_=meta() | {"io.modelcontextprotocol/clientCapabilities": value}
    ),
    "client": lambda value: body_of(
        "tools/list", meta_=meta() | {"io.modelcontextprotocol/clientInfo": value}
    ),
    "client name": lambda value: body_of(
        "tools/list", meta_=meta(clientInfo={"name": value, "version": value})
    ),
    "level": lambda value: body_of(
        "tools/list", meta_=meta() | {"io.modelcontextprotocol/logLevel": value}
    ),
    "token": lambda value: body_of("tools/list", meta_=meta() | {"progressToken": value}),
    "trace": lambda value: body_of("tools/list", meta_=meta() | {"traceparent": value}),
    "own meta": lambda value: body_of("tools/list", meta_=meta() | {"example.com/x": value}),
}


@pytest.mark.parametrize("place", PLACES)
def test_no_value_is_too_strange_anywhere_in_a_message(
    client: McpClient, server: ServerProcess, place: str
) -> None:
    mark = server.log_mark()
    with client.connect() as connection:
        for value in STRANGE:
            body = encode(PLACES[place](value))
            reply = client.ask("tools/list", body=body, connection=connection)
            assert reply.status in (200, 202, 400), (value, reply.response)
    assert_no_error(server, mark)


ARGUMENTS = (
    ("take_tags", "tags"),
    ("take_opts", "opts"),
    ("take_user", "user"),
    ("take_text_or_object", "body"),
    ("take_line", "line"),
    ("take_ratio", "ratio"),
    ("take_active", "active"),
    ("strict_rules", "colour"),
    ("in_maybe_region", "region"),
    ("in_own_schema", "n"),
    ("in_place", "place"),
    ("tree", "node"),
    ("any_json", "value"),
    ("take_instant", "value"),
    ("take_decimal", "value"),
    ("take_duration", "value"),
    ("take_bytes", "value"),
    ("old_dialect", "pair"),
    ("own_schema", "address"),
    ("awkward_schema", "self"),
    ("no_arguments", "x"),
    ("search_leniently", "self"),
)


@pytest.mark.parametrize(("tool", "name"), ARGUMENTS)
def test_no_argument_is_too_strange_for_a_tool(
    client: McpClient, server: ServerProcess, tool: str, name: str
) -> None:
    """A value that does not fit is the model's to mend; it is no failure of the server."""
    mark = server.log_mark()
    more = ("1e400", "-1e400", "NaN", "[" * 300, "P9999999999999Y", "9" * 5000, "{}", "null")
    with client.connect() as connection:
        for value in (*STRANGE, *more):
            reply = client.call(tool, {name: value}, connection=connection)
            assert reply.status == 200 or reply.outcome in ((400, -32020), (400, -32700))
            if reply.status == 200 and reply.is_error:
                assert "error id" not in reply.text, (value, reply.text)
    assert_no_error(server, mark)


@pytest.mark.parametrize("seed", range(4))
def test_a_request_with_flipped_bytes_is_answered_or_dropped(
    client: McpClient, server: ServerProcess, seed: int
) -> None:
    """Random damage, the same in every run."""
    chance = random.Random(seed)  # noqa: S311 - damage, no secret
    mark = server.log_mark()
    good = client.request("tools/call", {"name": "echo", "arguments": {"text": "t"}}).encode()
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with client.connect() as connection:
            connection.send(bytes(damaged))
            connection.half_close()
            answer = connection.expect_end()
        assert not answer.startswith(b"HTTP/1.1 5"), (bytes(damaged), answer[:300])
    assert client.call("echo", {"text": "t"}).value == "t"
    assert_no_error(server, mark)
