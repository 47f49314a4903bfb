"""Tools in processes together with what else a tool may have: rules, caps, changed settings."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write
from tests.support.waiting import eventually

TOOLS = '''
import asyncio
import time
from pathlib import Path
from typing import Any

from app import Context, ToolError, tool


def ordered(begin: int, end: int) -> None:
    if end <= begin:
        raise ValueError(f"end must be after begin, and {end} is not")


async def free(seat: int, ctx: Context) -> None:
    await asyncio.sleep(0)
    if seat == 13:
        raise ToolError("Seat 13 is taken.")
    if seat == 99:
        raise KeyError("secret")


@tool(isolation="process", validate=ordered)
def book_room(begin: int, end: int = 3) -> str:
    """Book."""
    return f"booked from {begin} to {end}"


@tool(isolation="process", validate=free)
async def book_seat(seat: int, ctx: Context) -> str:
    """Book."""
    return f"booked {seat}"


@tool(isolation="process", max_concurrent=1, timeout_s=20)
def waits(notes: str) -> str:
    """Wait for a word."""
    (Path(notes) / "started").touch()
    while not (Path(notes) / "release").exists():
        time.sleep(0.01)
    return "released"


@tool(isolation="process", max_concurrent=1, timeout_s=0.3)
def hangs() -> None:
    """Never end."""
    while True:
        pass


@tool(isolation="process")
def greets(ctx: Context) -> Any:
    """Say what is set."""
    return ctx.settings.get("word")


@tool(isolation="process")
async def needs(ctx: Context, what: str) -> Any:
    """What only the server has."""
    try:
        return ctx.handles if what == "handles" else ctx.can_ask("roots")
    except RuntimeError as error:
        return str(error)
'''
CONFIG: dict[str, Any] = {"execution": {"processes": 2}, "tools": {"reload": False}}
RELOAD: dict[str, Any] = {**CONFIG, "tools": {"reload": True}}
FULL = (503, -31503)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tools in processes."""
    write(tmp_path / "tools" / "together.py", TOOLS)
    return tmp_path / "tools"


@pytest.fixture(scope="module")
def server(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    """A server whose tools are all in processes."""
    folder = tmp_path_factory.mktemp("together")
    write(folder / "together.py", TOOLS)
    return module_server_factory(folder, CONFIG)


@rows(
    "tool, arguments, text, is_error",
    ("passes", "book_room", {"begin": 1}, "booked from 1 to 3", False),
    ("does not pass", "book_room", {"begin": 5}, "end must be after begin, and 3 is not", True),
    ("async, passes", "book_seat", {"seat": 12}, "booked 12", False),
    ("async, does not pass", "book_seat", {"seat": 13}, "Seat 13 is taken.", True),
)
def test_a_validator_runs_before_the_function(
    server: ServerProcess, tool: str, arguments: dict[str, Any], text: str, is_error: bool
) -> None:
    reply = server.client.call(tool, arguments)
    assert (reply.text, reply.is_error) == (text, is_error)


def test_a_validator_that_fails_tells_the_caller_nothing(server: ServerProcess) -> None:
    reply = server.client.call("book_seat", {"seat": 99})
    assert reply.is_error
    assert "error id" in reply.text
    assert "secret" not in reply.text


@rows("what", ("handles", "handles"), ("asking", "asking"))
def test_what_needs_the_server_itself_says_so(server: ServerProcess, what: str) -> None:
    assert (
        "is not available to a tool with isolation"
        in server.client.call("needs", {"what": what}).text
    )


def test_a_cap_counts_calls_in_processes(server: ServerProcess, tmp_path: Path) -> None:
    client = server.client
    params = {"name": "waits", "arguments": {"notes": str(tmp_path)}}
    with client.connect() as busy:
        busy.send(client.request("tools/call", params).encode())
        eventually((tmp_path / "started").exists, "the call runs")
        assert client.call("waits", {"notes": str(tmp_path)}).outcome == FULL
        assert client.call("book_room", {"begin": 1}).status == 200
        (tmp_path / "release").touch()
        assert busy.read_response().status == 200
    assert client.call("waits", {"notes": str(tmp_path)}).text == "released"


def test_a_killed_call_gives_its_place_back(server: ServerProcess) -> None:
    for _ in range(3):
        assert "within its deadline" in server.client.call("hangs").text


def test_a_refused_deadline_costs_no_call(folder: Path, server_factory: ServerFactory) -> None:
    rate = {"bucket": "user", "capacity": 1, "period_s": 60}
    server = server_factory(folder, {**CONFIG, "overrides": {"greets": {"rate_limit": rate}}})
    own = {"mcp-tool-server/timeoutMs": 0}
    for _ in range(3):
        assert server.client.call("greets", meta_=meta(**own)).outcome == (400, -32602)
    assert server.client.call("greets").status == 200
    assert server.client.call("greets").status == 429


def test_a_tool_that_is_turned_on_gets_its_workers(
    folder: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(folder, {**RELOAD, "overrides": {"greets": {"enabled": False}}})
    assert "greets" not in server.client.tools()
    server.write_config({**RELOAD, "overrides": {"greets": {"settings": {"word": "servus"}}}})
    eventually(lambda: "greets" in server.client.tools(), "the tool is on")
    eventually(lambda: server.client.call("greets").status == 200, "its workers are ready")
    eventually(lambda: server.client.call("greets").value == "servus", "and have its settings")


def test_calls_go_on_while_workers_with_new_settings_get_ready(
    folder: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    """Nor does a change of rules wait for them."""
    gate = tmp_path / "gate"
    slow = f"""
import time
from pathlib import Path
while Path({str(gate)!r}).exists() and not Path({str(gate)!r} + ".open").exists():
    time.sleep(0.01)
"""
    write(folder / "together.py", slow + TOOLS)
    server = server_factory(folder, {**RELOAD, "overrides": {"greets": {"settings": {"word": 1}}}})
    assert server.client.call("greets").value == 1
    gate.touch()
    deny = [{"tools": ["hangs"], "requires": {"roles": ["nobody"]}}]
    server.write_config(
        {
            **RELOAD,
            "overrides": {"greets": {"settings": {"word": 2}}},
            "policies": deny,
            "auth": {"default": "allow"},
        }
    )
    eventually(lambda: "hangs" not in server.client.tools(), "the rule")
    assert server.client.call("greets").value == 1
    gate.with_suffix(".open").touch()
    eventually(lambda: server.client.call("greets").value == 2, "workers with the new settings")


def test_settings_that_change_during_a_load_reach_what_is_loaded(
    folder: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    """The crew that a load prepares must be the one for the settings that hold when it is done."""
    server = server_factory(folder, RELOAD)
    flag = tmp_path / "slow"
    flag.touch()
    slow = f"""
import sys
import time
from pathlib import Path
while "app.server" not in sys.modules and Path({str(flag)!r}).exists():
    Path({str(flag)!r} + ".begun").touch()
    time.sleep(0.01)
"""
    write(folder / "together.py", slow + TOOLS.replace('get("word")', 'get("word"), "new"'))
    eventually(lambda: flag.with_suffix(".begun").exists(), "a worker loads")
    server.write_config({**RELOAD, "overrides": {"greets": {"settings": {"word": 3}}}})
    server.wait_for_log(lambda log: log.get("event") == "configuration_applied")
    assert server.client.call("greets").status == 200
    flag.unlink()
    eventually(lambda: server.client.call("greets").value == [3, "new"], "both changes")


def test_what_was_opened_for_a_version_that_does_not_start_is_closed(
    folder: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    """It was opened in the server, and then its workers could not be had."""
    server = server_factory(folder, RELOAD)
    opens = f"""
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from app import tool

if "app.server" not in sys.modules:
    raise OSError("not here")


@asynccontextmanager
async def lifespan():
    Path({str(tmp_path / "opened")!r}).touch()
    yield
    Path({str(tmp_path / "closed")!r}).touch()


@tool
def here() -> None:
    ...


@tool(isolation="process")
def there() -> None:
    ...
"""
    write(folder / "more.py", opens)
    eventually((tmp_path / "closed").exists, "it is closed")
    assert (tmp_path / "opened").exists()
    assert not {"here", "there"} & server.client.tools().keys()
