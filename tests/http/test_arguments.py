"""Arguments as hosts and models send them."""

from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, body_of, encode
from tests.support.http1 import strict_json
from tests.support.server import ServerFactory, ServerProcess


def test_arguments_may_be_left_out(client: McpClient) -> None:
    """AR-01."""
    assert client.call("no_arguments").value == "done"
    assert client.call("all_defaults").value == "3 up"


def test_a_missing_argument_is_named(client: McpClient) -> None:
    """AR-01, wire §5 schema-invalid arguments."""
    for reply in (client.call("echo"), client.call("echo", {}), client.call("echo", None)):
        assert reply.status == 200
        assert reply.is_error
        assert "text" in reply.text
        assert "structuredContent" not in reply.result


def test_null_arguments_are_no_arguments(client: McpClient) -> None:
    """AR-02, wire §5 arguments null, wire §0.9."""
    assert client.call("no_arguments", None).value == "done"
    assert client.call("all_defaults", None).value == "3 up"


@rows(
    "tool, arguments, expected",
    ("AR-04 list", "take_tags", {"tags": '["a"]'}, {"type": "list", "value": ["a"]}),
    (
        "AR-04 list with spaces",
        "take_tags",
        {"tags": ' ["a", "b"] '},
        {"type": "list", "value": ["a", "b"]},
    ),
    ("AR-04 dict or None", "take_opts", {"opts": '{"k":1}'}, {"type": "dict", "value": {"k": 1}}),
    (
        "AR-04 model",
        "take_user",
        {"user": '{"name":"n","age":3}'},
        {"type": "User", "value": {"name": "n", "age": 3}},
    ),
    ("AR-04 integer", "take_line", {"line": "5"}, {"type": "int", "value": 5}),
    ("AR-04 boolean", "take_active", {"active": "true"}, {"type": "bool", "value": True}),
    ("AR-04 not needed", "take_tags", {"tags": ["a"]}, {"type": "list", "value": ["a"]}),
    (
        "AR-06 str or None",
        "take_maybe_text",
        {"body": '{"a":1}'},
        {"type": "str", "value": '{"a":1}'},
    ),
    (
        "AR-06 constrained",
        "take_limited_text",
        {"body": '{"a":1}'},
        {"type": "str", "value": '{"a":1}'},
    ),
    (
        "AR-06 str or dict",
        "take_text_or_object",
        {"body": '{"a":1}'},
        {"type": "str", "value": '{"a":1}'},
    ),
    (
        "AR-06 str or dict, a dict",
        "take_text_or_object",
        {"body": {"a": 1}},
        {"type": "dict", "value": {"a": 1}},
    ),
    ("AR-06 any", "echo_any", {"value": "[1]"}, {"type": "str", "value": "[1]"}),
    ("AR-07 digits", "take_text", {"p": "12345"}, {"type": "str", "value": "12345"}),
    ("AR-07 leading zeros", "take_text", {"p": "007"}, {"type": "str", "value": "007"}),
    ("AR-07 exponent", "take_text", {"p": "1e5"}, {"type": "str", "value": "1e5"}),
    ("AR-07 word", "take_text", {"p": "true"}, {"type": "str", "value": "true"}),
    ("AR-09 7.0", "take_line", {"line": 7.0}, {"type": "int", "value": 7}),
    ("AR-09 whole for a float", "take_ratio", {"ratio": 1}, {"type": "float", "value": 1.0}),
    ("AR-12 text null for str", "take_tag_and_ids", {"tag": "null"}, {"tag": "null", "ids": None}),
    (
        "AR-12 text null in a list",
        "take_tag_and_ids",
        {"ids": ["null"]},
        {"tag": None, "ids": ["null"]},
    ),
    ("AR-17 only what is required", "mixed", {"a": "x"}, {"a": "x", "b": 5, "c": None}),
    ("AR-17 null for an optional", "mixed", {"a": "x", "c": None}, {"a": "x", "b": 5, "c": None}),
)
def test_what_a_client_means_reaches_the_tool(
    client: McpClient, tool: str, arguments: dict[str, Any], expected: Any
) -> None:
    assert client.call(tool, arguments).value == expected


def test_an_exponent_that_is_a_whole_number_is_one(client: McpClient) -> None:
    """AR-09."""
    body = encode(body_of("tools/call", {"name": "take_line", "arguments": {"line": 1}}))
    reply = client.ask(
        "tools/call", {"name": "take_line"}, body=body.replace(b'"line":1', b'"line":1e3')
    )
    assert reply.value == {"type": "int", "value": 1000}


@rows(
    "tool, arguments, hint",
    ("AR-04 bad JSON", "take_tags", {"tags": '["a"'}, "tags"),
    ("AR-04 JSON of the wrong type", "take_tags", {"tags": '{"a":1}'}, "tags"),
    ("AR-04 JSON of the wrong items", "take_tags", {"tags": "[1]"}, "tags"),
    ("AR-04 model that does not fit", "take_user", {"user": '{"age":3}'}, "name"),
    ("AR-09 0.5", "take_line", {"line": 0.5}, "line"),
    ("AR-09 0.5 as text", "take_line", {"line": "0.5"}, "line"),
    ("AR-09 true is no number", "take_line", {"line": True}, "line"),
    ("AR-09 a number is no text", "take_text", {"p": 5}, "p"),
    ("AR-11 empty text for a boolean", "take_active", {"active": ""}, "active"),
    ("AR-12 text null for a list", "take_tags", {"tags": "null"}, "tags"),
    ("AR-14 misspelled", "search", {"depth": 1}, "depth"),
    ("AR-24 wrong type", "strict_rules", {"count": "many", "colour": "red"}, "count"),
    ("AR-24 out of range", "strict_rules", {"count": 11, "colour": "red"}, "count"),
    ("AR-24 bad enum", "strict_rules", {"count": 1, "colour": "green"}, "colour"),
    ("AR-24 bad literal", "strict_rules", {"count": 1, "colour": "red", "mode": "x"}, "mode"),
    ("AR-24 missing", "strict_rules", {"count": 1}, "colour"),
    ("AR-24 nested", "query", {"q": {"text": "t", "filters": [{"field": 1}]}}, "field"),
    ("AR-24 null for a required one", "echo", {"text": None}, "text"),
)
def test_arguments_that_do_not_fit_are_explained_to_the_model(
    client: McpClient, tool: str, arguments: dict[str, Any], hint: str
) -> None:
    """wire §5 schema-invalid arguments."""
    reply = client.call(tool, arguments)
    assert reply.status == 200
    assert reply.is_error
    assert hint in reply.text
    assert "structuredContent" not in reply.result
    for internal in (
        "pydantic",
        "http",
        "Traceback",
        "jsonschema",
        "site-packages",
        "ValidationError",
    ):
        assert internal not in reply.text, internal


@rows(
    "arguments, constraint",
    ("AR-24 says the bound", {"count": 11, "colour": "red"}, "10"),
    ("AR-24 says the choices", {"count": 1, "colour": "green"}, "blue"),
    ("AR-24 says the type", {"count": [], "colour": "red"}, "integer"),
)
def test_an_explanation_names_the_constraint(
    client: McpClient, arguments: dict[str, Any], constraint: str
) -> None:
    assert constraint in client.call("strict_rules", arguments).text


def test_every_problem_is_told_at_once(client: McpClient) -> None:
    """AR-24: a model should not have to find them one by one."""
    text = client.call("strict_rules", {"count": 11, "colour": "green"}).text
    assert "count" in text and "colour" in text


def test_an_explanation_does_not_repeat_what_looks_secret(client: McpClient) -> None:
    """AR-24."""
    secret = "hunter2hunter2"
    reply = client.call("strict_rules", {"count": 1, "colour": "red", "password": secret})
    assert reply.is_error
    assert "password" in reply.text
    assert secret not in reply.response.body.decode()


def test_an_explanation_stays_short(client: McpClient) -> None:
    """AR-24: whatever a client sends."""
    for arguments in (
        {"tags": ["x" * 100_000] * 3 + [1]},
        {"tags": [1] * 50_000},
        {"tags": [], **{f"k{n}": 1 for n in range(20_000)}},
    ):
        reply = client.call("take_tags", arguments)
        assert reply.is_error
        assert len(reply.response.body) < 10_000


def test_unknown_arguments_are_refused_and_the_schema_says_so(client: McpClient) -> None:
    """AR-14."""
    schema = client.tools()["search"]["inputSchema"]
    assert schema["additionalProperties"] is False
    reply = client.call("search", {"depth": 1})
    assert reply.is_error
    assert "depth" in reply.text and "maxDepth" in reply.text


def test_a_tool_may_let_unknown_arguments_pass_and_the_schema_says_so(client: McpClient) -> None:
    """AR-14."""
    schema = client.tools()["search_leniently"]["inputSchema"]
    assert schema.get("additionalProperties", True) is not False
    assert client.call("search_leniently", {"q": "x", "toolCallId": "1"}).value == "x"


@pytest.mark.parametrize("number", [9007199254740993, 2**63, 2**64 - 1, -(2**63), 2**64, 10**30])
def test_a_large_whole_number_is_exact_or_refused(client: McpClient, number: int) -> None:
    """AR-16, wire §0.10."""
    for tool, name in (("take_line", "line"), ("echo_any", "value")):
        reply = client.call(tool, {name: number})
        if reply.status == 200 and not reply.is_error:
            assert reply.value == {"type": "int", "value": number}
            assert strict_json(reply.text.encode()) == reply.value
        else:
            assert reply.outcome == (400, -32700) or reply.is_error


def test_large_numbers_leave_exactly(client: McpClient) -> None:
    """AR-16."""
    reply = client.call("give_big_numbers")
    if not reply.is_error:
        exact = {"a": 2**53 + 1, "b": 2**63, "c": -(2**63), "d": 2**64 - 1, "e": 10**30}
        assert reply.value == exact
        assert strict_json(reply.text.encode()) == exact


def test_optional_is_optional_in_the_schema(client: McpClient) -> None:
    """AR-17."""
    schema = client.tools()["mixed"]["inputSchema"]
    assert schema["required"] == ["a"]
    assert schema["properties"]["b"]["default"] == 5
    assert schema["properties"]["c"]["default"] is None


@pytest.mark.parametrize("tool", ["awkward_names", "awkward_schema"])
def test_awkward_names_are_listed_and_callable(client: McpClient, tool: str) -> None:
    """AR-19."""
    schema = client.tools()[tool]["inputSchema"]
    assert "context" not in schema["properties"]
    arguments = {name: f"<{name}>" for name in schema["properties"]}
    assert {"from", "class", "cik-A", "_id", "schema", "model_config"} <= set(arguments)
    assert client.call(tool, arguments).value == {**arguments, "tool": tool}
    missing = client.call(tool, {key: value for key, value in arguments.items() if key != "from"})
    assert missing.is_error and "from" in missing.text


def test_a_positional_parameter_works_or_is_refused_at_load(client: McpClient) -> None:
    """AR-19: but it never fails at the call."""
    if "positional" in client.tools():
        assert client.call("positional", {"a": 2, "b": 3}).text == "2 3 positional"
        assert client.call("positional", {"a": 2}).text == "2 1 positional"


def test_a_context_cannot_be_sent(client: McpClient) -> None:
    """AR-19: the injected parameter is not an argument."""
    assert client.call("context_seen", {"ctx": {"tool_name": "x"}}).is_error


def test_the_context_says_what_the_request_said(client: McpClient) -> None:
    info = {"io.modelcontextprotocol/clientInfo": {"name": "c", "version": "9"}}
    own = body_of("x")["params"]["_meta"] | info | {"example.com/k": 1}
    seen = client.call("context_seen", {}, meta_=own, id="abc").value
    assert (seen["client_name"], seen["client_version"]) == ("c", "9")
    assert (seen["request_id"], seen["request_id_type"]) == ("abc", "str")
    assert seen["protocol_version"] == "2026-07-28"
    assert seen["tool_name"] == "context_seen"
    assert seen["greeting"] == "hello"
    assert seen["lifespan"] is None
    assert "example.com/k" in seen["meta_keys"]
    assert 0 < seen["remaining_s"] <= 30
    assert client.call("context_seen", id=7).value["request_id_type"] == "int"


def test_a_lifespan_is_open_while_its_tools_are_served(client: McpClient) -> None:
    assert client.call("finance.convert", {"amount": 2}).value == {
        "amount": 4,
        "lifespan": "open",
        "tool": "finance.convert",
    }


@pytest.mark.parametrize("text", ["", "é\u0301", "😀" * 1000, "a\r\nb", "\u2028"])
def test_text_is_never_changed(client: McpClient, text: str) -> None:
    """wire §0.10."""
    reply = client.call("echo", {"text": text})
    assert reply.value == text
    assert reply.text == text


@pytest.mark.parametrize("text", ["\x00", "\u202e", "\ufeff", "a\x1b[31mb\x1b[0m"])
def test_invisible_text_reaches_the_tool_and_comes_back_only_where_that_is_wished(
    client: McpClient, server_factory: ServerFactory, text: str
) -> None:
    assert client.call("echo", {"text": text}).value == text.strip("\x00\u202e\ufeff").replace(
        "\x1b[31m", ""
    ).replace("\x1b[0m", "")
    plain = server_factory(config={"execution": {"clean_text": False}})
    assert plain.client.call("echo", {"text": text}).value == text


def test_arguments_are_not_in_the_log(client: McpClient, server: ServerProcess) -> None:
    for tool, arguments in (
        ("echo", {"text": "canary-7391"}),
        ("take_line", {"line": "canary-7391"}),
        ("search", {"canary-7391": 1}),
        ("fail_for_the_model", {"canary-7391": 1}),
    ):
        client.call(tool, arguments)
    mark = server.log_mark()
    client.ask("server/discover", id="after")
    server.wait_for_log(lambda log: log.get("method") == "server/discover", after=mark)
    assert "canary-7391" not in server.log_text()
