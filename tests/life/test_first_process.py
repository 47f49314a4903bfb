"""The server as process 1 of a container that has no init of its own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from app.cli.exits import Exit
from tests.support.client import McpClient
from tests.support.processes import descendants
from tests.support.server import ROOT, clean_environment
from tests.support.stores import RedisServer
from tests.support.waiting import eventually

TOOLS: Final = Path(__file__).parent / "tools"
NAMESPACE: Final = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")


def _has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not _has_namespaces(), reason="this machine lets nobody make a namespace of processes"
)


class Contained:
    """A server in a namespace of processes, whose first one it is."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        line = next(json.loads(each) for each in process.stderr if '"listening"' in each)
        self.client = McpClient("127.0.0.1", int(line["url"].split(":")[2].split("/")[0]))
        self.pid_inside: int = line["pid"]
        (self.first,) = _children(process.pid)


@contextlib.contextmanager
def contained(*args: str, state: str = "memory://") -> Iterator[Contained]:
    command = [sys.executable, "-m", "app", "serve", "--port", "0", "--tools", str(TOOLS), *args]
    process = subprocess.Popen(
        [*NAMESPACE, *command],
        cwd=ROOT,
        env=clean_environment(
            {
                "MCP__LOGGING__FORMAT": "json",
                "MCP__SECRETS__KEYS": json.dumps(["k" * 32]),
                "MCP__STATE__URL": state,
            }
        ),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Contained(process)
        finally:
            for pid in descendants(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()


def _children(pid: int) -> list[int]:
    """Children, those that nobody has buried among them."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(child) for child in text.split()]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("args", "number"),
    [
        pytest.param((), signal.SIGTERM, id="alone"),
        pytest.param((), signal.SIGINT, id="Ctrl+C"),
        pytest.param(("--workers", "2"), signal.SIGTERM, id="with workers"),
    ],
)
def test_a_signal_to_the_first_process_ends_it_with_code_0(
    args: Sequence[str], number: signal.Signals
) -> None:
    """SH-07: docker stop sends it SIGTERM, and must not have to kill it."""
    with RedisServer() as redis, contained(*args, state=redis.url) as server:
        assert server.pid_inside != 1
        assert server.client.get("/readyz").status == 200
        with server.client.listening() as stream:
            os.kill(server.first, number)
            assert len(stream.rest()) == 1
        assert server.process.wait(10) == Exit.OK


def test_orphans_are_buried(tmp_path: Path) -> None:
    """And tools that wait for a process of theirs still learn how it ended."""
    with contained() as server:
        for _ in range(3):
            assert server.client.call("orphan").value > 1
        eventually(
            lambda: len(_children(server.first)) == 1, "the first process has the server alone"
        )
        (serving,) = _children(server.first)
        assert [child for child in _children(serving) if _state(child) == "Z"] == []
        os.kill(server.first, signal.SIGTERM)
        assert server.process.wait(10) == Exit.OK


def test_the_first_process_ends_with_what_became_of_the_server() -> None:
    with contained() as server:
        (serving,) = _children(server.first)
        os.kill(serving, signal.SIGKILL)
        assert server.process.wait(10) == 128 + signal.SIGKILL
