"""The official `mcp` client discovers, lists and calls, all through a server process."""

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.interop.support import NAMES, REVISION, WAIT_S, connect, list_pages, only_text
from tests.support.server import ServerProcess

INVALID_PARAMS: Final = -32602
MIRRORED: Final = "mcp-param-"


# -- discover --------------------------------------------------------------------


async def test_the_client_discovers_the_server_without_a_handshake(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        assert client.protocol_version == REVISION
        assert client.session.initialize_result is None
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.title) == ("mcp-tool-server", "Interop")
        assert client.instructions == "Divide before you conquer."
        assert client.server_capabilities.tools == types.ToolsCapability(list_changed=True)
        assert client.server_capabilities.prompts is None
        assert client.server_capabilities.resources is None


async def test_the_client_can_call_without_having_discovered(server: ServerProcess) -> None:
    async with connect(server.url, mode=REVISION) as client:
        result = await client.call_tool("divide", {"dividend": 17, "divisor": 5})
    assert result.structured_content == {"quotient": 3, "remainder": 2}


# -- list ------------------------------------------------------------------------


async def test_the_pages_of_the_list_hold_every_tool_once_and_in_order(
    server: ServerProcess,
) -> None:
    async with connect(server.url) as client:
        pages = await list_pages(client)
    assert [len(page.tools) for page in pages] == [2, 2, 2, 2, 2, 2, 2, 1]
    assert [tool.name for page in pages for tool in page.tools] == NAMES


async def test_a_listed_tool_says_all_that_its_author_wrote(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        pages = await list_pages(client)
    (tool,) = (tool for page in pages for tool in page.tools if tool.name == "divide")
    assert (tool.title, tool.description) == ("Divide", "Divide one whole number by another.")
    assert tool.annotations == types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    assert tool.input_schema["required"] == ["dividend", "divisor"]
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["properties"]["dividend"]["description"] == "What is divided."
    assert tool.output_schema is not None
    assert set(tool.output_schema["properties"]) == {"quotient", "remainder"}


# -- call ------------------------------------------------------------------------


async def test_a_structured_result_fits_the_listed_schema(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        # The client holds results against the schemas that it has listed.
        await list_pages(client)
        division = await client.call_tool("divide", {"dividend": 17, "divisor": 5})
        primes = await client.call_tool("primes", {"below": 12})
    assert not division.is_error
    assert division.structured_content == {"quotient": 3, "remainder": 2}
    assert primes.structured_content in ([2, 3, 5, 7, 11], {"result": [2, 3, 5, 7, 11]})


async def test_a_picture_and_a_sound_arrive_byte_for_byte(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        (picture,) = (await client.call_tool("picture")).content
        (sound,) = (await client.call_tool("sound")).content
    assert isinstance(picture, types.ImageContent)
    assert base64.b64decode(picture.data) == b"\x89PNG\r\n\x1a\n"
    assert picture.mime_type == "image/png"
    assert isinstance(sound, types.AudioContent)
    assert base64.b64decode(sound.data) == b"RIFF"
    assert sound.mime_type == "audio/wav"


async def test_a_result_of_many_parts_arrives_whole(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        result = await client.call_tool("report")
    text, link, summary, raw = result.content
    assert isinstance(text, types.TextContent)
    assert text.text == "Grüße, 世界 🌍"
    assert text.annotations is not None
    assert (text.annotations.audience, text.annotations.priority) == (["user"], 0.5)
    assert isinstance(link, types.ResourceLink)
    assert (str(link.uri), link.title, link.size) == (
        "https://example.com/report",
        "The report",
        1234,
    )
    assert isinstance(summary, types.EmbeddedResource)
    assert isinstance(summary.resource, types.TextResourceContents)
    assert summary.resource.text == "All is well."
    assert isinstance(raw, types.EmbeddedResource)
    assert isinstance(raw.resource, types.BlobResourceContents)
    assert base64.b64decode(raw.resource.blob) == b"\x00\xff"
    assert result.structured_content == {"pages": 3}
    assert result.meta is not None
    assert result.meta["example.com/edition"] == 7


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
async def test_a_long_result_stays_below_what_the_client_accepts(
    server: ServerProcess, stream: bool
) -> None:
    # The client gives up on an event above 1 MiB; the server's bound on results is below it.
    async with connect(server.url) as client:
        result = await client.call_tool("long_text", {"characters": 900_000, "stream": stream})
    assert not result.is_error
    assert only_text(result) == "x" * 900_000


async def test_many_calls_at_once_each_get_their_own_answer(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        results = await asyncio.gather(
            *(client.call_tool("divide", {"dividend": n, "divisor": 7}) for n in range(50))
        )
    assert [result.structured_content for result in results] == [
        {"quotient": n // 7, "remainder": n % 7} for n in range(50)
    ]


# -- errors ----------------------------------------------------------------------


async def test_a_tool_that_fails_tells_the_model_why(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        result = await client.call_tool("divide", {"dividend": 1, "divisor": 0})
    assert result.is_error
    assert only_text(result) == "divisor must not be zero"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dividend": 1}, "divisor"),
        ({"dividend": "one", "divisor": 1}, "dividend"),
        ({"dividend": 1, "divisor": 1, "mood": "glad"}, "mood"),
    ],
    ids=["missing", "of another type", "unknown"],
)
async def test_bad_arguments_are_the_models_to_mend(
    server: ServerProcess, arguments: dict[str, Any], named: str
) -> None:
    async with connect(server.url) as client:
        result = await client.call_tool("divide", arguments)
    assert result.is_error
    assert named in only_text(result)


async def test_a_crash_is_an_error_that_gives_nothing_away(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        result = await client.call_tool("crash")
    assert result.is_error
    assert "swordfish" not in only_text(result)


async def test_an_unknown_tool_is_a_protocol_error(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        with pytest.raises(MCPError, match="multiply") as caught:
            await client.call_tool("multiply", {"a": 6, "b": 7})
    assert caught.value.code == INVALID_PARAMS


async def test_a_cursor_of_another_server_is_a_protocol_error(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        with pytest.raises(MCPError) as caught:
            await client.list_tools(cursor="bm90IG91cnM=")
    assert caught.value.code == INVALID_PARAMS


# -- mirrored parameters ---------------------------------------------------------


@dataclass
class Wire:
    """What went over the wire: the `Mcp-Param-*` headers of each tools/call, both ways."""

    calls: list[tuple[dict[str, str], int, dict[str, str]]] = field(default_factory=list)

    async def on_response(self, response: httpx2.Response) -> None:
        """Note a response and its request."""
        if response.request.headers.get("mcp-method") == "tools/call":
            sent = self.mirrored(response.request.headers)
            self.calls.append((sent, response.status_code, self.mirrored(response.headers)))

    @staticmethod
    def mirrored(headers: httpx2.Headers) -> dict[str, str]:
        """The mirrored parameters among headers, by the name after the prefix."""
        return {
            name.removeprefix(MIRRORED): value
            for name, value in headers.items()
            if name.startswith(MIRRORED)
        }

    def http_client(self) -> httpx2.AsyncClient:
        """An HTTP client that is watched."""
        return httpx2.AsyncClient(timeout=WAIT_S, event_hooks={"response": [self.on_response]})


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("execute_sql", {"region": "eu", "query": "q"}, {"region": "eu"}),
        (
            "execute_sql",
            {"region": "eu", "query": "q", "tenant": "acme"},
            {"region": "eu", "tenant": "acme"},
        ),
        ("execute_sql", {"region": "eu", "query": "q", "tenant": None}, {"region": "eu"}),
        ("execute_sql", {"region": "", "query": "q"}, {"region": ""}),
        ("execute_sql", {"region": "Zürich", "query": "q"}, {"region": "=?base64?WsO8cmljaA==?="}),
        ("execute_sql", {"region": " eu ", "query": "q"}, {"region": "=?base64?IGV1IA==?="}),
        (
            "execute_on_shard",
            {"shard": {"number": 42, "replica": True}, "query": "q"},
            {"shard": "42", "replica": "true"},
        ),
        (
            "execute_on_shard",
            {"shard": {"number": 0, "replica": False}, "query": "q"},
            {"shard": "0", "replica": "false"},
        ),
    ],
)
async def test_mirrored_parameters_are_accepted_and_repeated(
    server: ServerProcess, tool: str, arguments: dict[str, Any], expected: dict[str, str]
) -> None:
    wire = Wire()
    async with wire.http_client() as http:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, read_timeout_seconds=WAIT_S) as client:
            await list_pages(client)
            result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert wire.calls == [(expected, 200, expected)]


async def test_a_client_that_has_not_listed_recovers_from_the_missing_header(
    server: ServerProcess,
) -> None:
    wire = Wire()
    async with wire.http_client() as http:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, read_timeout_seconds=WAIT_S) as client:
            # The refusal (-32020) makes the client list the tools and try again.
            result = await client.call_tool("execute_sql", {"region": "eu", "query": "q"})
    assert result.structured_content == {"region": "eu", "query": "q", "tenant": None}
    assert wire.calls == [({}, 400, {}), ({"region": "eu"}, 200, {"region": "eu"})]
