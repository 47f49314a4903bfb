"""Drives the last 1.x of the official Python client, which knows the `initialize` era alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.families.scenarios import SCENARIO_S, USER, Answer, Job, main


class PythonV1:
    """A session of `mcp` 1.x."""

    def __init__(self) -> None:
        self.revision = ""
        self.asked: list[str] = []
        self._changes: asyncio.Queue[None] = asyncio.Queue()
        self.session: ClientSession

    async def elicit(self, _: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(asked.message)
        return types.ElicitResult(action="accept", content=dict(USER))

    async def hear(self, message: Any) -> None:
        if isinstance(getattr(message, "root", None), types.ToolListChangedNotification):
            self._changes.put_nowait(None)

    async def list_tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self.session.list_tools(params=params)
            found += [tool.model_dump(mode="json") for tool in page.tools]
            cursor = page.nextCursor
            if cursor is None:
                return found

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        heard: Callable[[float], None] | None = None,
    ) -> Answer:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            assert heard is not None
            heard(progress)

        result = await self.session.call_tool(
            name, dict(arguments or {}), progress_callback=on_progress if heard else None
        )
        text = "".join(block.text for block in result.content if block.type == "text")
        return Answer(text, result.structuredContent, result.isError)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        yield self._changes.get

    async def give_up(self, name: str, begun: Callable[[], Awaitable[Answer]]) -> None:
        # The client has no call for this, nor tells the id; its users send it by hand.
        ids: list[int] = []

        async def hold() -> None:
            ids.append(self.session._request_id)
            await self.call(name)

        holding = asyncio.create_task(hold())
        await begun()
        params = types.CancelledNotificationParams(requestId=ids[0], reason="enough")
        notification = types.CancelledNotification(params=params)
        await self.session.send_notification(types.ClientNotification(notification))
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(job: Job) -> AsyncIterator[PythonV1]:
    client = PythonV1()
    async with contextlib.AsyncExitStack() as stack:
        if job.transport == "http":
            read, write, _ = await stack.enter_async_context(streamable_http_client(job.url))
        else:
            program, *arguments = job.command
            parameters = StdioServerParameters(
                command=program, args=arguments, env=dict(job.env), cwd=job.cwd
            )
            log = stack.enter_context(job.open_log())
            read, write = await stack.enter_async_context(stdio_client(parameters, errlog=log))
        session = ClientSession(
            read,
            write,
            read_timeout_seconds=timedelta(seconds=SCENARIO_S),
            elicitation_callback=client.elicit,
            message_handler=client.hear,
        )
        client.session = await stack.enter_async_context(session)
        client.revision = str((await client.session.initialize()).protocolVersion)
        yield client


if __name__ == "__main__":
    main(connected)
