"""The official `mcp` client starts the server and speaks with it over its pipes."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ToolsListChanged

from tests.asking.conftest import TOOLS as ASKING
from tests.auth.office import COMMON, SCOPED, api_key
from tests.auth.office import TOOLS as OFFICE
from tests.conftest import FIXTURE_TOOLS
from tests.interop.support import NAMES, REVISION, TOOLS, WAIT_S, list_names, only_text
from tests.interop.test_official_client_streams import ADDED, write
from tests.stdio.conftest import TOOLS as PRINTING
from tests.support.server import ROOT, toml

ISOLATED = FIXTURE_TOOLS.parent / "isolated"


@asynccontextmanager
async def connected(
    folder: Path,
    tmp_path: Path,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """A client of a server of its own; what that logs goes to a file."""
    file = tmp_path / "config.toml"
    file.write_text(toml(config or {}), "utf-8")
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "app", "stdio", "--config", str(file), "--tools", str(folder)],
        env=dict(env or {}),
        cwd=ROOT,
    )
    with (tmp_path / "server.log").open("w") as errors:
        transport = stdio_client(parameters, errlog=errors)
        async with asyncio.timeout(4 * WAIT_S):
            async with Client(transport, read_timeout_seconds=WAIT_S, **options) as client:
                yield client
    log = (tmp_path / "server.log").read_text("utf-8")
    assert '"event":"stopped"' in log, log  # it ended by itself, and was not killed
    assert '"outcome":"internal_error"' not in log, log


async def test_it_finds_the_revision_and_lists_and_calls_tools(tmp_path: Path) -> None:
    config = {"tools": {"page_size": 2}}
    async with connected(TOOLS, tmp_path, config) as client:
        assert client.protocol_version == REVISION
        assert await list_names(client) == NAMES
        result = await client.call_tool("divide", {"dividend": 7, "divisor": 2})
        assert result.structured_content == {"quotient": 3, "remainder": 1}


async def test_calls_run_at_once(tmp_path: Path) -> None:
    async with connected(TOOLS, tmp_path) as client:
        calls = [client.call_tool("primes", {"below": number}) for number in range(50)]
        results = await asyncio.gather(*calls)

    counts = [len(result.structured_content or ()) for result in results]
    assert counts[:12] == [0, 0, 0, 1, 2, 2, 3, 3, 4, 4, 4, 4]


async def test_progress_is_heard_while_the_tool_runs(tmp_path: Path) -> None:
    heard: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait((progress, total, message))

    async with connected(TOOLS, tmp_path) as client:
        climbing = asyncio.create_task(
            client.call_tool("climb", {"steps": 3}, progress_callback=on_progress)
        )
        for step in (1, 2, 3):
            assert await heard.get() == (step, 3, f"step {step}")
            assert not climbing.done()
            await client.call_tool("take_step")
        assert only_text(await climbing) == "3 steps"


async def test_a_call_that_is_given_up_is_stopped(tmp_path: Path) -> None:
    async with connected(TOOLS, tmp_path) as client:
        holding = asyncio.create_task(client.call_tool("hold"))
        await client.call_tool("await_hold", {"state": "started"})
        holding.cancel()
        await client.call_tool("await_hold", {"state": "cancelled"})
        await asyncio.gather(holding, return_exceptions=True)
        assert only_text(await client.call_tool("take_step")) == "taken"


async def test_a_subscriber_hears_of_changes(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    shutil.copytree(TOOLS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    async with (
        connected(folder, tmp_path) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        assert changes.honored == types.SubscriptionFilter(tools_list_changed=True)
        write(folder / "newcomer.py", ADDED.format(description="Hello."))
        assert await anext(changes) == ToolsListChanged()
        assert await list_names(client) == sorted([*NAMES, "newcomer"])


async def test_a_subscription_that_the_server_ends_ends_in_peace(tmp_path: Path) -> None:
    async with connected(TOOLS, tmp_path) as client:
        for _ in range(100):
            async with client.listen(prompts_list_changed=True) as changes:
                assert changes.honored == types.SubscriptionFilter()
                # Had `notifications/cancelled` overtaken the result, it would be lost instead.
                assert [event async for event in changes] == []


async def test_a_server_that_is_stopped_ends_its_subscriptions_in_peace(tmp_path: Path) -> None:
    async with (
        connected(ISOLATED, tmp_path) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        pid = (await client.call_tool("here")).structured_content
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGTERM)
        assert [event async for event in changes] == []


async def test_a_user_is_asked(tmp_path: Path) -> None:
    async def elicit(_: ClientRequestContext, asked: types.ElicitRequestParams) -> Any:
        return types.ElicitResult(action="accept", content={"name": "octocat"})

    async with connected(ASKING, tmp_path, elicitation_callback=elicit) as client:
        assert only_text(await client.call_tool("login")) == "Hello, octocat!"


async def test_a_key_in_the_environment_says_who_calls(tmp_path: Path) -> None:
    key, table = api_key("anna")
    config = {"auth": {"api_keys": [table], "default": "allow"}}
    async with connected(OFFICE, tmp_path, config, {"MCP_API_KEY": key}) as client:
        assert set(await list_names(client)) >= COMMON | SCOPED
        result = await client.call_tool("whoami")
        assert result.structured_content and result.structured_content["subject"] == "anna"


async def test_tools_that_print_and_read_confuse_nobody(tmp_path: Path) -> None:
    async with connected(PRINTING, tmp_path) as client:
        for tool in ("prints", "writes", "puts", "spawns", "forks", "prints_apart"):
            result = await client.call_tool(tool, {"text": '{"jsonrpc":"2.0"}'})
            assert not result.is_error, tool
        result = await client.call_tool("reads")
        assert result.structured_content == {"python": "", "descriptor": "", "child": ""}
