"""`serve --workers`: processes that share a port, and the one that looks after them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from app.cli.exits import Exit
from app.cli.running import CLOSING_S
from app.cli.serve import KILL_SLACK_S
from tests.support.processes import descendants, is_alive
from tests.support.server import (
    ROOT,
    START_S,
    ServerFactory,
    ServerProcess,
    clean_environment,
)
from tests.support.stores import RedisServer
from tests.support.waiting import eventually, eventually_lines

TOOLS: Final = Path(__file__).parent / "tools"
WINDOW_S: Final = 1.5
FLEET: Final[dict[str, Any]] = {
    "server": {"fleet": True, "drain_s": WINDOW_S, "shutdown_grace_s": 0.2}
}
TWO: Final = ("--workers", "2")


def serving(server: ServerProcess) -> dict[int, str]:
    """Pid of each worker that has ever served, and the name of its replica."""
    return {log["pid"]: log["replica"] for log in server.logs("listening")}


Begin = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def shared() -> Iterator[dict[str, Any]]:
    """What workers must share: a state and keys."""
    with RedisServer() as redis:
        yield {"state": {"url": redis.url}, "secrets": {"keys": ["k" * 32]}}


@pytest.fixture
def started(server_factory: ServerFactory, shared: dict[str, Any]) -> Begin:
    """Starts two workers, which end with the test."""
    return lambda config=None: serving_two(server_factory, {**shared, **(config or {})})


def serving_two(factory: Callable[..., ServerProcess], config: Mapping[str, Any]) -> ServerProcess:
    server = factory(TOOLS, config, args=TWO)
    eventually(lambda: len(serving(server)) == 2, "two workers serve", START_S)
    return server


@pytest.fixture(scope="module", autouse=True)
def hung(shared: dict[str, Any]) -> tuple[ServerProcess, int, datetime]:
    """A server with a worker that does not hear SIGTERM, told to end beside all other tests."""
    server = serving_two(ServerProcess, {**shared, **FLEET})
    victim = min(serving(server))
    os.kill(victim, signal.SIGSTOP)
    begun = datetime.now(UTC)
    server.terminate()
    return server, victim, begun


def test_a_worker_that_dies_is_replaced(started: Begin) -> None:
    server = started()
    victim = min(serving(server))
    os.kill(victim, signal.SIGKILL)
    line = server.wait_for_log(lambda log: log.get("event") == "worker_died")
    assert (line["pid"], line["exit_code"]) == (victim, -signal.SIGKILL)
    eventually(lambda: len(serving(server)) == 3, "another worker", START_S)
    assert len(set(serving(server).values())) == 1, "they are one replica"
    assert server.client.call("whoami").value in set(serving(server)) - {victim}


def test_each_line_says_which_worker_wrote_it(started: Begin) -> None:
    server = started()
    pids = set(serving(server))
    for _ in range(10):
        server.client.call("whoami")
    eventually(lambda: len(server.logs("request")) == 10, "a line for each request")
    assert {log["worker_pid"] for log in server.logs("request")} <= pids
    assert all(log["worker_pid"] == log["pid"] for log in server.logs("listening"))


@pytest.mark.parametrize("whole_group", [False, True], ids=["the supervisor", "every process"])
def test_sigterm_reaches_all_at_once_and_their_windows_run_side_by_side(
    started: Begin, *, whole_group: bool
) -> None:
    """Some send SIGTERM to every process of a service, so workers hear it twice."""
    server = started(FLEET)
    below = descendants(server.pid)
    with server.client.listening(id="L1") as stream:
        begun = time.monotonic()
        for pid in [server.pid, *(below if whole_group else ())]:
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: server.client.get("/readyz").status == 503, "one is not ready")
        for _ in range(10):
            assert server.client.get("/readyz").status == 503, "the other one is not, either"
        assert server.client.call("whoami").value in serving(server)
        assert len(stream.rest()) == 1
    assert server.wait() == Exit.OK
    assert time.monotonic() - begun > WINDOW_S
    begins = [datetime.fromisoformat(log["timestamp"]) for log in server.logs("draining")]
    assert len(begins) == 2
    assert abs(begins[0] - begins[1]).total_seconds() < WINDOW_S / 2
    assert [log for log in server.logs() if log.get("level") in ("error", "critical")] == []
    eventually(lambda: not any(map(is_alive, below)), "nothing is left")


def test_ctrl_c_at_a_terminal_is_heard_once(started: Begin) -> None:
    """A terminal sends it to the whole group; twice would mean not to wait for calls."""
    server = started({"server": {"drain_s": 60}})
    groups = {os.getpgid(pid) for pid in serving(server)}
    assert os.getpgid(server.pid) not in groups
    begun = time.monotonic()
    os.kill(server.pid, signal.SIGINT)
    assert server.wait() == Exit.OK
    assert time.monotonic() - begun < 5
    assert [log for log in server.logs() if log.get("level") in ("error", "critical")] == []


def test_workers_end_with_their_supervisor(tmp_path: Path, shared: dict[str, Any]) -> None:
    """However that ends, and as if they had been told: calls get their grace."""
    server = serving_two(ServerProcess, {**shared, "server": {"drain_s": 1}})
    below = descendants(server.pid)
    arguments = {"path": str(tmp_path / "notes"), "release": str(tmp_path / "release")}
    with server.client.connect() as connection:
        params = {"name": "wait", "arguments": arguments}
        connection.send(server.client.request("tools/call", params).encode())
        eventually_lines(tmp_path / "notes", "started")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: server.client.get("/readyz").status == 503, "one is not ready")
        (tmp_path / "release").touch()
        assert connection.read_response().json()["result"]["content"][0]["text"] == "released"
    eventually(lambda: not any(map(is_alive, below)), "nothing is left", 10)
    server.expected = -signal.SIGKILL
    server.stop()


def test_a_worker_that_does_not_hear_is_killed_in_the_end(
    hung: tuple[ServerProcess, int, datetime],
) -> None:
    server, victim, begun = hung
    server.expected = Exit.STUCK
    server.stop()
    (line,) = server.logs("worker_killed")
    took_s = (datetime.fromisoformat(line["timestamp"]) - begun).total_seconds()
    limit_s = WINDOW_S + 0.2 + CLOSING_S + KILL_SLACK_S
    assert limit_s - 0.1 < took_s < limit_s + 1
    assert line["pid"] == victim
    assert not is_alive(victim)


def test_workers_that_keep_dying_end_the_whole_with_a_code(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    (tmp_path / "crashes.py").write_text("import os\n\nos._exit(70)\n", "utf-8")
    server = ServerProcess(tmp_path, shared, args=TWO, start=False)
    done = subprocess.run(
        server.command,
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    server.discard()
    assert done.returncode == Exit.WORKERS
    assert done.stderr.count('"event":"worker_died"') == 2 * 5 + 1
    assert '"exit_code":70' in done.stderr
    assert done.stderr.count('"event":"workers_keep_dying"') == 1


UNABLE: Final = """
import multiprocessing, sys
from app.cli.supervisor import Supervisor

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")

    def start():
        hears, says = context.Pipe(duplex=False)
        with says:
            process = context.Process(target=sys.exit, args=({code},))
            process.start()
        return process, hears

    sys.exit(Supervisor(2, start, end_s=5, on_end=lambda: None).run())
"""


def test_a_worker_that_says_why_it_cannot_start_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "unable.py").write_text(UNABLE.format(code=int(Exit.STARTUP)), "utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "unable.py")],
        env=clean_environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == Exit.STARTUP, done.stderr
    assert 1 <= done.stdout.count("worker_died") <= 2
