"""What tools/list says about parameters and results, and tools that cannot be served."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.server import ServerFactory, ServerProcess


def references(schema: Any) -> list[str]:
    """All `$ref` values in a schema."""
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [ref for value in schema.values() for ref in references(value)]
    if isinstance(schema, list):
        return [ref for value in schema for ref in references(value)]
    return []


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Whether the advertised schema accepts a value."""
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_references_that_do_not_recur_are_inlined(client: McpClient) -> None:
    """SC-01."""
    tool = client.tools()["query"]
    good = {"q": {"text": "t", "filters": [{"field": "f", "level": "high"}]}}
    for schema, instance in ((tool["inputSchema"], good), (tool["outputSchema"], good["q"])):
        assert references(schema) == []
        assert accepts(schema, instance)
    assert not accepts(tool["inputSchema"], {"q": {"text": "t", "filters": [{"field": 1}]}})
    assert not accepts(tool["inputSchema"], {"q": {"filters": []}})
    assert client.call("query", good).value == good["q"]


def test_recursive_types_are_listed_with_local_references(client: McpClient) -> None:
    """SC-02."""
    tools = client.tools()
    for name in ("tree", "sides", "any_json"):
        for ref in references(tools[name]["inputSchema"]):
            assert ref.startswith("#"), ref
    node: dict[str, Any] = {"name": "leaf", "children": []}
    for depth in range(5):
        node = {"name": f"n{depth}", "children": [node]}
    assert client.call("tree", {"node": node}).value == node
    node["children"][0]["children"][0]["children"][0]["name"] = 7
    assert client.call("tree", {"node": node}).is_error


def test_types_that_name_each_other_are_served(client: McpClient) -> None:
    """SC-02."""
    left: dict[str, Any] = {"right": {"left": {"right": {"left": {}}}}}
    assert client.call("sides", {"left": left}).value in (5, {"result": 5})
    assert client.call("sides", {"left": {"right": {"left": {"right": 7}}}}).is_error


def test_any_json_goes_through(client: McpClient) -> None:
    """SC-02."""
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "x", {"b": [[]]}]}
    assert client.call("any_json", {"value": value}).value in (value, {"result": value})


def test_a_tool_without_parameters_says_so(client: McpClient) -> None:
    """SC-04."""
    schema = client.tools()["no_arguments"]["inputSchema"]
    schema.pop("properties", None)
    schema.pop("$schema", None)
    assert schema == {"type": "object", "additionalProperties": False}
    assert client.call("no_arguments", {}).value == "done"


@rows(
    "tool, value, seen",
    ("SC-06 aware instant", "take_instant", "2026-07-28T12:00:00Z", "2026-07-28T12:00:00+00:00"),
    ("SC-06 day", "take_day", "2026-07-28", "2026-07-28"),
    ("SC-06 decimal from text", "take_decimal", "0.10", "0.10"),
    ("SC-06 decimal from a number", "take_decimal", 0.1, "0.1"),
    (
        "SC-06 uuid",
        "take_uuid",
        "12345678-1234-5678-1234-567812345678",
        "12345678-1234-5678-1234-567812345678",
    ),
    ("SC-06 duration", "take_duration", "PT90S", 90.0),
    ("SC-06 path", "take_path", "/a/b", "/a/b"),
    ("SC-06 bytes as base64", "take_bytes", "AAEC/w==", {"length": 4, "hex": "000102ff"}),
)
def test_types_beyond_json_have_a_form_in_it(
    client: McpClient, tool: str, value: Any, seen: Any
) -> None:
    assert client.call(tool, {"value": value}).value in (seen, {"result": seen})


@rows(
    "tool, value",
    ("SC-06 no instant", "take_instant", "yesterday"),
    ("SC-06 no day", "take_day", "2026-02-30"),
    ("SC-06 no decimal", "take_decimal", "ten"),
    ("SC-06 NaN as decimal", "take_decimal", "NaN"),
    ("SC-06 no uuid", "take_uuid", "x"),
    ("SC-06 no duration", "take_duration", "soon"),
    ("SC-06 no base64", "take_bytes", "***"),
)
def test_a_text_that_is_none_of_the_type_is_an_error(
    client: McpClient, tool: str, value: str
) -> None:
    reply = client.call(tool, {"value": value})
    assert reply.is_error
    assert "value" in reply.text


def test_schemas_of_such_types_say_their_form(client: McpClient) -> None:
    """SC-06."""
    tools = client.tools()

    def told(name: str) -> str:
        return json.dumps(tools[name]["inputSchema"]["properties"]["value"])

    assert "date-time" in told("take_instant")
    assert '"date"' in told("take_day")
    assert "uuid" in told("take_uuid")
    assert "base64" in told("take_bytes") or "binary" in told("take_bytes")


@rows(
    "tool, value",
    ("SC-12 int", "give_int", 42),
    ("SC-12 str", "give_str", "plain"),
    ("SC-12 list", "give_list", [1, 2, 3]),
    ("SC-12 None", "give_none", None),
    ("SC-12 dict", "give_dict", {"b": 1, "a": 2}),
    ("SC-12 model", "give_model", {"x": 1, "y": 2}),
)
def test_output_schema_and_structured_content_agree(
    client: McpClient, tool: str, value: Any
) -> None:
    schema = client.tools()[tool]["outputSchema"]
    structured = client.call(tool).value
    assert accepts(schema, structured)
    assert structured in (value, {"result": value})
    assert not accepts(schema, {"no": ["such"]}) or tool == "give_dict"


def test_a_tool_is_described_by_its_signature_and_docstring(client: McpClient) -> None:
    tools = client.tools()
    city = tools["described"]["inputSchema"]["properties"]["city"]
    assert city["description"] == "Name of the city"
    assert tools["described"]["inputSchema"]["properties"]["days"]["description"] == (
        "How many days ahead."
    )
    assert tools["described"]["description"].startswith("Say what a city is like.")
    add = tools["add"]
    assert add["title"] == "Add"
    assert add["annotations"] == {"readOnlyHint": True, "idempotentHint": True, "risk_level": "low"}
    assert add["inputSchema"]["properties"]["a"]["maximum"] == 1000


def test_a_schema_of_its_author_is_listed_as_it_is(client: McpClient) -> None:
    schema = client.tools()["own_schema"]["inputSchema"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["anyOf"] == [{"required": ["phone"]}, {"required": ["email"]}]
    assert "address" in schema["$defs"]
    assert client.call("own_schema", {"phone": "1"}).value in (
        {"phone": "1"},
        {"result": {"phone": "1"}},
    )
    assert client.call("own_schema", {"address": {"city": "x"}}).is_error
    assert client.call("own_schema", {"phone": "1", "x": 1}).is_error


def test_an_older_dialect_is_obeyed_as_such(client: McpClient) -> None:
    """draft-07: `items` with an array is a tuple, which 2020-12 would not see."""
    assert client.call("old_dialect", {"pair": ["a", 1]}).value in (["a", 1], {"result": ["a", 1]})
    assert client.call("old_dialect", {"pair": [1, "a"]}).is_error


# -- tools that cannot be served ---------------------------------------------------

HEAD = """
from typing import Annotated, Any
from app import Header, tool
"""
GOOD = (
    HEAD
    + """
@tool
def good() -> str:
    \"\"\"Work.\"\"\"
    return "good"
"""
)


def function(decorator: str = "@tool", parameters: str = "", name: str = "bad") -> str:
    """A tool file with one function."""
    body = f'def {name}({parameters}) -> str:\n    """Fail to load."""\n    return "x"\n'
    return f"{HEAD}\n{decorator}\n{body}"


def own(schema: Any) -> str:
    """A tool file with a schema of its own."""
    return function(f"@tool(input_schema={schema!r})", "**arguments: Any")


def properties(**members: Any) -> dict[str, Any]:
    """An object schema."""
    return {"type": "object", "properties": members}


MIRRORED = {"type": "string", "x-mcp-header": "Region"}
DEEP = (
    HEAD
    + """
schema: dict[str, Any] = {"type": "string"}
for _ in range(500):
    schema = {"type": "object", "properties": {"a": schema}}


@tool(input_schema=schema)
def deep(**arguments: Any) -> str:
    \"\"\"Fail to load.\"\"\"
    return "x"
"""
)

BROKEN = (
    ("SC-07 129 characters", function(f'@tool(name="{"n" * 129}")'), "name"),
    ("SC-07 a space", function('@tool(name="a b")'), "name"),
    ("SC-07 not ASCII", function('@tool(name="données")'), "name"),
    ("SC-07 a slash", function('@tool(name="a/b")'), "name"),
    ("SC-07 empty", function('@tool(name="")'), "name"),
    ("SC-07 a line break", function(r'@tool(name="a\n")'), "name"),
    ("SC-09 number", function(parameters='x: Annotated[float, Header("X")]'), "x"),
    ("SC-09 empty", function(parameters='x: Annotated[str, Header("")]'), "x-mcp-header"),
    ("SC-09 space", function(parameters='x: Annotated[str, Header("A B")]'), "x-mcp-header"),
    ("SC-09 colon", function(parameters='x: Annotated[str, Header("A:B")]'), "x-mcp-header"),
    ("SC-09 not ASCII", function(parameters='x: Annotated[str, Header("é")]'), "x-mcp-header"),
    ("SC-09 CR LF", function(parameters=r'x: Annotated[str, Header("A\r\nB")]'), "x-mcp-header"),
    (
        "SC-09 the same twice",
        function(
            parameters='x: Annotated[str, Header("Region")], y: Annotated[str, Header("region")]'
        ),
        "region",
    ),
    ("SC-09 list", function(parameters='x: Annotated[list[str], Header("X")]'), "x"),
    ("SC-09 object", function(parameters='x: Annotated[dict[str, int], Header("X")]'), "x"),
    ("SC-09 two types", function(parameters='x: Annotated[str | int, Header("X")]'), "x"),
    (
        "SC-09 own number",
        own(properties(x={"type": "number", "x-mcp-header": "X"})),
        "x-mcp-header",
    ),
    ("SC-09 own, no type", own(properties(x={"x-mcp-header": "X"})), "x-mcp-header"),
    (
        "SC-09 own, not text",
        own(properties(x={"type": "string", "x-mcp-header": 7})),
        "x-mcp-header",
    ),
    ("SC-09 array item", own(properties(x={"type": "array", "items": MIRRORED})), "x-mcp-header"),
    (
        "SC-09 inside anyOf",
        own(properties(x={"anyOf": [MIRRORED, {"type": "null"}]})),
        "x-mcp-header",
    ),
    (
        "SC-09 inside if",
        own(properties(x={"type": "object"}) | {"if": properties(y=MIRRORED)}),
        "x-mcp-header",
    ),
    (
        "SC-09 behind $ref",
        own(properties(x={"$ref": "#/$defs/r"}) | {"$defs": {"r": MIRRORED}}),
        "x-mcp-header",
    ),
    ("SC-09 on the root", own({"type": "object", "x-mcp-header": "Root"}), "x-mcp-header"),
    (
        "SC-09 a secret's name",
        function(parameters='api_key: Annotated[str, Header("Key")]'),
        "api_key",
    ),
    ("SC-11 http reference", own(properties(x={"$ref": "http://127.0.0.1:PORT/s.json"})), "ref"),
    (
        "SC-11 https reference",
        own(properties(x={"$ref": "https://127.0.0.1:PORT/s.json#/a"})),
        "ref",
    ),
    ("SC-11 file reference", own(properties(x={"$ref": "file:///etc/hostname"})), "ref"),
    ("SC-11 relative reference", own(properties(x={"$ref": "other.json"})), "ref"),
    (
        "SC-11 dynamic reference",
        own(properties(x={"$dynamicRef": "http://127.0.0.1:PORT/s"})),
        "ynamicRef",
    ),
    ("SC-11 dialect", own({"$schema": "http://127.0.0.1:PORT/schema", "type": "object"}), "schema"),
    (
        "SC-11 $id of a base",
        own(
            {
                "$id": "http://127.0.0.1:PORT/base",
                "type": "object",
                "properties": {"x": {"$ref": "s.json"}},
            }
        ),
        "ref",
    ),
    ("a root that is no object", own({"type": "string"}), "object"),
    ("a root without type", own({"properties": {}}), "object"),
    ("an invalid schema", own(properties(x={"type": "text"})), "text"),
    ("a reference to nothing", own(properties(x={"$ref": "#/$defs/none"})), "none"),
    ("a schema without bounds", DEEP, "deep"),
    ("an icon that is no URI", function('@tool(icons=[{"src": "javascript:alert(1)"}])'), "icon"),
    ("a syntax error", "def broken(:\n", "broken"),
    ("an exception on import", HEAD + "raise RuntimeError('no database')\n", "no database"),
    ("an exit on import", HEAD + "import sys\nsys.exit(2)\n", "broken"),
)


class Trap:
    """A listening address that nobody may ever connect to."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.caught = 0
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.caught += 1
            connection.close()


@pytest.fixture(scope="module")
def trap() -> Iterator[Trap]:
    """A trap for references over the network."""
    trap = Trap()
    yield trap
    trap.socket.close()


@pytest.fixture(scope="module")
def patient(
    module_server_factory: ServerFactory, trap: Trap, tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    """A server with one good tool and every bad one."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "good.py").write_text(GOOD, "utf-8")
    for number, (_, text, _) in enumerate(BROKEN):
        here = text.replace("PORT", str(trap.port))
        (folder / f"broken_{number}.py").write_text(here, "utf-8")
    for number in (1, 2):
        (folder / f"twin_{number}.py").write_text(function(name="twin"), "utf-8")
    return module_server_factory(folder, {"tools": {"reload": False}})


def test_the_others_are_served(patient: ServerProcess) -> None:
    """SC-02, SC-09: one bad file never takes the rest, and neither of two equals wins."""
    assert set(patient.client.tools()) == {"good"}
    assert patient.client.call("good").value in ("good", {"result": "good"})
    for name in ("bad", "twin"):
        assert patient.client.call(name).outcome == (400, -32602)


@pytest.mark.parametrize(
    ("number", "hint"),
    [pytest.param(number, row[2], id=row[0]) for number, row in enumerate(BROKEN)],
)
def test_what_cannot_be_served_is_reported_with_file_and_reason(
    patient: ServerProcess, number: int, hint: str
) -> None:
    """SC-07, SC-09, SC-11."""
    file = f"broken_{number}.py"
    lines = [str(log) for log in patient.logs() if file in str(log)]
    assert lines, f"the log does not mention {file}"
    assert any(hint in line for line in lines), f"{hint!r} is in none of {lines}"


def test_twins_are_reported_both(patient: ServerProcess) -> None:
    text = " ".join(str(log) for log in patient.logs() if "twin" in str(log))
    assert "twin_1.py" in text and "twin_2.py" in text


def test_no_schema_is_fetched(patient: ServerProcess, trap: Trap) -> None:
    """SC-11."""
    assert patient.client.ask("tools/list").status == 200
    assert trap.caught == 0


def test_names_at_the_edge_are_served(server_factory: ServerFactory, tmp_path: Path) -> None:
    """SC-07: and names are case-sensitive."""
    names = ["n" * 128, "a.b", "A.b", "a-b_c", "0day", "x" * 60]
    for number, name in enumerate(names):
        text = function(f'@tool(name="{name}")')
        (tmp_path / f"t{number}.py").write_text(text, "utf-8")
    server = server_factory(tmp_path, {"tools": {"reload": False}})
    assert sorted(server.client.tools()) == sorted(names)
    for name in names:
        assert server.client.call(name).text == "x"
