"""What holds for every example tool, as clients see them."""

from tests.support.client import McpClient

NAMES = [
    "add_item",
    "calculate_sum",
    "create_basket",
    "execute_sql",
    "export_report",
    "finance.currency_converter",
    "get_basket",
    "get_current_time",
    "get_weather_data",
    "list_users",
    "render_chart",
]
UNSTRUCTURED = {"export_report", "render_chart"}


def test_the_shipped_tools_are_these(served: McpClient) -> None:
    assert list(served.tools()) == NAMES


def test_every_tool_and_every_argument_is_described(served: McpClient) -> None:
    for name, tool in served.tools().items():
        assert tool["title"] and tool["description"], name
        for argument, schema in tool["inputSchema"].get("properties", {}).items():
            assert schema.get("description"), (name, argument)


def test_no_argument_is_called_anything_that_the_schema_does_not_say(served: McpClient) -> None:
    for name, tool in served.tools().items():
        assert tool["inputSchema"]["additionalProperties"] is False, name


def test_every_tool_says_whether_it_only_reads(served: McpClient) -> None:
    hints = {name: tool["annotations"] for name, tool in served.tools().items()}

    writing = [name for name, hint in hints.items() if not hint["readOnlyHint"]]
    assert writing == ["add_item", "create_basket"]
    assert not any(hints[name]["destructiveHint"] for name in writing)
    assert [name for name, hint in hints.items() if hint["openWorldHint"]] == ["get_weather_data"]


def test_every_structured_result_has_a_schema(served: McpClient) -> None:
    tools = served.tools()

    assert {name for name in tools if "outputSchema" not in tools[name]} == UNSTRUCTURED
