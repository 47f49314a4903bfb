"""Drives the official Python client 2.x, which speaks both eras."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.interop.families.scenarios import SCENARIO_S, USER, Answer, Job, main


class PythonV2:
    """A client of `mcp` 2.x."""

    def __init__(self) -> None:
        self.revision = ""
        self.asked: list[str] = []
        self._changes: asyncio.Queue[None] = asyncio.Queue()
        self.client: Client

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changes.put_nowait(None)

    async def list_tools(self) -> list[dict[str, Any]]:
        pages = [await self.client.list_tools(cache_mode="bypass")]
        while (cursor := pages[-1].next_cursor) is not None:
            pages.append(await self.client.list_tools(cursor=cursor))
        return [
            tool.model_dump(mode="json", by_alias=True) for page in pages for tool in page.tools
        ]

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
            name, dict(arguments or {}), progress_callback=on_progress if heard else None
        )
        texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
        return Answer("".join(texts), result.structured_content, bool(result.is_error))

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        if self.client.session.initialize_result is not None:
            yield self._changes.get
            return
        async with self.client.listen(tools_list_changed=True) as found:

            async def changed() -> None:
                await anext(found)

            yield changed

    async def give_up(self, name: str, begun: Callable[[], Awaitable[Answer]]) -> None:
        holding = asyncio.create_task(self.call(name))
        await begun()
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(job: Job) -> AsyncIterator[PythonV2]:
    wrapped = PythonV2()

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        wrapped.asked.append(params.message)
        return types.ElicitResult(action="accept", content={**USER})

    async with contextlib.AsyncExitStack() as stack:
        server: Any = job.url
        if job.transport == "stdio":
            program, *arguments = job.command
            parameters = StdioServerParameters(
                command=program, args=arguments, env=dict(job.env), cwd=job.cwd
            )
            log = stack.enter_context(job.open_log())
            server = stdio_client(parameters, errlog=log)
        wrapped.client = await stack.enter_async_context(
            Client(
                server,
                mode="legacy" if job.era == "legacy" else "auto",
                read_timeout_seconds=SCENARIO_S,
                elicitation_callback=elicit,
                message_handler=wrapped.hear,
            )
        )
        wrapped.revision = wrapped.client.protocol_version
        yield wrapped


if __name__ == "__main__":
    main(connected)
