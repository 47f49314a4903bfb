"""The official `mcp` client sends its user to a page and carries on by itself."""

import asyncio

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client

from tests.landing.browser import Browser, filled
from tests.support.server import ServerProcess

SECRET = "key-official-5a4b3c2d"


async def test_the_official_client_comes_back_with_consent_until_the_page_is_completed(
    server: ServerProcess, token: str, alice: Browser
) -> None:
    asked: list[types.ElicitRequestURLParams] = []

    def complete(url: str) -> None:
        alice.send(url, alice.open(url), **filled(api_key=SECRET))

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params)
        if len(asked) == 2:  # the first time, the user agrees and does nothing
            await asyncio.to_thread(complete, params.url)
        return types.ElicitResult(action="accept")

    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=10) as http,
        Client(
            streamable_http_client(server.url, http_client=http), elicitation_callback=elicit
        ) as client,
    ):
        result = await client.call_tool("connect", {})
    assert not result.is_error and result.structured_content is not None
    assert result.structured_content["user"] == "ada"
    assert [question.url for question in asked] == [asked[0].url] * 2
    assert "has not been completed yet" in asked[1].message
    assert SECRET not in result.model_dump_json()
