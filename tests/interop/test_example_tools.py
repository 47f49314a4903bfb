"""The tools that ship with the server, as a user of the official `mcp` client meets them."""

from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest

from tests.interop.support import connect
from tests.support.server import ROOT, ServerProcess


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(ROOT / "tools") as process:
        yield process


async def test_every_example_is_listed_ready_for_a_host(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        tools = (await client.list_tools()).tools
    names = [tool.name for tool in tools]
    assert names == sorted(names)
    # The client drops a tool whose x-mcp-header breaks a rule: execute_sql must be there.
    assert {
        "calculate_sum",
        "execute_sql",
        "export_report",
        "get_current_time",
        "get_weather_data",
        "list_users",
        "render_chart",
    } <= set(names)
    for tool in tools:
        assert tool.title, tool.name
        assert tool.description, tool.name
        assert all(
            "description" in each for each in tool.input_schema.get("properties", {}).values()
        )


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("calculate_sum", {"a": 2, "b": 3}, types.TextContent),
        ("execute_sql", {"region": "eu-west1", "query": "SELECT 1"}, types.TextContent),
        ("get_current_time", {}, types.TextContent),
        ("list_users", {"search": "example.org"}, types.TextContent),
        ("render_chart", {"values": [1, 2.5, -1]}, types.ImageContent),
    ],
)
async def test_an_example_answers_as_its_schema_says(
    server: ServerProcess, name: str, arguments: dict[str, Any], expected: type
) -> None:
    async with connect(server.url) as client:
        # Listed first: the client then holds the result against the output schema.
        await client.list_tools()
        result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert [type(block) for block in result.content] == [expected]


async def test_a_report_is_exported_with_progress(server: ServerProcess) -> None:
    heard: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with connect(server.url) as client:
        result = await client.call_tool(
            "export_report",
            {"rows": 30, "steps": 3, "seconds": 0.2},
            progress_callback=on_progress,
        )
    assert heard == [(10, 30), (20, 30), (30, 30)]
    _, report = result.content
    assert isinstance(report, types.EmbeddedResource)
    assert isinstance(report.resource, types.TextResourceContents)
    assert len(report.resource.text.splitlines()) == 1 + 30
