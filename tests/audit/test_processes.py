"""The record of servers as processes: killed, with workers, over stdio, on a full disk."""

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from app.audit.chain import key_id
from app.audit.files import parts_in
from app.audit.reading import records
from app.audit.verifying import Report, Verifier
from app.cli.exits import Exit
from app.cli.main import add_all_commands
from app.protocol.sealed import KeyRing
from tests.auth.office import api_key, key_table
from tests.sessions.conversation import Conversation
from tests.sessions.test_stdio import OldStdio
from tests.support.cases import rows
from tests.support.client import meta
from tests.support.http1 import ConnectionEndedError
from tests.support.server import ROOT, ServerProcess, clean_environment, toml
from tests.support.stdio import StdioServer
from tests.support.stores import RedisServer
from tests.support.toolfiles import write
from tests.support.waiting import eventually

SECRET: Final = "s" * 40
KEY: Final = api_key("ada")[0]
TOOLS: Final = '''
import os

from app import ToolError, tool


@tool
async def echo(text: str) -> str:
    """Give it back."""
    return text


@tool
async def complains() -> str:
    """Say what is wrong."""
    raise ToolError("No.")


@tool(audit="required")
async def pay(amount: int) -> int:
    """Pay."""
    return os.getpid()


@tool
async def never() -> str:
    """Nobody calls this."""
    return ""
'''


def config_of(directory: Path, **more: Any) -> dict[str, Any]:
    """Settings with a record."""
    return {
        "audit": {"directory": str(directory)},
        "secrets": {"keys": [SECRET]},
        "auth": {"api_keys": [key_table("ada", KEY, tenant="acme")], "allow_unauthenticated": True},
        "policies": [{"tools": ["*"]}],
        "tools": {"reload": False},
        **more,
    }


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tools."""
    return write(tmp_path_factory.mktemp("tools") / "tools.py", TOOLS).parent


def verified(directory: Path) -> Report:
    """What verifying finds."""
    (key,) = KeyRing([SECRET.encode()]).derived("audit chain 1")
    return Verifier({key_id(key): key}, demands_key=True).verify(directory, parts_in(directory))


def test_every_answered_call_is_on_record_when_the_server_is_killed(
    tools: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "audit"
    server = ServerProcess(tools, config_of(directory))
    answered: list[str] = []
    stop = threading.Event()

    def caller(number: int) -> None:
        with server.client.connect() as connection:
            count = 0
            while not stop.is_set():
                count += 1
                id = f"{number}-{count}"
                try:
                    server.client.call("echo", {"text": id}, connection=connection, id=id)
                except (OSError, ConnectionEndedError):
                    return  # it was killed
                answered.append(id)

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for each in callers:
        each.start()
    eventually(lambda: len(answered) > 400, "some calls", 30)
    server.kill()
    stop.set()
    for each in callers:
        each.join(10)
    server.discard()
    on_record = {record["request_id"] for record in records(directory)}
    assert len(answered) > 400
    assert set(answered) <= on_record
    report = verified(directory)
    assert report.findings == []
    (ending,) = report.endings.values()
    assert ending in ("open", "torn")
    # The file is cut in the middle of a line, as a machine without power leaves it.
    (part,) = parts_in(directory)
    file = directory / part.name
    file.write_bytes(file.read_bytes()[:-50])
    report = verified(directory)
    assert (report.findings, list(report.torn)) == ([], [part.name])
    assert report.endings == {part.writer: "torn"}


class Home:
    """A server with two workers, and its record."""

    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self.server = server
        self.directory = directory

    def pids(self) -> set[int]:
        """Of the workers."""
        found = set()
        for part in parts_in(self.directory):
            first = (self.directory / part.name).read_bytes().partition(b"\n")[0]
            if first:
                found.add(json.loads(first)["pid"])
        return found

    def of(self, id: str) -> list[dict[str, Any]]:
        """What is on record of a request."""
        return [record for record in records(self.directory) if record["request_id"] == id]

    def run(self, *arguments: str) -> Result:
        """A command with the server's configuration."""
        config = ("--config", str(self.server.config_path))
        return CliRunner().invoke(add_all_commands(), [*arguments, *config])


@pytest.fixture(scope="module")
def home(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """The server."""
    directory = tmp_path_factory.mktemp("record") / "audit"
    with RedisServer() as redis:
        config = config_of(directory, state={"url": redis.url})
        with ServerProcess(tools, config, args=["--workers", "2"]) as server:
            found = Home(server, directory)
            eventually(lambda: len(found.pids()) == 2, "both workers")
            yield found


def test_each_worker_has_files_of_its_own(home: Home) -> None:
    for number in range(40):
        home.server.client.call("echo", {"text": "x"}, id=f"two-{number}")
    writers = {part.writer for part in parts_in(home.directory)}
    assert len(writers) == 2
    assert all(len(home.of(f"two-{number}")) == 1 for number in range(40))
    assert verified(home.directory).findings == []


def test_who_called_is_on_record_whatever_revision_they_speak(home: Home) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    home.server.client.call(
        *("complains", {}, {"X-API-Key": KEY}), id="modern", meta_=meta(traceparent=trace)
    )
    (record,) = home.of("modern")
    assert record["credential"] == "ada"
    assert (record["issuer"], record["subject"], record["tenant"]) == ("api-key", "ada", "acme")
    assert (record["outcome"], record["rule"], record["trace_id"]) == (
        *("tool_error", "rule 1"),
        "a" * 32,
    )
    assert record["address"] == "127.0.0.1"
    with Conversation([home.server], "2025-06-18") as old:
        old.open()
        old.ask("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    revisions = {record["revision"] for record in records(home.directory)}
    assert {"2025-06-18", "2026-07-28"} <= revisions


def test_a_tool_that_demands_a_record_has_two(home: Home) -> None:
    assert home.server.client.call("pay", {"amount": 1}, id="paid").result["isError"] is False
    assert [record["kind"] for record in home.of("paid")] == ["intent", "call"]


def test_secrets_are_nowhere_in_the_record(home: Home) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    home.server.client.call("echo", {"text": "sesame-4711"}, headers, id="secret")
    assert home.of("secret")[0]["credential"] == "ada"
    text = b"".join(path.read_bytes() for path in home.directory.iterdir())
    for secret in (b"sesame", KEY.encode(), SECRET.encode(), KEY.split("_")[-1].encode()):
        assert secret not in text


def test_a_full_disk_stops_only_what_demands_a_record(home: Home) -> None:
    client, before = home.server.client, resource.getrlimit(resource.RLIMIT_FSIZE)
    mark = home.server.log_mark()
    for pid in home.pids():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        statuses = [client.call("echo", {"text": "x"}, id=f"full-{n}").status for n in range(20)]
        assert statuses == [200] * 20
        refused = client.call("pay", {"amount": 1}, id="unpaid")
        assert (refused.status, refused.error["code"]) == (503, -31503)
        assert "put on record" in refused.error["message"]
        failing = home.server.wait_for_log(lambda log: log["event"] == "audit_failing", after=mark)
        assert failing["problem"] == "File too large"
    finally:
        for pid in home.pids():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    # By itself, and what waited in memory is written.
    eventually(lambda: home.of("full-19"), "its record")
    eventually(lambda: client.call("pay", {"amount": 1}).status == 200, "that it is paid")
    assert all(len(home.of(f"full-{number}")) == 1 for number in range(20))
    assert verified(home.directory).findings == []


def test_what_is_wrong_is_said_with_file_and_line(home: Home, tmp_path: Path) -> None:
    home.server.client.call("echo", {"text": "x"})
    result = home.run("audit", "verify")
    assert result.exit_code == Exit.OK, result.output
    assert "no problem" in result.output
    copy = tmp_path / "copy"
    copy.mkdir()
    for part in parts_in(home.directory):
        (copy / part.name).write_bytes((home.directory / part.name).read_bytes())
    edited = copy / max(parts_in(copy), key=lambda part: (copy / part.name).stat().st_size).name
    edited.write_bytes(edited.read_bytes().replace(b'"echo"', b'"ecko"', 1))
    result = home.run("audit", "verify", str(copy))
    assert result.exit_code == Exit.PROBLEMS
    assert f"error {edited.name}:" in result.output
    assert "its hash is not that of its text" in result.output
    found = json.loads(home.run("audit", "verify", str(edited), "--json").output)
    assert not found["ok"]
    assert [each["file"] for each in found["findings"]] == [edited.name]
    without = CliRunner().invoke(add_all_commands(), ["audit", "verify", str(copy)])
    assert "cannot be checked" in without.output


def test_calls_are_searched(home: Home) -> None:
    client = home.server.client
    client.call("echo", {"text": "needle"}, {"X-API-Key": KEY}, id="s1")
    client.call("complains", {}, id="s2")

    def search(*arguments: str) -> list[dict[str, Any]]:
        result = home.run("audit", "search", *arguments, "--json")
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.output.splitlines()]

    for principal in ("ada", "api-key ada", "acme"):
        found = search("--principal", principal)
        assert "s1" in {record["request_id"] for record in found}
        assert {record["subject"] for record in found} == {"ada"}
    assert {each["outcome"] for each in search("--outcome", "tool_error")} == {"tool_error"}
    assert {each["tool"] for each in search("--tool", "complains")} == {"complains"}
    assert [each["request_id"] for each in search("--arguments", '{"text":"needle"}')] == ["s1"]
    assert search("--since", "1h") and not search("--until", "1h")
    times = [each["time"] for each in search()]
    assert times == sorted(times) and len(times) > 2
    shown = home.run("audit", "search", "--principal", "ada")
    assert "(acme)" in shown.output
    bad = home.run("audit", "search", "--since", "yesterday")
    assert bad.exit_code == Exit.USAGE
    assert "is no instant" in bad.output
    bad = home.run("audit", "search", "--outcome", "error")
    assert bad.exit_code == Exit.USAGE
    assert "error is no outcome" in bad.output


def test_use_is_counted(home: Home, tools: Path) -> None:
    home.server.client.call("echo", {"text": "x"})
    arguments = ("stats", "--tools", str(tools))
    found = json.loads(home.run(*arguments, "--json").output)
    used = {each["tool"]: each for each in found["tools"]}
    assert found["never_called"] == ["never"]
    assert used["complains"]["error_rate"] == 1.0
    assert used["echo"]["callers"] >= 1
    assert used["echo"]["p50_ms"] <= used["echo"]["p99_ms"] <= used["echo"]["longest_ms"]
    shown = home.run(*arguments)
    assert "Never called: never" in shown.output
    assert "echo" in shown.output
    assert " max " in shown.output, "the last column is cut off"
    empty = json.loads(home.run(*arguments, "--json", "--until", "7d").output)
    assert (empty["tools"], len(empty["never_called"])) == ([], 4)


@rows("version", ("modern", None), ("an older one", "2025-03-26"))
def test_calls_over_stdio_are_on_record(tools: Path, tmp_path: Path, version: str | None) -> None:
    directory = tmp_path / "audit"
    config = config_of(directory)
    with OldStdio(tools, config) if version else StdioServer(tools, config) as server:
        if isinstance(server, OldStdio) and version:
            server.open(version)
            first = server.use("echo", {"text": "x"})
            server.response(first)
            second = server.use("pay", {"amount": 1})
        else:
            first = server.begin("echo", {"text": "x"})
            server.response(first)
            second = server.begin("pay", {"amount": 1})
        server.response(second)
        found = [(each["request_id"], each["kind"], each["address"]) for each in records(directory)]
        assert found == [(first, "call", None), (second, "intent", None), (second, "call", None)]
    report = verified(directory)
    assert (report.findings, list(report.endings.values())) == ([], ["closed"])


@rows("command", ("serve", "serve"), ("stdio", "stdio"))
def test_a_record_that_cannot_be_written_stops_the_start(
    tools: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "way").write_text("a file")
    config = tmp_path / "config.toml"
    config.write_text(toml(config_of(tmp_path / "way" / "audit")))
    ended = subprocess.run(
        [sys.executable, "-m", "app", command, "--config", str(config), "--tools", str(tools)],
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == Exit.CONFIGURATION
    assert "audit cannot be written: Not a directory" in ended.stderr.replace("\n", " ")
