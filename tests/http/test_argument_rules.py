"""Rules about arguments look at what the function gets, however it was sent."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.server import ServerFactory
from tests.support.toolfiles import write

TOOLS = Path(__file__).parents[1] / "fixtures" / "ruled"
LIMIT = {"maximum": 1000}
RULES = [
    {
        "tools": ["pay_order"],
        "arguments": {"order": {"properties": {"Amount": LIMIT}}},
    },
    {"tools": ["pay_*"], "arguments": {"amount": LIMIT}},
    {"tools": ["deploy"], "arguments": {"env": {"not": {"enum": ["prod"]}}}},
]


@pytest.fixture(scope="module", params=["in the server", "in processes"])
def ruled(
    module_server_factory: ServerFactory,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> McpClient:
    """The same tools, wherever they run."""
    folder = TOOLS
    if request.param == "in processes":
        folder = tmp_path_factory.mktemp("isolated")
        for file in TOOLS.glob("*.py"):
            text = file.read_text("utf-8").replace("@tool(", '@tool(isolation="process", ')
            write(folder / file.name, text.replace("@tool\n", '@tool(isolation="process")\n'))
    config = {"policies": RULES, "execution": {"processes": 1}}
    client = module_server_factory(folder, config).client
    assert client.tools()
    return client


@rows(
    "tool, arguments",
    ("more", "pay_int", {"amount": 5000}),
    ("more, as a number with a point", "pay_int", {"amount": 5000.0}),
    ("more, as its text", "pay_int", {"amount": "5000"}),
    ("the default is more", "pay_int", {}),
    ("a decimal as a number", "pay_decimal", {"amount": 5000}),
    ("a decimal as text", "pay_decimal", {"amount": "5000"}),
    ("a decimal as a power", "pay_decimal", {"amount": "1E+9"}),
    ("a decimal just above", "pay_decimal", {"amount": "1000.01"}),
    ("the default is made", "pay_factory", {}),
    ("the function's own name is another", "pay_alias", {"amount": 5000}),
    ("a member of an enumeration", "pay_size", {"amount": 5000}),
    ("nothing, which is no number", "pay_perhaps", {}),
    ("null, which is no number", "pay_perhaps", {"amount": None}),
    ("a default inside", "pay_order", {"order": {}}),
    ("inside, by the alias", "pay_order", {"order": {"Amount": 5000}}),
    ("inside, as text", "pay_order", {"order": '{"Amount": 5000}'}),
    ("a default of Python alone", "pay_own_schema", {}),
    ("by a schema of its own", "pay_own_schema", {"amount": 5000}),
    ("as it is", "deploy", {"env": "prod"}),
    ("with spaces around", "deploy", {"env": " prod "}),
    ("in capitals", "deploy", {"env": "PROD"}),
)
def test_a_value_against_a_rule_does_not_reach_the_tool(
    ruled: McpClient, tool: str, arguments: dict[str, Any]
) -> None:
    reply = ruled.call(tool, arguments)

    assert reply.is_error, reply.text
    assert "says rule" in reply.text


@rows(
    "tool, arguments, text",
    ("a whole number", "pay_int", {"amount": 10}, "paid 10"),
    ("a decimal", "pay_decimal", {"amount": "999.99"}, "paid 999.99"),
    ("a member", "pay_size", {"amount": 10}, "paid 10"),
    ("inside", "pay_order", {"order": {"Amount": 10}}, "paid 10"),
    ("another place", "deploy", {"env": " Test "}, "deployed to test"),
)
def test_a_value_within_the_rules_does(
    ruled: McpClient, tool: str, arguments: dict[str, Any], text: str
) -> None:
    assert ruled.call(tool, arguments).text == text
