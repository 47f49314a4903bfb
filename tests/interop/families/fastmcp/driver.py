"""Drives FastMCP's client, which speaks both eras since FastMCP 4."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import fastmcp
import mcp_types as types
from fastmcp.client.transports import StdioTransport

from tests.interop.families.scenarios import SCENARIO_S, USER, Answer, Job, NoMeans, main


class FastMCP:
    """A client of FastMCP."""

    def __init__(self, era: str) -> None:
        self.revision = ""
        self.asked: list[str] = []
        self._era = era
        self._changes: asyncio.Queue[None] = asyncio.Queue()
        self.client: fastmcp.Client[Any]

    async def elicit(self, message: str, *_: Any) -> dict[str, str]:
        self.asked.append(message)
        return dict(USER)

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changes.put_nowait(None)

    async def list_tools(self) -> list[dict[str, Any]]:
        # It turns the pages itself.
        tools = await self.client.list_tools(cache_mode="bypass")
        return [tool.model_dump(mode="json", by_alias=True) for tool in tools]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        heard: Callable[[float], None] | None = None,
    ) -> Answer:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            assert heard is not None
            heard(progress)

        result = await self.client.call_tool(
            name,
            dict(arguments or {}),
            progress_handler=on_progress if heard else None,
            raise_on_error=False,
        )
        texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
        return Answer("".join(texts), result.structured_content, result.is_error)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        if self._era == "modern":
            raise NoMeans("FastMCP's client has no `subscriptions/listen`.")
        yield self._changes.get

    async def give_up(self, name: str, begun: Callable[[], Awaitable[Answer]]) -> None:
        holding = asyncio.create_task(self.call(name))
        await begun()
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(job: Job) -> AsyncIterator[FastMCP]:
    wrapped = FastMCP(job.era)
    server: Any = job.url
    if job.transport == "stdio":
        program, *arguments = job.command
        server = StdioTransport(
            program,
            arguments,
            env=dict(job.env),
            cwd=job.cwd,
            keep_alive=False,
            log_file=Path(job.log),
        )
    async with fastmcp.Client(
        server,
        mode="legacy" if job.era == "legacy" else "auto",
        timeout=SCENARIO_S,
        elicitation_handler=wrapped.elicit,
        message_handler=wrapped.hear,
    ) as wrapped.client:
        wrapped.revision = str(wrapped.client.protocol_version)
        yield wrapped


if __name__ == "__main__":
    main(connected)
