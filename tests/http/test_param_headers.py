"""Mcp-Param-* headers: against the body on the way in, mirrored on the way out."""

from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, header_value, meta, sentinel

ABSENT = object()


def call(client: McpClient, tool: str, arguments: Any, **headers: str | bytes | None) -> Any:
    """Call with `Mcp-Param-*` headers given by their last part (`_` for `-`)."""
    sent = {f"Mcp-Param-{name.replace('_', '-')}": value for name, value in headers.items()}
    return client.call(tool, arguments, sent)


@rows(
    "tool, arguments, header",
    ("wire §4 value equal", "in_region", {"region": "eu"}, "eu"),
    ("wire §4 absent without header", "in_maybe_region", {}, None),
    ("wire §4 null without header", "in_maybe_region", {"region": None}, None),
    ("wire §4 empty value, empty header", "in_region", {"region": ""}, ""),
    ("wire §4 empty value encoded", "in_region", {"region": ""}, "=?base64??="),
    ("wire §4 spaces encoded", "in_region", {"region": " p "}, sentinel(" p ")),
    ("wire §4 plain value encoded", "in_region", {"region": "Hello"}, "=?base64?SGVsbG8=?="),
    (
        "wire §4 sentinel-looking encoded",
        "in_region",
        {"region": "=?base64?x?="},
        sentinel("=?base64?x?="),
    ),
    ("wire §4 looks encoded, no prefix", "in_region", {"region": "SGVsbG8="}, "SGVsbG8="),
    (
        "wire §4 looks encoded, no suffix",
        "in_region",
        {"region": "=?base64?SGVsbG8="},
        "=?base64?SGVsbG8=",
    ),
    ("wire §4 non-ASCII encoded", "in_region", {"region": "Zürich 日本"}, sentinel("Zürich 日本")),
    ("wire §4 white space around", "in_region", {"region": "eu"}, " \teu "),
    ("wire §4 inner spaces", "in_region", {"region": "a b"}, "a b"),
    ("HD-06 the text null", "in_region", {"region": "null"}, "null"),
)
def test_a_text_that_agrees_is_served(
    client: McpClient, tool: str, arguments: dict[str, Any], header: str | None
) -> None:
    reply = call(client, tool, arguments, Region=header)
    assert reply.status == 200
    assert not reply.is_error


@rows(
    "tool, arguments, header",
    ("wire §4 header missing", "in_region", {"region": "eu"}, None),
    ("wire §4 header differs", "in_region", {"region": "eu"}, "us"),
    ("wire §4 header differs by case", "in_region", {"region": "eu"}, "EU"),
    ("wire §4 optional value, header missing", "in_maybe_region", {"region": "eu"}, None),
    ("wire §4 absent with header", "in_maybe_region", {}, "eu"),
    ("wire §4 null with header", "in_maybe_region", {"region": None}, "eu"),
    ("HD-06 null with header null", "in_maybe_region", {"region": None}, "null"),
    ("HD-06 absent with an empty header", "in_maybe_region", {}, ""),
    ("wire §4 no arguments, header", "in_maybe_region", ABSENT, "eu"),
    ("wire §4 empty value, no header", "in_region", {"region": ""}, None),
    ("wire §4 spaces raw", "in_region", {"region": " p "}, " p "),
    (
        "wire §4 sentinel-looking raw",
        "in_region",
        {"region": "=?base64?SGVsbG8=?="},
        "=?base64?SGVsbG8=?=",
    ),
    ("HD-04 bad padding", "in_region", {"region": "Hello"}, "=?base64?SGVsbG8?="),
    ("HD-04 bad alphabet", "in_region", {"region": "Hello"}, "=?base64?SGVs!!!bG8=?="),
    ("HD-04 bad UTF-8", "in_region", {"region": "Hello"}, "=?base64?//79?="),
    ("HD-04 trailing bits", "in_region", {"region": "Hello"}, "=?base64?SGVsbG9=?="),
    ("HD-04 raw non-ASCII", "in_region", {"region": "é"}, "é".encode()),
    ("HD-04 raw Latin-1", "in_region", {"region": "é"}, "é".encode("latin-1")),
)
def test_a_text_that_does_not_agree_is_refused(
    client: McpClient, tool: str, arguments: Any, header: str | bytes | None
) -> None:
    """HD-14: a mismatch found this late is HTTP 400 all the same."""
    sent = {"Mcp-Param-Region": header}
    how = {} if arguments is ABSENT else {"arguments": arguments}
    reply = client.call(tool, headers=sent, **how)
    assert reply.outcome == (400, -32020)
    assert "region" in reply.error["message"].lower()


@rows(
    "n, header",
    ("wire §4 42", 42, "42"),
    ("wire §4 42.0", 42, "42.0"),
    ("wire §4 42.00", 42, "42.00"),
    ("HD-07 negative", -7, "-7"),
    ("HD-07 zero", 0, "0"),
    ("HD-07 white space around", 42, " 42\t"),
    ("wire §4 body 42.0", 42.0, "42"),
    ("HD-07 body 42.0, header 42.0", 42.0, "42.0"),
    ("HD-07 largest safe", 2**53 - 1, str(2**53 - 1)),
    ("HD-07 smallest safe", -(2**53 - 1), str(-(2**53 - 1))),
    ("HD-07 encoded", 42, sentinel("42")),
)
def test_a_number_that_is_equal_is_served(client: McpClient, n: float, header: str) -> None:
    assert call(client, "in_number", {"n": n}, Number=header).value == n


@rows(
    "n, header",
    ("wire §4 42.5", 42, "42.5"),
    ("wire §4 0x2a", 42, "0x2a"),
    ("HD-07 within a float's tolerance", 42, "42.0000000001"),
    ("HD-07 far behind the point", 42, "42." + "0" * 40 + "1"),
    ("HD-07 neighbour beyond a double", 2**53 - 1, str(2**53 - 2)),
    ("HD-07 empty", 42, ""),
    ("HD-07 word", 42, "abc"),
    ("HD-07 other number", 42, "43"),
    ("HD-07 thousands", 1000, "1,000"),
    ("HD-07 underscore", 1000, "1_000"),
    ("HD-07 other digits", 42, sentinel("٤٢")),
    ("HD-07 inner space", 42, "4 2"),
    ("HD-07 a huge exponent", 42, "1e999999999"),
    ("HD-07 nan", 42, "nan"),
    ("HD-07 zero, header missing", 0, None),
    ("HD-07 very long", 42, "4" * 20_000),
)
def test_a_number_that_differs_is_refused(client: McpClient, n: int, header: str | None) -> None:
    assert call(client, "in_number", {"n": n}, Number=header).outcome == (400, -32020)


@pytest.mark.parametrize(
    ("n", "header"), [(42, "4.2e1"), (42, "042"), (42, "+42"), (42, "42."), (0, "-0")]
)
def test_another_spelling_of_a_number_is_equal_or_a_mismatch(
    client: McpClient, n: int, header: str
) -> None:
    """wire §4 42 vs 4.2e1, wire §4 42 vs 042, wire §4 42 vs +42: unspecified, but never a 500."""
    reply = call(client, "in_number", {"n": n}, Number=header)
    assert reply.status == 200 or reply.outcome == (400, -32020)


def test_a_number_beyond_the_safe_range_never_runs_unchecked(client: McpClient) -> None:
    """wire §4 2^53+1: outside what the annotation permits."""
    n = 2**53 + 1
    same = call(client, "in_number", {"n": n}, Number=str(n))
    assert same.outcome == (400, -32020) or same.is_error or same.value == n
    other = call(client, "in_number", {"n": n}, Number=str(n - 1))
    assert other.outcome == (400, -32020) or other.is_error


@rows(
    "flag, header, agrees",
    ("wire §4 true", True, "true", True),
    ("HD-09 false", False, "false", True),
    ("wire §4 True", True, "True", False),
    ("wire §4 TRUE", True, "TRUE", False),
    ("wire §4 1 for true", True, "1", False),
    ("HD-09 other", True, "false", False),
    ("HD-09 missing for true", True, None, False),
    ("wire §4 false, header missing", False, None, False),
    ("HD-09 empty for false", False, "", False),
    ("HD-09 0 for false", False, "0", False),
)
def test_a_boolean_is_true_or_false_in_lower_case(
    client: McpClient, flag: bool, header: str | None, agrees: bool
) -> None:
    reply = call(client, "in_flag", {"flag": flag}, Flag=header)
    if agrees:
        assert reply.value is flag
    else:
        assert reply.outcome == (400, -32020)


@rows(
    "arguments, header, agrees",
    ("wire §4 nested value", {"p": {"q": "x"}}, "x", True),
    ("wire §4 nested, parent absent", {}, None, True),
    ("wire §4 nested, parent null", {"p": None}, None, True),
    ("wire §4 nested, parent scalar", {"p": "x"}, None, True),
    ("wire §4 nested, parent empty", {"p": {}}, None, True),
    ("wire §4 nested, header missing", {"p": {"q": "x"}}, None, False),
    ("wire §4 nested, header differs", {"p": {"q": "x"}}, "y", False),
    ("wire §4 nested, parent absent, header", {}, "x", False),
    ("wire §4 nested, only the exact path", {"q": "x"}, "x", False),
)
def test_a_nested_value_is_read_at_its_exact_path(
    client: McpClient, arguments: dict[str, Any], header: str | None, agrees: bool
) -> None:
    reply = call(client, "in_own_schema", arguments, Nested=header)
    assert reply.status == 200 if agrees else reply.outcome == (400, -32020)


def test_a_nested_property_of_a_model_is_mirrored(client: McpClient) -> None:
    """wire §4 nested p.q."""
    place = {"region": "eu", "zone": "a"}
    assert call(client, "in_place", {"place": place}, Place_Region="eu").value == place
    assert call(client, "in_place", {"place": place}).outcome == (400, -32020)
    assert call(client, "in_place", {"place": {"zone": "a"}}).status == 200
    assert call(client, "in_place", {}).status == 200


def test_a_parameter_header_sent_twice_is_refused(client: McpClient) -> None:
    """wire §4 duplicate header, HD-11."""
    for copy in ("eu", "us", ""):
        reply = client.call(
            "in_region",
            {"region": "eu"},
            {"Mcp-Param-Region": "eu"},
            extra=[("mcp-param-region", copy)],
        )
        assert reply.outcome == (400, -32020)
    joined = call(client, "in_region", {"region": "eu"}, Region="eu, eu")
    assert joined.outcome == (400, -32020)


@rows(
    "headers",
    ("wire §4 unannotated", {"Mcp-Param-Foo": "1"}),
    ("HD-16 several", {"Mcp-Param-Foo": "1", "Mcp-Param-Region": "eu"}),
    ("HD-16 malformed", {"Mcp-Param-Foo": "=?base64?!?="}),
    ("HD-16 raw bytes", {"Mcp-Param-Foo": b"\xff"}),
    ("HD-16 no name", {"Mcp-Param-": "x"}),
)
def test_headers_of_no_parameter_are_ignored(
    client: McpClient, headers: dict[str, str | bytes]
) -> None:
    assert client.call("echo", {"text": "t"}, headers).value == "t"


def test_servers_with_other_annotations_never_run_unchecked(client: McpClient) -> None:
    """HD-17: a client that listed the tool elsewhere."""
    assert call(client, "in_region", {"region": "eu"}).outcome == (400, -32020)
    assert call(client, "unmirrored", {"region": "eu"}, Region="us").value == "eu"


def test_the_headers_of_an_unknown_tool_do_not_matter(client: McpClient) -> None:
    """wire §4 unknown tool."""
    reply = client.call("nobody", {"region": "eu"}, {"Mcp-Param-Region": "us"})
    assert reply.outcome == (400, -32602)


@pytest.mark.parametrize("bad", [[1], {"a": 1}, "x", 1.5])
def test_a_value_of_another_type_is_left_to_the_schema(client: McpClient, bad: Any) -> None:
    """wire §4 array value in an annotated integer."""
    without = call(client, "in_number", {"n": bad})
    # A container has no header form; a scalar has one, so its absence may count as a mismatch.
    may_mismatch = isinstance(bad, str | float) and without.code == -32020
    assert may_mismatch or without.is_error
    with_header = call(client, "in_number", {"n": bad}, Number="1")
    assert with_header.outcome == (400, -32020) or with_header.is_error


def test_the_check_does_not_depend_on_a_list_before(client: McpClient) -> None:
    """wire §4 fails closed: also within one connection whose first request is the call."""
    with client.connect() as connection:
        reply = client.call("in_region", {"region": "eu"}, connection=connection)
        assert reply.outcome == (400, -32020)


# -- mirrored on the way out ------------------------------------------------


def param_headers(reply: Any) -> dict[str, str]:
    """The `Mcp-Param-*` response headers."""
    prefix = "mcp-param-"
    return {
        name.removeprefix(prefix): value
        for name, value in reply.response.headers
        if name.startswith(prefix)
    }


@pytest.mark.parametrize("region", ["eu", "Zürich", " p ", "", "=?base64?x?="])
def test_a_response_repeats_a_declared_parameter(client: McpClient, region: str) -> None:
    reply = call(client, "in_region", {"region": region}, Region=header_value(region))
    assert reply.value == region
    assert param_headers(reply) == {"region": header_value(region)}


def test_a_response_repeats_what_was_given_and_nothing_else(client: McpClient) -> None:
    reply = call(client, "many_mirrored", {"a": "x", "b": 7}, A="x", B="7.0")
    assert param_headers(reply) == {"a": "x", "b": "7"}
    flag = call(client, "in_flag", {"flag": False}, Flag="false")
    assert param_headers(flag) == {"flag": "false"}
    assert param_headers(call(client, "in_maybe_region", {})) == {}
    assert param_headers(client.call("echo", {"text": "t"}, {"Mcp-Param-Text": "t"})) == {}


def test_a_long_value_is_left_out(client: McpClient) -> None:
    fits, long = "x" * 1024, "x" * 1025
    assert param_headers(
        call(client, "many_mirrored", {"a": "1", "big": fits}, A="1", Big=fits)
    ) == {
        "a": "1",
        "big": fits,
    }
    reply = call(client, "many_mirrored", {"a": "1", "big": long}, A="1", Big=long)
    assert param_headers(reply) == {"a": "1"}


def test_what_was_refused_is_not_repeated(client: McpClient) -> None:
    mismatch = call(client, "in_region", {"region": "eu"}, Region="us")
    assert param_headers(mismatch) == {}
    invalid = call(client, "in_region", {"region": "eu", "x": 1}, Region="eu")
    assert invalid.is_error
    assert param_headers(invalid) == {}


def test_a_stream_repeats_it_as_well(client: McpClient) -> None:
    headers = {"Mcp-Param-Region": "eu", "Accept": "text/event-stream"}
    reply = client.call("in_region", {"region": "eu"}, headers)
    assert reply.streamed
    assert param_headers(reply) == {"region": "eu"}


# -- what the list says -------------------------------------------------------


def test_an_annotated_property_has_one_primitive_type(client: McpClient) -> None:
    """Clients drop a tool whose annotated property has no single type; integers are bounded."""
    tools = client.tools()
    required = tools["in_region"]["inputSchema"]
    assert required["properties"]["region"]["type"] == "string"
    assert required["properties"]["region"]["x-mcp-header"] == "Region"
    assert required["required"] == ["region"]
    optional = tools["in_maybe_region"]["inputSchema"]
    assert optional["properties"]["region"]["type"] == "string"
    assert "region" not in optional.get("required", [])
    number = tools["in_number"]["inputSchema"]["properties"]["n"]
    assert number["type"] == "integer"
    assert (number["minimum"], number["maximum"]) == (-(2**53 - 1), 2**53 - 1)
    assert tools["in_flag"]["inputSchema"]["properties"]["flag"]["type"] == "boolean"


def test_a_nested_annotation_is_found_through_properties_alone(client: McpClient) -> None:
    """x-mcp-header must be reachable through `properties`, not through $ref or anyOf."""
    node = client.tools()["in_place"]["inputSchema"]
    place = node["properties"]["place"]
    assert place["properties"]["region"]["x-mcp-header"] == "Place-Region"
    assert place["properties"]["region"]["type"] == "string"


def test_header_checks_need_the_protocol_version_first(client: McpClient) -> None:
    """wire §0.2: a version that is not served comes before mirrored parameters."""
    reply = client.call(
        "in_region",
        {"region": "eu"},
        {"MCP-Protocol-Version": "2099-01-01"},
        meta_=meta(protocolVersion="2099-01-01"),
    )
    assert reply.code == -32022
