"""The official `mcp` client hears progress, leaves its calls, and is told of changes."""

import asyncio
from pathlib import Path
from typing import Any, Final, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ToolsListChanged

from tests.interop.support import NAMES, WAIT_S, connect, list_names, list_pages, only_text
from tests.support.server import ServerProcess

# -- progress and logging --------------------------------------------------------


async def test_progress_is_heard_in_order_while_the_tool_runs(server: ServerProcess) -> None:
    heard: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait((progress, total, message))

    async with connect(server.url) as client, asyncio.timeout(WAIT_S):
        climbing = asyncio.create_task(
            client.call_tool("climb", {"steps": 4}, progress_callback=on_progress)
        )
        for step in (1, 2, 3, 4):
            # The tool takes the step after its report only when it is told to.
            assert await heard.get() == (step, 4, f"step {step}")
            assert not climbing.done()
            await client.call_tool("take_step")
        assert only_text(await climbing) == "4 steps"
    assert heard.empty()


async def test_a_flood_of_progress_is_thinned_and_ends_with_its_last_value(
    server: ServerProcess,
) -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with connect(server.url) as client:
        result = await client.call_tool("sprint", {"steps": 5000}, progress_callback=on_progress)
    assert only_text(result) == "5000 steps"
    assert heard == sorted(set(heard))
    assert heard[-1] == 5000
    assert len(heard) < 500


LOGGED: Final = ("warning", "storage", {"disk": "nearly full"})


@pytest.mark.parametrize(
    ("level", "expected"),
    [(None, []), ("error", []), ("warning", [LOGGED])],
    ids=["nothing was asked for", "only worse was asked for", "warnings were asked for"],
)
async def test_log_messages_come_as_far_as_they_were_asked_for(
    server: ServerProcess,
    level: types.LoggingLevel | None,
    expected: list[tuple[str, str, dict[str, str]]],
) -> None:
    heard: list[tuple[str, str | None, Any]] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append((params.level, params.logger, params.data))

    async with connect(server.url, logging_callback=on_log, log_level=level) as client:
        result = await client.call_tool("narrate")
    assert only_text(result) == "told"
    assert heard == expected


# -- cancellation ----------------------------------------------------------------


Leave = Literal["gives up the call", "times out", "closes"]


@pytest.mark.parametrize("aloud", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("leave", ["gives up the call", "times out", "closes"])
async def test_a_client_that_leaves_cancels_its_call(
    server: ServerProcess, leave: Leave, aloud: bool
) -> None:
    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        pass

    async def hold(client: Client) -> types.CallToolResult:
        patience_s = 1.0 if leave == "times out" else WAIT_S
        return await client.call_tool(
            "hold", {"aloud": aloud}, patience_s, progress_callback=ignore if aloud else None
        )

    async with connect(server.url) as watcher, asyncio.timeout(WAIT_S):
        async with connect(server.url) as client:
            holding = asyncio.create_task(hold(client))
            await watcher.call_tool("await_hold", {"state": "started"})
            if leave == "gives up the call":
                holding.cancel()
            elif leave == "times out":
                with pytest.raises(MCPError):
                    await holding
        await watcher.call_tool("await_hold", {"state": "cancelled"})
        await asyncio.gather(holding, return_exceptions=True)


# -- subscriptions ---------------------------------------------------------------


ADDED: Final = '''
from app import tool


@tool
def newcomer() -> str:
    """{description}"""
    return "hello"
'''


def write(path: Path, text: str) -> None:
    """Put a file in place in one step, as an editor that saves safely does."""
    draft = path.with_suffix(".draft")
    draft.write_text(text, "utf-8")
    draft.replace(path)


async def description_of(client: Client, name: str) -> str | None:
    """The description of a listed tool."""
    tools = [tool for page in await list_pages(client) for tool in page.tools]
    return next(tool.description for tool in tools if tool.name == name)


async def test_a_subscriber_hears_of_every_visible_change(own_server: ServerProcess) -> None:
    path = own_server.tools / "newcomer.py"
    async with (
        connect(own_server.url) as client,
        asyncio.timeout(3 * WAIT_S),
        client.listen(tools_list_changed=True) as changes,
    ):
        assert changes.honored == types.SubscriptionFilter(tools_list_changed=True)

        write(path, ADDED.format(description="First words."))
        assert await anext(changes) == ToolsListChanged()
        assert await list_names(client) == sorted([*NAMES, "newcomer"])
        assert only_text(await client.call_tool("newcomer")) == "hello"

        write(path, ADDED.format(description="Second thoughts."))
        assert await anext(changes) == ToolsListChanged()
        assert await description_of(client, "newcomer") == "Second thoughts."

        path.unlink()
        assert await anext(changes) == ToolsListChanged()
        assert await list_names(client) == NAMES


async def test_two_subscribers_hear_of_one_change(own_server: ServerProcess) -> None:
    async with (
        connect(own_server.url) as one,
        connect(own_server.url) as other,
        asyncio.timeout(WAIT_S),
        one.listen(tools_list_changed=True) as first,
        one.listen(tools_list_changed=True) as second,
        other.listen(tools_list_changed=True) as third,
    ):
        write(own_server.tools / "newcomer.py", ADDED.format(description="Hello."))
        for changes in (first, second, third):
            assert await anext(changes) == ToolsListChanged()


async def test_a_subscription_to_nothing_that_is_served_ends_at_once(
    server: ServerProcess,
) -> None:
    async with (
        connect(server.url) as client,
        asyncio.timeout(WAIT_S),
        client.listen(prompts_list_changed=True, resources_list_changed=True) as changes,
    ):
        assert changes.honored == types.SubscriptionFilter()
        assert [event async for event in changes] == []


async def test_a_server_that_stops_ends_its_subscriptions_in_peace(
    own_server: ServerProcess,
) -> None:
    async with (
        connect(own_server.url) as client,
        asyncio.timeout(WAIT_S),
        client.listen(tools_list_changed=True) as changes,
    ):
        own_server.terminate()
        # A stream that merely broke off would raise SubscriptionLost.
        assert [event async for event in changes] == []
