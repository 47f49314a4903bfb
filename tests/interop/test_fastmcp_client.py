"""FastMCP's client, which speaks 2026-07-28 since FastMCP 4, against a server process.

FastMCP comes with the packages for `make bench`; without them these tests are skipped.
"""

import asyncio
from typing import Any

import pytest

from tests.interop.support import NAMES, REVISION, WAIT_S
from tests.support.server import ServerProcess

fastmcp = pytest.importorskip("fastmcp", minversion="4")


async def test_fastmcp_discovers_and_lists_every_page(server: ServerProcess) -> None:
    async with fastmcp.Client(server.url, timeout=WAIT_S) as client:
        assert client.protocol_version == REVISION
        names = [tool.name for tool in await client.list_tools()]
    assert names == NAMES


async def test_fastmcp_reads_a_structured_result(server: ServerProcess) -> None:
    async with fastmcp.Client(server.url, timeout=WAIT_S) as client:
        result = await client.call_tool("divide", {"dividend": 17, "divisor": 5})
    assert result.structured_content == {"quotient": 3, "remainder": 2}


async def test_fastmcp_raises_what_a_tool_says_went_wrong(server: ServerProcess) -> None:
    async with fastmcp.Client(server.url, timeout=WAIT_S) as client:
        with pytest.raises(fastmcp.exceptions.ToolError, match="divisor must not be zero"):
            await client.call_tool("divide", {"dividend": 1, "divisor": 0})


async def test_fastmcp_sends_the_headers_of_mirrored_parameters(server: ServerProcess) -> None:
    arguments: dict[str, Any] = {"region": "Zürich", "query": "q"}
    async with fastmcp.Client(server.url, timeout=WAIT_S) as client:
        await client.list_tools()
        result = await client.call_tool("execute_sql", arguments)
    assert result.structured_content == {**arguments, "tenant": None}


async def test_fastmcp_hears_progress_in_order(server: ServerProcess) -> None:
    heard: asyncio.Queue[float] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(progress)

    async with fastmcp.Client(server.url, timeout=WAIT_S) as client, asyncio.timeout(WAIT_S):
        climbing = asyncio.create_task(
            client.call_tool("climb", {"steps": 3}, progress_handler=on_progress)
        )
        for step in (1, 2, 3):
            assert await heard.get() == step
            await client.call_tool("take_step")
        assert (await climbing).content[0].text == "3 steps"
