"""Servers that record: what each call leaves behind, whichever door and worker it came through."""

import asyncio
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.configuration import load_settings
from app.methods.answers import Sender
from app.protocol.inbound import Call
from app.protocol.schema import RequestMeta
from app.recording.library import Library
from app.recording.recording import Recording, encode
from app.recording.wiring import library_of
from app.service import Service
from app.settings import Settings
from tests.asking.rounds import accept, ask, state_of
from tests.auth.office import Headers, api_key
from tests.sessions.conversation import Conversation
from tests.support.cases import rows
from tests.support.client import meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.stdio import StdioServer
from tests.support.toolfiles import write
from tests.support.waiting import eventually

KEY: Final = "a-key-of-the-tests-with-32-letters"
ADA_KEY, ADA_TABLE = api_key("ada", roles=["clerk"])
ADA: Final[Headers] = {"X-API-Key": ADA_KEY}
TOOLS: Final = '''
import asyncio

from pydantic import BaseModel
from app import Context, ToolError, tool

READS = {"read_only": True}


class Trip(BaseModel):
    city: str


class Days(BaseModel):
    days: int


@tool(annotations=READS, record="errors")
async def divide(a: int, b: int) -> float:
    """Divide."""
    if b == 7:
        raise ToolError("Not by seven.")
    return a / b


@tool(annotations=READS, record="none")
async def unwatched() -> str:
    """Fail without a trace."""
    raise ValueError


@tool(annotations=READS, record="all")
async def echo(text: str) -> str:
    """Give it back."""
    return text


@tool(annotations=READS, record="errors")
async def slow() -> str:
    """Take too long."""
    await asyncio.Event().wait()
    return ""


@tool(annotations=READS, record="errors")
async def hidden() -> str:
    """For nobody here."""
    return "hidden"


@tool(annotations=READS)
async def spoils(things: dict) -> str:
    """Change what it was given, and fail."""
    things.clear()
    raise ToolError("spoilt")


@tool(annotations=READS, asks=[Trip], single_use=True, record="errors")
async def book(ctx: Context) -> str:
    """Ask twice, and fail."""
    trip = await ctx.elicit("trip", "Where to?", Trip)
    days = await ctx.elicit("days", "How long?", Days)
    raise ToolError(f"No trip to {trip.data.city} for {days.data.days} days.")
'''


def _config(directory: Path, **recording: Any) -> dict[str, Any]:
    return {
        "secrets": {"keys": [KEY]},
        "auth": {"api_keys": [ADA_TABLE], "allow_unauthenticated": True},
        "policies": [
            {"tools": ["hidden"], "requires": {"roles": ["nobody"]}},
            {"tools": ["*"]},
        ],
        "tools": {"reload": False},
        "overrides": {"spoils": {"record": "all"}},
        "recording": {"directory": str(directory), **recording},
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything is."""
    folder = tmp_path_factory.mktemp("recording")
    write(folder / "tools" / "all.py", TOOLS)
    return folder


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[ServerProcess]:
    """One that records."""
    with ServerProcess(place / "tools", _config(place / "recordings")) as process:
        yield process


def _library(server: ServerProcess) -> Library:
    return library_of(load_settings(server.config_path, environ={}))


def _recordings(server: ServerProcess, tool: str) -> list[Recording]:
    opened = [opened for _, opened in _library(server).opened()]
    found = [each for each in opened if isinstance(each, Recording)]
    assert len(found) == len(opened)
    return [each for each in found if each.request.tool == tool]


def _one(server: ServerProcess, tool: str, **arguments: Any) -> Recording:
    """The recording of a call with these arguments, when it is there."""

    def found() -> Recording | None:
        fit = [
            each
            for each in _recordings(server, tool)
            if each.request.arguments is not None
            and arguments.items() <= each.request.arguments.items()
        ]
        return fit[-1] if fit else None

    recording = eventually(found, f"a recording of {tool}")
    assert recording is not None
    return recording


@rows(
    "tool, arguments, outcome",
    ("an error of the tool", "divide", {"a": 1, "b": 7}, "tool_error"),
    ("an internal error", "divide", {"a": 2, "b": 0}, "internal_error"),
    ("arguments against the schema", "divide", {"a": 3, "b": "x"}, "tool_error"),
    ("a result, where all are kept", "echo", {"text": "plain"}, "ok"),
    ("a tool that the caller cannot see", "hidden", {}, "protocol_error"),
    ("an override of what the tool says", "spoils", {"things": {"a": 1}}, "tool_error"),
)
def test_a_call_is_recorded_with_what_it_takes_to_run_it_again(
    tool: str, arguments: dict[str, Any], outcome: str, server: ServerProcess
) -> None:
    server.client.call(tool, arguments, ADA)

    recording = _one(server, tool, **arguments)

    assert recording.outcome == outcome
    assert recording.caller.subject == "ada"
    assert recording.caller.roles == ("clerk",)
    assert recording.caller.address == "127.0.0.1"
    assert recording.catalog.tool_version is not None
    line = server.wait_for_log(
        lambda log: log["event"] == "call_recorded" and log["recording"] == recording.id
    )
    assert (line["tool"], line["outcome"]) == (tool, outcome)


def test_the_id_of_a_recording_is_the_one_that_the_caller_was_told(server: ServerProcess) -> None:
    text = server.client.call("divide", {"a": 9, "b": 0}).text

    assert f"(error id {_one(server, 'divide', a=9).id})" in text


def test_a_deadline_is_an_error_with_the_time_that_was_asked_for(server: ServerProcess) -> None:
    server.client.call("slow", {}, meta_=meta(**{"mcp-tool-server/timeoutMs": 50}))

    recording = _one(server, "slow")

    assert recording.outcome == "timeout"
    assert recording.request.timeout_ms == 50


def test_nothing_else_is_recorded(server: ServerProcess) -> None:
    server.client.call("divide", {"a": 4, "b": 2})
    server.client.call("unwatched", {})
    server.client.call("nobody", {})
    server.client.call("divide", [])
    server.client.call("divide", {"a": 5, "b": 7}, {"Mcp-Name": "other"})
    server.client.call("echo", {"text": "the last of them"})

    _one(server, "echo", text="the last of them")

    assert [each for each in _recordings(server, "divide") if each.outcome == "ok"] == []
    assert _recordings(server, "unwatched") == []
    assert _recordings(server, "nobody") == []


def test_credentials_and_keys_are_in_no_recording(server: ServerProcess) -> None:
    about = meta(**{"mcp-tool-server/idempotencyKey": "key-of-the-client"}, traceparent="x")
    server.client.call("echo", {"text": f"my key is {ADA_KEY}"}, ADA, meta_=about)

    recording = _one(server, "echo", text="my key is [secret]")
    data = encode(recording).decode()

    assert ADA_KEY not in data
    assert "key-of-the-client" not in data
    assert set(recording.redaction.masked) == {"arguments", "result"}


def test_on_the_disk_nothing_can_be_read(server: ServerProcess, place: Path) -> None:
    server.client.call("echo", {"text": "a text that nobody may read"})
    _one(server, "echo", text="a text that nobody may read")

    for file in (place / "recordings").glob("*.rec"):
        assert b"nobody may read" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_answers_of_all_rounds_are_recorded_and_given_again(server: ServerProcess) -> None:
    client = server.client
    first = ask(client, "book")
    second = ask(client, "book", answers={"trip": accept(city="Oslo")}, state=state_of(first))
    ask(client, "book", answers={"days": accept(days=3)}, state=state_of(second))

    recording = _one(server, "book")

    assert recording.answers == {"trip": accept(city="Oslo"), "days": accept(days=3)}
    assert b"requestState" not in encode(recording)


def test_answers_of_older_clients_are_recorded_too(server: ServerProcess) -> None:
    forms = iter([accept(city="Bergen"), accept(days=2)])
    with Conversation([server]) as conversation:
        conversation.open()
        answers = {"elicitation/create": lambda _: next(forms)}
        answer = conversation.call("book", answers=answers)
    assert "Bergen" in answer.text

    def found() -> list[Recording]:
        trips = [{"trip": accept(city="Bergen"), "days": accept(days=2)}]
        return [each for each in _recordings(server, "book") if each.answers in trips]

    assert eventually(found, "its recording")


def test_a_client_over_stdio_is_recorded_too(place: Path) -> None:
    with StdioServer(place / "tools", _config(place / "of-stdio")) as server:
        server.call("divide", {"a": 6, "b": 7})

        assert _one(server, "divide", a=6).outcome == "tool_error"


def test_a_full_disk_costs_recordings_and_no_call(server: ServerProcess, place: Path) -> None:
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    mark = server.log_mark()
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        texts = [server.client.call("divide", {"a": 70, "b": 7}).text for _ in range(10)]
        line = server.wait_for_log(lambda log: log["event"] == "recordings_dropped", after=mark)
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
    server.client.call("divide", {"a": 71, "b": 7})

    assert texts == ["Not by seven."] * 10
    assert (line["reason"], line["problem"]) == ("failed", "File too large")
    assert _one(server, "divide", a=71).outcome == "tool_error"
    assert len([each for each in _recordings(server, "divide") if _first(each) == 70]) < 10
    assert [each.name for each in (place / "recordings").glob(".*.draft")] == []


def _first(recording: Recording) -> Any:
    return (recording.request.arguments or {}).get("a")


def test_servers_that_share_a_directory_keep_its_bounds_together(
    place: Path, server_factory: ServerFactory
) -> None:
    config = _config(place / "shared", max_recordings=20)
    servers = [server_factory(place / "tools", config) for _ in range(2)]
    servers[0].client.call("echo", {"text": "before the flood"})
    _one(servers[0], "echo", text="before the flood")
    for number in range(50):
        for server in servers:
            server.client.call("divide", {"a": number, "b": 7})
    for server in servers:
        server.wait_for_log(lambda log: log["event"] == "call_recorded")
    _one(servers[0], "divide", a=49)

    # Room is made before the last one comes.
    eventually(lambda: len(_library(servers[1]).entries()) == 20, "the bound")
    assert _recordings(servers[1], "echo") != []  # not pushed out by another tool


async def test_ten_thousand_failing_calls_are_answered_and_the_directory_stays_small(
    place: Path,
) -> None:
    config = _config(place / "flood", max_recordings=25, max_bytes=200_000)
    config["tools"]["directory"] = place / "tools"
    config["limits"] = {"rates": []}
    service = Service(Settings.model_validate(config), log_problems=False)
    (place / "flood").mkdir()
    await service.start()
    about = RequestMeta("2026-07-28", {}, None, None, None, None, {})
    params = {"name": "divide", "arguments": {"a": 1, "b": "not a number"}}
    texts = set()
    try:
        for number in range(10_000):
            call = Call(number, "tools/call", params, about)
            answer: Any = service.router.dispatch(call, Sender())
            texts.add(json.loads(answer.result)["content"][0]["text"])
            if number % 100 == 0:
                await asyncio.sleep(0)
    finally:
        await service.stop()

    files = list((place / "flood").glob("*.rec"))
    assert len(texts) == 1
    assert len(files) == 25
    assert sum(file.stat().st_size for file in files) <= 200_000


def test_a_server_without_a_directory_records_nothing(
    place: Path, server_factory: ServerFactory
) -> None:
    config = _config(place)
    del config["recording"]
    server = server_factory(place / "tools", config)

    assert "error id" in server.client.call("divide", {"a": 1, "b": 0}).text
    assert server.logs("call_recorded") == []
