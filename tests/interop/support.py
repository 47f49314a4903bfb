"""What the tests with the official `mcp` client share."""

from pathlib import Path
from typing import Any, Final

import mcp_types as types
from mcp import Client

TOOLS: Final = Path(__file__).with_name("tools")
REVISION: Final = "2026-07-28"
PAGE_SIZE: Final = 2
WAIT_S: Final = 10.0

NAMES: Final = [
    "await_hold",
    "climb",
    "crash",
    "divide",
    "execute_on_shard",
    "execute_sql",
    "hold",
    "long_text",
    "narrate",
    "picture",
    "primes",
    "report",
    "sound",
    "sprint",
    "take_step",
]


def connect(url: str, **options: Any) -> Client:
    """A client that waits for nothing longer than a test would."""
    return Client(url, read_timeout_seconds=WAIT_S, **options)


async def list_pages(client: Client) -> list[types.ListToolsResult]:
    """All pages of tools/list, asked for anew."""
    pages = [await client.list_tools(cache_mode="bypass")]
    while (cursor := pages[-1].next_cursor) is not None:
        assert len(pages) < 100, "tools/list does not end"
        pages.append(await client.list_tools(cursor=cursor))
    return pages


async def list_names(client: Client) -> list[str]:
    """Names of all tools, in the order of the pages."""
    return [tool.name for page in await list_pages(client) for tool in page.tools]


def only_text(result: types.CallToolResult) -> str:
    """The text of a result that has one block of text and no other."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text
