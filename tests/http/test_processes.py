"""Tools in worker processes: what works as elsewhere, and how workers come and go."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.http.test_processes_hostile import ISOLATED
from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.processes import descendants, is_alive, workers
from tests.support.server import ROOT, ServerFactory, ServerProcess, clean_environment
from tests.support.stores import RedisServer
from tests.support.toolfiles import write
from tests.support.waiting import eventually

SETTINGS = {"greeting": "hello"}
CONFIG: dict[str, Any] = {
    "tools": {"reload": False},
    "execution": {"processes": 2},
    "overrides": {"seen": {"settings": SETTINGS}},
}
POLITE = (ISOLATED / "polite.py").read_text("utf-8")


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> ServerProcess:
    """A server with tools in processes."""
    return module_server_factory(ISOLATED, CONFIG)


@pytest.fixture
def client(server: ServerProcess) -> McpClient:
    """A client of `server`."""
    return server.client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tools of a test's own."""
    write(tmp_path / "polite.py", POLITE)
    return tmp_path


# -- calls ----------------------------------------------------------------------


def test_types_are_bound_and_results_encoded_as_elsewhere(client: McpClient) -> None:
    reply = client.call("bill", {"day": "2026-07-28", "items": ["1.10", 2]})
    assert reply.value == {"day": "2026-07-28", "total": "3.10"}
    assert client.tools()["bill"]["outputSchema"]["properties"].keys() == {"day", "total"}


def test_content_blocks_cross_the_boundary(client: McpClient) -> None:
    kinds = [block["type"] for block in client.call("blocks").result["content"]]
    assert kinds == ["text", "image", "text"]


def test_a_result_set_by_hand_crosses_the_boundary(client: McpClient) -> None:
    reply = client.call("result")
    assert (reply.is_error, reply.text) == (True, "no")
    assert reply.result["_meta"]["example.org/x"] == 1


def test_wrong_arguments_are_refused_before_they_reach_a_process(client: McpClient) -> None:
    reply = client.call("bill", {"day": "2026-07-28"})
    assert reply.is_error
    assert "items" in reply.text


def test_a_context_says_the_same_as_elsewhere(client: McpClient) -> None:
    own = meta(**{"example.org/note": "n", "clientInfo": {"name": "me", "version": "1"}})
    found = client.call("seen", meta_=own, id="seven").value
    assert 6 < found.pop("remaining_s") <= 7
    assert found == {
        "tool": "seen",
        "request_id": "seven",
        "subject": None,
        "scopes": [],
        "claims": {},
        "client": "me",
        "protocol_version": "2026-07-28",
        "meta": "n",
        "settings": SETTINGS,
        "lifespan": "hello",
        "same_process": True,
        "cancelled": False,
    }


def test_progress_and_log_messages_reach_the_client(client: McpClient) -> None:
    reply = client.call("talks", {"times": 3}, meta_=meta(progressToken="p", logLevel="info"))
    said = reply.notifications("notifications/progress")
    assert [each["progress"] for each in said] == [1, 2, 3]
    assert said[-1] == {"progressToken": "p", "progress": 3, "total": 3, "message": "step 3"}
    logged = reply.notifications("notifications/message")
    assert logged == [{"level": "warning", "data": {"left": 0}, "logger": "counter"}]


def test_a_flood_of_progress_is_thinned_out_and_the_newest_value_arrives(
    client: McpClient,
) -> None:
    reply = client.call("talks", {"times": 50_000}, meta_=meta(progressToken=1), timeout_s=30)
    said = [each["progress"] for each in reply.notifications("notifications/progress")]
    assert said[-1] == 50_000
    assert len(said) < 200
    assert said == sorted(said)


def test_a_client_that_does_not_listen_is_told_nothing(client: McpClient) -> None:
    reply = client.call("talks", {"times": 3})
    assert [message["id"] for message in reply.messages] == [1]


def test_what_is_printed_and_logged_goes_to_the_log(server: ServerProcess) -> None:
    mark = server.log_mark()
    server.client.call("logs", {"text": "a word"})
    printed = server.wait_for_log(lambda log: log.get("event") == "tool_output", after=mark)
    assert (printed["text"], printed["tool"]) == ("printed a word", "logs")
    logged = server.wait_for_log(lambda log: log.get("event") == "log", after=mark)
    assert (logged["message"], logged["logger"], logged["level"], logged["tool"]) == (
        "logged a word",
        "library",
        "warning",
        "logs",
    )


def test_the_lifespan_runs_where_its_tools_run(server: ServerProcess) -> None:
    assert server.client.call("here").value == server.pid
    assert server.client.call("sleeps", {"seconds": 0}).value in workers(server)


def test_a_known_caller_is_known_in_the_process(server_factory: ServerFactory) -> None:
    key = "mts_ci_" + "k" * 43
    digest = hashlib.sha256(key.encode()).hexdigest()
    keys = [{"id": "ci", "hash": f"sha256:{digest}", "scopes": ["a:read", "b:read"]}]
    server = server_factory(ISOLATED, {**CONFIG, "auth": {"api_keys": keys, "default": "allow"}})
    found = server.client.call("seen", headers={"Authorization": f"Bearer {key}"}).value
    assert (found["subject"], found["scopes"]) == ("ci", ["a:read", "b:read"])


# -- too many calls -------------------------------------------------------------


def test_calls_wait_for_a_process_and_too_many_are_refused_at_once(
    server_factory: ServerFactory,
) -> None:
    server = server_factory(ISOLATED, {**CONFIG, "execution": {"processes": 1}})
    client = server.client
    data = client.request("tools/call", {"name": "sleeps", "arguments": {"seconds": 0.1}}).encode()
    connections = [client.connect(20) for _ in range(11)]
    for connection in connections:
        connection.send(data)
    eventually(lambda: client.call("sleeps", {"seconds": 0}).status == 503, "a full queue", 1.0)
    begun = time.perf_counter()
    refused = client.call("sleeps", {"seconds": 0})
    assert refused.outcome == (503, -31503)
    assert refused.header("retry-after") == "1"
    assert time.perf_counter() - begun < 0.5
    for connection in connections:
        assert connection.read_response().status == 200
        connection.close()
    assert client.call("sleeps", {"seconds": 0}).status == 200


def test_a_call_that_is_given_up_while_it_waits_never_runs(server_factory: ServerFactory) -> None:
    server = server_factory(ISOLATED, {**CONFIG, "execution": {"processes": 1}})
    client = server.client
    busy = client.connect()
    busy.send(
        client.request("tools/call", {"name": "sleeps", "arguments": {"seconds": 1}}).encode()
    )
    (worker,) = workers(server)
    mark = server.log_mark()
    reply = client.call("logs", {"text": "x"}, meta_=meta(**{"mcp-tool-server/timeoutMs": 100}))
    assert "deadline of 0.1 s" in reply.text
    assert busy.read_response().status == 200
    busy.close()
    assert client.call("sleeps", {"seconds": 0}).value == worker
    assert not [log for log in server.logs("tool_output") if log in server.logs()[mark:]]


# -- workers come and go --------------------------------------------------------


def test_an_idle_worker_that_dies_is_replaced(server: ServerProcess) -> None:
    before = workers(server)
    mark = server.log_mark()
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    line = server.wait_for_log(lambda log: log.get("event") == "process_ended", after=mark)
    assert (line["pid"], line["tool"]) == (victim, None)
    eventually(lambda: len(workers(server)) == 2 and victim not in workers(server), "a new worker")


def test_a_template_that_dies_is_replaced(server: ServerProcess) -> None:
    (template,) = descendants(server.pid) - workers(server)
    mark = server.log_mark()
    os.kill(template, signal.SIGKILL)
    server.wait_for_log(lambda log: log.get("event") == "process_template_lost", after=mark)
    eventually(lambda: template not in descendants(server.pid), "it is gone")
    assert server.client.call("sleeps", {"seconds": 0}).value in workers(server)
    eventually(lambda: len(workers(server)) == 2, "two workers again")


def test_no_process_is_started_where_no_tool_wants_one(server_factory: ServerFactory) -> None:
    server = server_factory()
    assert descendants(server.pid) == set()


def test_the_end_of_the_server_leaves_lifespans_and_ends_every_process(
    folder: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(folder, CONFIG)
    below = descendants(server.pid)
    assert len(below) == 3
    server.stop()
    assert not any(map(is_alive, below))
    left = [log for log in server.logs("tool_output") if log["text"] == "lifespan was left"]
    assert len(left) == 3 - 1


def test_running_calls_may_finish_when_the_server_ends(server_factory: ServerFactory) -> None:
    server = server_factory(ISOLATED, CONFIG)
    connection = server.client.connect()
    data = server.client.request("tools/call", {"name": "sleeps", "arguments": {"seconds": 1}})
    connection.send(data.encode())
    below = descendants(server.pid)
    for pid in below:  # as a supervisor does that signals every process of a service
        os.kill(pid, signal.SIGTERM)
    server.terminate()
    assert connection.read_response().json()["result"]["isError"] is False
    connection.close()
    server.stop()
    assert not any(map(is_alive, below))


def test_a_server_that_is_killed_leaves_no_process(folder: Path) -> None:
    server = ServerProcess(folder, CONFIG)
    below = descendants(server.pid)
    connection = server.client.connect()
    data = server.client.request("tools/call", {"name": "sleeps", "arguments": {"seconds": 60}})
    connection.send(data.encode())
    server.kill()
    connection.close()
    server._folder.cleanup()
    eventually(lambda: not any(map(is_alive, below)), "every process has ended", 5.0)


# -- reload ---------------------------------------------------------------------

OTHER = 'from app import tool\n\n\n@tool\ndef other() -> str:\n    """O."""\n    return "o"\n'
RELOAD: dict[str, Any] = {**CONFIG, "tools": {"reload": True}}


def test_a_new_version_comes_beside_the_old_one(
    folder: Path, server_factory: ServerFactory
) -> None:
    """Calls that run finish with the code and in the process that they began with."""
    server = server_factory(folder, RELOAD)
    old = workers(server)
    connection = server.client.connect(20)
    data = server.client.request("tools/call", {"name": "sleeps", "arguments": {"seconds": 2}})
    connection.send(data.encode())
    write(
        folder / "polite.py",
        POLITE.replace("return os.getpid()\n\n\n@tool\n", "return -1\n\n\n@tool\n"),
    )
    eventually(lambda: server.client.call("sleeps", {"seconds": 0}).value == -1, "the new version")
    assert connection.read_response().json()["result"]["structuredContent"] in old
    connection.close()
    eventually(lambda: not old & workers(server), "the old workers have ended")
    assert len(workers(server)) == 2


def test_a_change_elsewhere_leaves_the_workers_alone(
    folder: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(folder, RELOAD)
    before = workers(server)
    write(folder / "other.py", OTHER)
    eventually(lambda: "other" in server.client.tools(), "the other tool")
    assert workers(server) == before


def test_changed_settings_reach_the_workers(folder: Path, server_factory: ServerFactory) -> None:
    server = server_factory(folder, RELOAD)
    server.write_config({**RELOAD, "overrides": {"seen": {"settings": {"greeting": "servus"}}}})
    eventually(lambda: server.client.call("seen").value["settings"] == {"greeting": "servus"}, "it")
    assert server.client.call("seen").value["lifespan"] == "servus"


BROKEN_IN_WORKERS = "import sys\nif 'app.server' not in sys.modules:\n    {}\n"


@rows(
    "line, problem",
    ("raises", "raise RuntimeError('not here')", "RuntimeError: not here"),
    ("ends", "import os; os._exit(7)", "ended with exit code 7"),
    ("crashes", "import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV"),
)
def test_a_version_that_does_not_start_in_a_process_is_not_published(
    folder: Path, server_factory: ServerFactory, line: str, problem: str
) -> None:
    server = server_factory(folder, RELOAD)
    write(
        folder / "other.py",
        OTHER.replace("@tool\n", '@tool(isolation="process")\n'),
    )
    eventually(lambda: "other" in server.client.tools(), "the other tool")
    mark = server.log_mark()
    write(folder / "polite.py", BROKEN_IN_WORKERS.format(line) + POLITE.replace("'sleeps'", "-1"))
    found = server.wait_for_log(
        lambda log: log.get("event") == "tool_problem" and log["file"] == "polite.py", after=mark
    )
    assert problem in found["problem"]
    assert server.client.call("sleeps", {"seconds": 0}).value in workers(server)
    assert server.client.call("other").value == "o"


def test_check_reports_what_does_not_start_in_a_process(folder: Path) -> None:
    write(folder / "polite.py", BROKEN_IN_WORKERS.format("import os; os._exit(7)") + POLITE)
    write(folder / "other.py", OTHER)
    done = subprocess.run(
        [sys.executable, "-m", "app", "check", "--json", "--tools", str(folder)],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["tools"]) == (1, False, 1)
    (problem,) = [each for each in report["problems"] if each["severity"] == "error"]
    assert problem["message"] == "its worker process did not start: it ended with exit code 7"
    assert problem["file"].endswith("polite.py")


def test_each_of_several_servers_has_its_own_workers(server_factory: ServerFactory) -> None:
    with RedisServer() as redis:
        shared = {"secrets": {"keys": ["k" * 32]}, "state": {"url": redis.url}}
        _each_has_its_own(server_factory(ISOLATED, {**CONFIG, **shared}, args=["--workers", "2"]))


def _each_has_its_own(server: ServerProcess) -> None:
    eventually(lambda: len(server.logs("listening")) == 2, "both servers")
    below = descendants(server.pid)
    pids = {log["pid"] for log in server.logs("listening")}
    assert all(len(descendants(pid)) == 3 for pid in pids)
    victim = min(pids)
    own = descendants(victim)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, own)), "its workers have ended with it", 5.0)
    eventually(lambda: len(server.logs("listening")) == 3, "another server")
    below |= descendants(server.pid)
    server.stop()
    eventually(lambda: not any(map(is_alive, below)), "every process has ended", 5.0)


def test_a_lifespan_that_fails_in_a_process_keeps_the_last_version(
    folder: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(folder, RELOAD)
    mark = server.log_mark()
    broken = POLITE.replace("    yield {", "    raise OSError('no database')\n    yield {")
    write(
        folder / "polite.py",
        broken.replace("@tool\ndef here", '@tool(isolation="process")\ndef here'),
    )
    found = server.wait_for_log(
        lambda log: log.get("event") == "tool_problem" and log["file"] == "polite.py", after=mark
    )
    assert "lifespan() failed" in found["problem"]
    assert server.client.call("sleeps", {"seconds": 0}).value in workers(server)


def test_workers_load_what_the_server_has_loaded(
    folder: Path, server_factory: ServerFactory
) -> None:
    """Even if the folder holds something else by the time a worker is replaced."""
    server = server_factory(folder, CONFIG)  # reload is off
    write(folder / "polite.py", "raise RuntimeError('half saved')\n")
    for victim in workers(server):
        os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(server.logs("process_ended")) == 2, "both are gone")
    assert server.client.call("sleeps", {"seconds": 0}).value in workers(server)


def test_a_worker_that_cannot_be_replaced_is_tried_again(
    folder: Path, server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flag = tmp_path_factory.mktemp("flag") / "down"
    guarded = POLITE.replace(
        "    yield {",
        f"    if __import__('os').path.exists({str(flag)!r}): raise OSError('down')\n    yield {{",
    )
    write(
        folder / "polite.py",
        guarded.replace("@tool\ndef here", '@tool(isolation="process")\ndef here'),
    )
    server = server_factory(folder, {**CONFIG, "execution": {"processes": 1}})
    flag.touch()
    (victim,) = workers(server)
    os.kill(victim, signal.SIGKILL)
    line = server.wait_for_log(lambda log: log.get("event") == "process_start_failed")
    assert "down" in line["problem"]
    eventually(
        lambda: server.client.call("sleeps", {"seconds": 0}).outcome == (503, -31503),
        "no call waits for what does not come",
    )
    flag.unlink()
    eventually(lambda: server.client.call("sleeps", {"seconds": 0}).status == 200, "it is back")


def test_a_thousand_calls_leave_nothing_behind(server: ServerProcess) -> None:
    def descriptors(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    def call(times: int) -> None:
        data = server.client.request("tools/call", {"name": "sleeps", "arguments": {"seconds": 0}})
        with server.client.connect(30) as connection:
            for _ in range(times):
                connection.send(data.encode())
                assert connection.read_response().status == 200

    call(50)
    pids = {server.pid} | descendants(server.pid)
    before = {pid: descriptors(pid) for pid in pids}
    call(1000)
    assert {server.pid} | descendants(server.pid) == pids
    assert all(descriptors(pid) <= before[pid] + 1 for pid in pids)
