"""How it starts and ends: end of input, signals, clients that stop reading."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.conftest import FIXTURE_TOOLS
from tests.support.client import body_of, encode
from tests.support.server import ROOT, clean_environment
from tests.support.stdio import StdioFactory
from tests.support.waiting import eventually_lines

DISCOVER = encode(body_of("server/discover"))
ISOLATED = FIXTURE_TOOLS.parent / "isolated"
PATIENT_S = 8.0


def test_end_of_input_ends_the_process_at_once_if_nothing_runs(start: StdioFactory) -> None:
    server = start()
    began = time.monotonic()

    assert server.end() == 0
    assert time.monotonic() - began < 0.9


def test_what_was_sent_before_the_end_of_input_is_answered(start: StdioFactory) -> None:
    server = start()
    id = server.begin("count", {"steps": 3})
    server.write(DISCOVER)  # without a newline: the end of input is as good
    assert server.end() == 0

    assert server.result(id)["isError"] is False
    assert "supportedVersions" in server.result(1)


def test_a_call_that_outlasts_the_grace_is_stopped_and_says_so(
    start: StdioFactory, tmp_path: Path
) -> None:
    server = start()
    notes = tmp_path / "notes"
    id = server.begin("wait_async", {"path": str(notes)})
    eventually_lines(notes, "started")
    began = time.monotonic()

    assert server.end() == 0
    assert 0.9 < time.monotonic() - began < 3  # clients send SIGTERM after two seconds, or more
    assert notes.read_text("utf-8").splitlines() == ["started", "cancelled", "closed"]
    result = server.result(id)
    assert result["isError"] is True
    assert "shutting down" in result["content"][0]["text"]


def test_a_thread_that_does_not_end_holds_up_nothing(start: StdioFactory, tmp_path: Path) -> None:
    server = start()
    notes = tmp_path / "notes"
    server.begin("wait_sync", {"path": str(notes), "release": str(tmp_path / "never")})
    eventually_lines(notes, "started")

    assert server.end(PATIENT_S) == 0


def test_processes_of_tools_end_with_it(start: StdioFactory) -> None:
    server = start(ISOLATED, {"tools": {"reload": False}}, is_noisy=True)
    pid = server.call("sleeps", {"seconds": 0})["structuredContent"]
    server.begin("sleeps", {"seconds": 60})

    assert server.end(PATIENT_S) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_code_0(
    start: StdioFactory, tmp_path: Path, number: signal.Signals
) -> None:
    server = start()
    notes = tmp_path / "notes"
    server.begin("wait_async", {"path": str(notes)})
    eventually_lines(notes, "started")
    server.interrupt(number)

    assert server.wait() == 0
    assert notes.read_text("utf-8").splitlines() == ["started", "cancelled", "closed"]


def test_a_signal_ends_it_while_a_module_is_loading(start: StdioFactory, tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    text = f"import pathlib, time\npathlib.Path({str(tmp_path / 'notes')!r}).write_text('begun\\n')"
    (folder / "slow.py").write_text(f"{text}\ntime.sleep(600)\n", "utf-8")
    server = start(folder, {}, start=False)
    server.spawn()
    eventually_lines(tmp_path / "notes", "begun")
    server.interrupt(signal.SIGTERM)

    assert server.wait() == 0


def test_a_client_that_no_longer_reads_its_end_ends_it(start: StdioFactory) -> None:
    server = start()
    server.hang_up()
    server.send(body_of("server/discover"))
    server.wait_for_silence()
    server.send(body_of("server/discover"))

    assert server.wait() == 0


_IMPATIENT = (
    "import app.stdio.channel as channel\n"
    "channel.Channel.__init__.__kwdefaults__['patience_s'] = 0.5\n"
    "from app.cli import main; main()"
)


def test_a_client_that_takes_nothing_is_given_up_with_a_line_in_the_log(
    start: StdioFactory,
) -> None:
    server = start(program=("-c", _IMPATIENT), expected=1)
    server.stop_reading()
    text = "x" * 100_000
    for _ in range(10):
        server.begin("echo", {"text": text})

    assert server.wait() == 1
    server.wait_for_log(lambda log: log.get("event") == "client_does_not_read")


def test_a_client_may_send_all_before_it_reads_anything(start: StdioFactory) -> None:
    server = start()
    server.stop_reading()
    ids = [server.begin("echo", {"text": "x" * 1000}) for _ in range(300)]
    server.read_on()

    for id in ids:
        server.result(id)


def _run(command: Sequence[str], stdin: IO[bytes] | int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(),
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


COMMAND = (sys.executable, "-m", "app", "stdio")


def test_input_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    file.write_bytes(DISCOVER + b"\n")
    with file.open("rb") as stdin:
        done = _run([*COMMAND, "--tools", str(FIXTURE_TOOLS)], stdin)
    assert done.returncode == 0
    assert "supportedVersions" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--tools", "no-such-folder"), 5, "no-such-folder"),
        (("--config", "no-such-file.toml"), 4, "no-such-file.toml"),
        (("--log-level", "loud"), 4, "level"),
        (("--api-key-file", "no-such-file"), 7, "no-such-file"),
    ],
)
def test_what_stops_the_start_is_said_on_standard_error(
    args: tuple[str, ...], code: int, words: str
) -> None:
    done = _run([*COMMAND, *args], subprocess.DEVNULL)

    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert words in done.stderr


def test_without_its_streams_it_does_not_start() -> None:
    done = _run(["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND], subprocess.DEVNULL)

    assert done.returncode == 3
    assert "standard input" in done.stderr
    assert done.stdout == ""
