"""What somebody sends, or writes as a tool, who means no good or did not think of it."""

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.http.test_leaks import resident_bytes
from tests.support.client import McpClient, meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write
from tests.support.waiting import Deadline, eventually, eventually_lines

TOOLS = '''
import asyncio
import json
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from app import Context, Image, ToolError, ToolResult, tool


def text(escaped: str) -> str:
    return json.loads('"' + escaped + '"')


@tool
async def fails(escaped: str) -> str:
    """Raise with any text."""
    raise RuntimeError(text(escaped))


@tool
def fails_in_a_thread(escaped: str) -> str:
    """Raise with any text, in a thread."""
    raise ToolError(text(escaped)) from RuntimeError(text(escaped))


@tool
def reports(escaped: str, ctx: Context) -> str:
    """Progress with any text."""
    ctx.progress(1, 2, text(escaped))
    return "sent"


class Half(float):
    pass


@tool
async def reports_odd_numbers(ctx: Context) -> str:
    """Progress in a subclass of float."""
    ctx.progress(Half(0.5), Half(1.0))
    return "sent"


def explode(value: str) -> str:
    raise KeyError("postgres://secret@db")


def advise(value: str) -> str:
    raise ToolError("Choose another word.")


@tool
def explodes(word: Annotated[str, AfterValidator(explode)]) -> str:
    """A validator that fails."""
    return word


@tool
def advises(word: Annotated[str, AfterValidator(advise)]) -> str:
    """A validator that advises."""
    return word


@tool
def mixed() -> list:
    """Declares a list and returns blocks."""
    return ["a", Image(b"x")]


@tool
def explained_error() -> ToolResult:
    """An error with data."""
    return ToolResult(is_error=True, structured_content={"code": 7})


@tool(timeout_s=60)
async def floods(ctx: Context, notes: str) -> str:
    """Say much, for long."""
    path = Path(notes)
    try:
        for number in range(1_000_000):
            ctx.progress(number, None, "x" * 50_000)
            await asyncio.sleep(0.001)
    except asyncio.CancelledError:
        path.write_text("cancelled\\n")
        raise
    return "never"


@tool
async def pauses() -> str:
    """Pause."""
    await asyncio.sleep(0.3)
    return "paused"


@tool
async def waits(notes: str, padding: str = "") -> str:
    """Wait for long."""
    path = Path(notes)
    path.write_text("started\\n")
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        path.write_text("cancelled\\n")
        raise
    return "never"
'''


@pytest.fixture(scope="module")
def hostile(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    folder = tmp_path_factory.mktemp("tools")
    write(folder / "hostile.py", TOOLS)
    return module_server_factory(folder, {"tools": {"reload": False}})


@pytest.fixture
def target(hostile: ServerProcess) -> McpClient:
    return hostile.client


@pytest.mark.parametrize("name", ["fails", "fails_in_a_thread", "reports"])
def test_a_lone_surrogate_in_a_tools_words_ends_the_call(target: McpClient, name: str) -> None:
    reply = target.call(name, {"escaped": "\\ud800"}, meta_=meta(progressToken=1), timeout_s=5.0)
    assert reply.is_error
    assert target.call("reports", {"escaped": "fine"}).text == "sent"


def test_progress_in_a_subclass_of_float_is_a_number(target: McpClient) -> None:
    reply = target.call("reports_odd_numbers", {}, meta_=meta(progressToken=1))
    (progress,) = reply.notifications("notifications/progress")
    assert (progress["progress"], progress["total"]) == (0.5, 1.0)


def test_a_validator_that_fails_is_the_tools_failure_not_the_servers(target: McpClient) -> None:
    reply = target.call("explodes", {"word": "x"})
    assert reply.status == 200
    assert reply.is_error
    assert "postgres" not in reply.text
    assert "error id" in reply.text


def test_a_validator_may_advise_the_model(target: McpClient) -> None:
    assert target.call("advises", {"word": "x"}).text == "Choose another word."


def test_blocks_do_not_pass_for_structured_content(target: McpClient) -> None:
    assert target.call("mixed").is_error


def test_an_error_keeps_its_data(target: McpClient) -> None:
    reply = target.call("explained_error")
    assert reply.is_error
    assert reply.text == '{"code":7}'
    assert reply.result["structuredContent"] == {"code": 7}


def test_a_name_in_the_trailer_is_no_header(target: McpClient) -> None:
    request = target.request("tools/call", {"name": "mixed"}, {"Mcp-Name": None})
    with target.connect() as connection:
        connection.send(request.encode_chunked()[:-2] + b"Mcp-Name: mixed\r\n\r\n")
        response = connection.read_response()
    assert response.status == 400
    assert response.json()["error"]["code"] == -32020


def test_trailers_are_bounded_as_headers_are(target: McpClient) -> None:
    request = target.request("tools/list")
    with target.connect() as connection:
        connection.send(request.encode_chunked()[:-2])
        for _ in range(200):
            connection.send(b"X-Trailer: " + b"x" * 1000 + b"\r\n")
        assert connection.read_response().status == 431


@pytest.mark.parametrize(
    "request_line",
    [b"CONNECT mcp.example:443 HTTP/1.1", b"CONNECT /mcp HTTP/1.1"],
)
def test_the_server_is_no_proxy(
    hostile: ServerProcess, target: McpClient, request_line: bytes
) -> None:
    mark = hostile.log_mark()
    with target.connect() as connection:
        connection.send(request_line + b"\r\nHost: localhost\r\n\r\n")
        assert connection.read_head(Deadline()).status in (400, 405)
    assert "exception" not in str(hostile.logs()[mark:])


def test_a_broken_body_after_an_early_answer_gets_no_second_answer(target: McpClient) -> None:
    request = target.request("tools/list", {}, {"Content-Type": "text/plain"})
    whole = request.encode_chunked()
    with target.connect() as connection:
        connection.send(whole[: whole.index(b"\r\n\r\n") + 4])
        assert connection.read_response().status == 415
        connection.send(b"not a chunk\r\n")
        assert connection.expect_end() == b""


def test_a_client_that_leaves_after_a_large_body_is_missed(
    target: McpClient, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    arguments = {"notes": str(notes), "padding": "x" * 300_000}
    data = target.request("tools/call", {"name": "waits", "arguments": arguments}).encode()
    connection = target.connect()
    connection.send_split([data[:10_000], data[10_000:]])
    eventually_lines(notes, "started")
    connection.close()
    assert eventually_lines(notes, "cancelled", 2.0)


@pytest.mark.timeout(90)
def test_a_client_that_does_not_read_its_stream_is_let_go(
    target: McpClient, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    params = {"name": "floods", "arguments": {"notes": str(notes)}}
    connection = target.connect()
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = target.request("tools/call", params, meta_=meta(progressToken=1))
    connection.send(request.encode())
    eventually(notes.exists, "the end of the call", 45)
    connection.close()


LEAVES = """
import asyncio
import sys
from app import tool


async def leave() -> None:
    sys.exit(3)


@tool
async def leaves() -> str:
    \"\"\"End the process from a task of its own.\"\"\"
    await asyncio.gather(leave())
    return "never"


@tool
async def stays() -> str:
    \"\"\"Stay.\"\"\"
    return "here"
"""
WRONG_ICON = '@tool(icons=["https://a.example/b.png"])\ndef icon() -> None: ...\n'
BAD_FILES = {
    "exits_in_lifespan": (
        "from contextlib import asynccontextmanager\nimport sys\nfrom app import tool\n"
        "@asynccontextmanager\nasync def lifespan():\n    sys.exit('no database')\n    yield\n"
        "@tool\ndef exits() -> None: ...\n"
    ),
    "interrupts": "raise KeyboardInterrupt\n",
    "wrong_icon": f"from app import tool\n{WRONG_ICON}",
    "wrong_annotations": (
        "from app import tool\n@tool(annotations=['read_only'])\ndef a() -> None: ...\n"
    ),
    "wrong_name": "from app import tool\ntool(name=['x'])(lambda: None)\n",
    "no_module": "import sys\nsys.modules[__name__] = 5\n",
    "deep": "x = a" + ".b" * 50_000 + "\n",
    "generator_lifespan": (
        "from app import tool\ndef lifespan():\n    yield\n@tool\ndef g() -> None: ...\n"
    ),
}


def test_no_file_takes_the_others_with_it(server_factory: ServerFactory, tmp_path: Path) -> None:
    for name, text in BAD_FILES.items():
        write(tmp_path / f"{name}.py", text)
    write(tmp_path / "leaves.py", LEAVES)
    os.mkfifo(tmp_path / "pipe.py")
    server = server_factory(tmp_path, {"tools": {"reload": False}})
    assert set(server.client.tools()) == {"leaves", "stays"}
    blamed = {str(line["file"]).removesuffix(".py") for line in server.logs("tool_problem")}
    assert blamed >= {*BAD_FILES, "pipe"}


def test_a_tool_that_wants_to_end_the_process_does_not(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write(tmp_path / "leaves.py", LEAVES)
    server = server_factory(tmp_path, {"tools": {"reload": False}, "execution": {"timeout_s": 2}})
    assert server.client.call("leaves").is_error
    assert server.client.call("stays").text == "here"
    server.wait_for_log(lambda line: line.get("event") == "exit_refused")
    server.terminate()
    assert server.wait() == 0


def test_a_file_that_becomes_unreadable_keeps_its_last_good_tools(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write(tmp_path / "stays.py", LEAVES)
    server = server_factory(tmp_path)
    write(tmp_path / "stays.py", "#" * 5_000_000)
    server.wait_for_log(lambda line: line.get("event") == "tool_problem")
    assert server.client.call("stays").text == "here"


def test_what_follows_a_request_does_not_answer_for_it(target: McpClient) -> None:
    slow = target.request("tools/call", {"name": "pauses"}).encode()
    next_one = target.request("tools/list").encode_chunked()
    next_one = next_one[: next_one.index(b"\r\n\r\n") + 4] + b"zz\r\n"
    with target.connect() as connection:
        connection.send(slow + next_one)
        response = connection.read_response()
        assert response.status == 200
        assert response.json()["result"]["structuredContent"] == "paused"
        assert connection.expect_end() == b""


def test_two_bytes_do_not_keep_an_idle_connection(server_factory: ServerFactory) -> None:
    server = server_factory(config={"server": {"keep_alive_s": 1}})
    request = server.client.request("tools/list")
    with server.client.connect() as connection:
        assert connection.exchange(request).status == 200
        connection.send(b"\r\n")
        assert connection.expect_end() == b""


def test_a_listener_does_not_keep_the_request_that_it_sent(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write(tmp_path / "leaves.py", LEAVES)
    server = server_factory(tmp_path)
    wanted = {"toolsListChanged": True, "padding": "x" * 900_000}
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(server.client.listening(notifications=wanted))
        grown = resident_bytes(server) - before
    assert grown < 25_000_000
