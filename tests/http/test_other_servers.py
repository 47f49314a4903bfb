"""The application under a server that is not ours: everything works in ASGI's own way."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.test_hostile import TOOLS
from tests.support.client import McpClient, meta
from tests.support.server import clean_environment
from tests.support.toolfiles import write
from tests.support.waiting import eventually_lines

SCRIPT = """
import socket, sys
from pathlib import Path
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from app.configuration import load_settings
from app.server import create_app

folder, mode = sys.argv[1:]
app = create_app(load_settings(Path(folder, "config.toml"), environ={}))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
if mode == "mounted without its lifespan":
    app = Starlette(routes=[Mount("/", app)])
http = mode if mode in ("h11", "httptools") else "auto"
config = uvicorn.Config(app, http=http, log_level="error")
uvicorn.Server(config).run(sockets=[listener])
"""


@pytest.fixture
def other(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[McpClient]:
    """A client of the application under plain uvicorn."""
    write(tmp_path / "tools" / "hostile.py", TOOLS)
    write(tmp_path / "config.toml", f'[tools]\ndirectory = "{tmp_path / "tools"}"\n')
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), request.param]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        assert process.stdout is not None
        yield McpClient("127.0.0.1", int(process.stdout.readline()))
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("other", ["h11", "httptools"], indirect=True)
def test_calls_streams_and_cancellation_work_under_another_server(
    other: McpClient, tmp_path: Path
) -> None:
    assert "pauses" in other.tools()
    assert other.call("pauses").text == "paused"
    reply = other.call("reports", {"escaped": "x"}, meta_=meta(progressToken=1))
    assert len(reply.notifications("notifications/progress")) == 1
    with other.listening() as stream:
        assert stream.response.status == 200
    notes = tmp_path / "notes"
    params = {"name": "waits", "arguments": {"notes": str(notes)}}
    connection = other.connect()
    connection.send(other.request("tools/call", params).encode())
    eventually_lines(notes, "started")
    connection.close()
    assert eventually_lines(notes, "cancelled", 2.0)


@pytest.mark.parametrize("other", ["mounted without its lifespan"], indirect=True)
def test_without_its_lifespan_it_says_what_is_missing(other: McpClient) -> None:
    """EX-07."""
    reply = other.ask("tools/list")
    assert reply.status == 503
    assert "lifespan" in str(reply.last)
