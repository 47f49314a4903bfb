"""``recordings`` and ``replay``: what they print, and every way in which they refuse."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from app.cli.exits import Exit
from app.cli.main import add_all_commands
from app.protocol.sealed import KeyRing
from app.recording.folder import Folder, Sealed
from app.recording.gathering import Finished
from app.recording.recording import Refusal
from app.recording.vault import Vault
from tests.recording.making import ADA, AT, failure, finished, gatherer
from tests.support.cases import rows
from tests.support.server import ROOT, clean_environment

KEY = "a-key-of-the-tests-with-32-letters"
OTHER = "another-key-that-opens-nothing-here"
CONFIG = """
[secrets]
keys = ["{key}"]

[recording]
directory = "recordings"

[auth.scope_hierarchy]
"all" = ["notes:read"]
"""
TOOLS = '''
from app import ToolError, tool

READS = {"read_only": True}

@tool(annotations=READS)
async def divide(a: int, b: int) -> dict[str, float]:
    """Divide."""
    if b == 0:
        raise ToolError("b must not be 0")
    return {"quotient": a / b}

@tool(annotations=READS)
async def crash() -> str:
    """Crash."""
    return {}["key"]

@tool
async def send(to: str) -> str:
    """Send."""
    raise SystemExit("this must not run")
'''
FAILED, DENIED, CRASHED, SENT = ("%016x" % (number << 32) for number in (0xAA, 0xAB, 0xCC, 0xDD))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with tools, a configuration and four recordings."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "all.py").write_text(TOOLS)
    (tmp_path / "config.toml").write_text(CONFIG.format(key=KEY))
    monkeypatch.chdir(tmp_path)
    _keep(tmp_path, FAILED, finished())
    message = "Unknown tool: divide"
    denied = finished(outcome="protocol_error")._replace(
        result=None,
        refusal=Refusal(code=-32602, message=message),
        principal=replace(ADA, subject="bob"),
        began=AT + 1,
    )
    _keep(tmp_path, DENIED, denied)
    crash = failure("The tool failed because of an internal error. (error id 0011223344556677)")
    crashed = finished("crash", outcome="internal_error", arguments={}, result=crash)
    _keep(tmp_path, CRASHED, crashed._replace(began=AT + 2))
    result = {"content": [{"type": "text", "text": "sent"}], "isError": False}
    sent = finished("send", outcome="ok", arguments={"to": "joe@example.com"}, result=result)
    _keep(tmp_path, SENT, sent._replace(began=AT + 3))
    yield tmp_path
    structlog.reset_defaults()


def _keep(folder: Path, id: str, call: Finished, key: str = KEY) -> None:
    where = Folder(
        folder / "recordings",
        max_recordings=100,
        max_bytes=1 << 20,
        max_age_s=1e9,
        clock=lambda: AT,
    )
    where.prepare()
    data = Vault(KeyRing([key.encode()])).seal(gatherer().gather(call, id))
    assert where.keep([Sealed(id, call.tool, call.began, data)]) == ([id], None)


def _file(folder: Path, id: str) -> Path:
    (path,) = (folder / "recordings").glob(f"*{id}*")
    return path


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(add_all_commands(), arguments, env={"COLUMNS": "140"})


def _replayed(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = _run("replay", *arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, {each["id"]: each for each in json.loads(result.stdout)}


# -- recordings ---------------------------------------------------------------


def test_the_list_shows_who_called_what_and_how_it_ended(folder: Path) -> None:
    result = _run("recordings", "list")

    assert result.exit_code == Exit.OK
    rows = [line.split() for line in result.output.splitlines() if line[:2] == " 0"]
    assert [(row[0], *row[3:]) for row in rows] == [
        (FAILED, "divide", "tool_error", "ada"),
        (DENIED, "divide", "protocol_error", "bob"),
        (CRASHED, "crash", "internal_error", "ada"),
        (SENT, "send", "ok", "ada"),
    ]
    assert "4 recording(s)" in result.output


def test_the_list_is_there_for_programs_and_of_one_tool(folder: Path) -> None:
    found = json.loads(_run("recordings", "list", "--json", "--tool", "divide").stdout)

    assert [each["id"] for each in found] == [FAILED, DENIED]
    assert found[0]["caller"] == {
        "issuer": "https://login.example.com",
        "subject": "ada",
        "tenant": "acme",
    }
    assert "arguments" not in found[0]


def test_one_is_shown_by_its_id_or_how_that_begins(folder: Path) -> None:
    whole = json.loads(_run("recordings", "show", FAILED).stdout)
    short = json.loads(_run("recordings", "show", CRASHED[:10]).stdout)

    assert whole["request"]["arguments"] == {"a": 1, "b": 0}
    assert short["id"] == CRASHED


def test_what_a_terminal_would_obey_is_shown_as_escapes(folder: Path) -> None:
    _keep(folder, "ee" * 8, finished(arguments={"a": "\x1b[2J\u202e\u009b\u00e9"}))

    shown = _run("recordings", "show", "ee" * 8).stdout

    assert r"\u001b[2J\u202e\u009b" in shown
    assert "\u00e9" in shown
    assert json.loads(shown)["request"]["arguments"] == {"a": "\x1b[2J\u202e\u009b\u00e9"}


def test_an_export_is_a_new_plain_file_for_this_user_and_says_what_is_in_it(folder: Path) -> None:
    result = _run("recordings", "export", SENT, "--output", "sent.json")
    path = folder / "sent.json"

    assert result.exit_code == Exit.OK
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["request"]["tool"] == "send"
    assert "not encrypted" in result.stderr
    assert "found in: arguments" in result.stderr
    again = _run("recordings", "export", SENT, "--output", "sent.json")
    assert again.exit_code == Exit.RECORDING
    assert "File exists" in again.stderr


def test_an_export_is_replayed_without_any_key(folder: Path) -> None:
    _run("recordings", "export", FAILED)
    (folder / "config.toml").unlink()

    code, replayed = _replayed(f"{FAILED}.json")

    assert code == Exit.OK
    assert replayed[FAILED]["verdict"] == "same"


# -- replay -------------------------------------------------------------------


def test_all_are_replayed_and_judged(folder: Path) -> None:
    code, replayed = _replayed("--all")

    assert code == Exit.PROBLEMS
    verdicts = {id: each["verdict"] for id, each in replayed.items()}
    assert verdicts == {
        FAILED: "same",
        DENIED: "newly allowed",
        CRASHED: "same",
        SENT: "skipped",
    }
    assert "KeyError: 'key'" in replayed[CRASHED]["notes"][-1]
    assert "all.py" in replayed[CRASHED]["notes"][-1]
    assert "masked input" in replayed[SENT]["notes"]


def test_the_table_shows_the_same_and_the_difference(folder: Path) -> None:
    other = TOOLS.replace('raise ToolError("b must not be 0")', 'return {"quotient": 0.0}')
    (folder / "candidate").mkdir()
    (folder / "candidate" / "all.py").write_text(other)

    result = _run("replay", FAILED, "--tools", "candidate")

    assert result.exit_code == Exit.PROBLEMS
    row = next(line for line in result.output.splitlines() if line.startswith(f" {FAILED}"))
    assert row.split()[1:5] == ["divide", "tool_error", "ok", "changed"]
    assert '+    "quotient": 0.0' in result.output
    assert "1 replayed: 1 changed" in result.output


def test_rules_of_a_file_stand_in_for_the_configured_ones(folder: Path) -> None:
    (folder / "rules.toml").write_text(
        '[[policies]]\ntools = ["divide"]\nrequires = { scopes = ["all"] }\n'
    )

    code, replayed = _replayed(FAILED, CRASHED, "--policy", "rules.toml")

    assert code == Exit.PROBLEMS
    assert {each["verdict"] for each in replayed.values()} == {"newly refused"}


def test_hours_are_those_of_the_call_unless_now_is_said(folder: Path) -> None:
    (folder / "rules.toml").write_text(
        '[[policies]]\ntools = ["*"]\n'
        'conditions = { time = "11:59-12:01", days = ["tue"], timezone = "UTC" }\n'
    )

    then, _ = _replayed(FAILED, "--policy", "rules.toml")

    assert then == Exit.OK  # Tuesday, the 28th of July 2026, at noon


def test_a_member_that_may_differ_can_be_named(folder: Path) -> None:
    result = {"content": [], "structuredContent": {"quotient": 3.0}, "isError": False}
    call = finished(outcome="ok", arguments={"a": 1, "b": 2}, result=result)
    _keep(folder, "ee" * 8, call)

    assert _replayed("ee" * 8)[0] == Exit.PROBLEMS
    assert _replayed("ee" * 8, "--ignore", "quotient")[0] == Exit.OK


# -- refusals -----------------------------------------------------------------


def _alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@rows(
    "arguments, code, said",
    ("nothing named", ["replay"], Exit.USAGE, "name recordings by file or id"),
    ("all and one", ["replay", "--all", FAILED], Exit.USAGE, "name recordings"),
    ("no such id", ["replay", "00000000000000ff"], Exit.RECORDING, "no recording with this id"),
    ("too short", ["replay", "000"], Exit.RECORDING, "no recording with this id"),
    ("of several", ["replay", "000000"], Exit.RECORDING, "recordings have ids that begin so"),
    ("no such file", ["replay", "./x.json"], Exit.RECORDING, "cannot be read: No such file"),
    ("another file", ["replay", "config.toml"], Exit.RECORDING, "it is no recording"),
    ("a device", ["replay", "/dev/zero"], Exit.RECORDING, "no regular file"),
    ("no such tools", ["replay", FAILED, "--tools", "x"], Exit.TOOLS, "x"),
    ("no such rules", ["replay", FAILED, "--policy", "x"], Exit.CONFIGURATION, "cannot be read"),
    (
        "a configuration for rules",
        ["replay", FAILED, "--policy", "config.toml"],
        Exit.CONFIGURATION,
        "it has auth, recording, secrets. For other settings use --config",
    ),
    ("no such id to show", ["recordings", "show", "ffff"], Exit.RECORDING, "with this id"),
    ("nowhere to export to", ["recordings", "export", FAILED, "-o", "x/y"], Exit.RECORDING, "x/y"),
)
def test_a_mistake_is_said_and_nothing_runs(
    arguments: list[str], code: Exit, said: str, folder: Path
) -> None:
    result = _run(*arguments)

    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


@rows(
    "text, said",
    ("no TOML", "policies = [", "not valid TOML"),
    ("an unknown key", '[[policies]]\ntool = ["*"]\n', "tool"),
    ("an unknown clearance", '[[policies]]\ntools = ["*"]\nrequires = { clearance = "x" }\n', "x"),
    ("no rules", "", "it has none"),
)
def test_rules_that_cannot_be_used_are_refused(text: str, said: str, folder: Path) -> None:
    (folder / "rules.toml").write_text(text)

    result = _run("replay", FAILED, "--policy", "rules.toml")

    assert result.exit_code == Exit.CONFIGURATION
    assert said in result.output


def test_a_recording_that_was_altered_is_refused_before_anything_runs(folder: Path) -> None:
    _alter(_file(folder, FAILED))

    for arguments in (["replay", "--all"], ["replay", FAILED], ["recordings", "show", FAILED]):
        result = _run(*arguments)
        assert result.exit_code == Exit.RECORDING
        assert "altered or cut short" in " ".join(result.output.split())
    listed = _run("recordings", "list")
    assert listed.exit_code == Exit.RECORDING
    assert "3 recording(s)" in listed.output


def test_a_recording_under_the_name_of_another_is_refused(folder: Path) -> None:
    _file(folder, FAILED).write_bytes(_file(folder, CRASHED).read_bytes())

    result = _run("recordings", "show", FAILED)

    assert result.exit_code == Exit.RECORDING
    assert "another recording than its name says" in " ".join(result.output.split())


def test_other_keys_open_nothing_and_an_added_key_does_no_harm(folder: Path) -> None:
    config = folder / "config.toml"
    config.write_text(CONFIG.format(key=OTHER))
    foreign = _run("recordings", "show", FAILED)
    config.write_text(CONFIG.format(key=f'{OTHER}", "{KEY}'))
    rotated = _run("recordings", "show", FAILED)

    assert foreign.exit_code == Exit.RECORDING
    assert "is of a server with other keys" in " ".join(foreign.output.split())
    assert rotated.exit_code == Exit.OK


def test_an_encrypted_file_without_a_key_is_refused(folder: Path) -> None:
    (folder / "config.toml").unlink()

    result = _run("replay", str(_file(folder, FAILED)))

    assert result.exit_code == Exit.RECORDING
    assert "no [secrets] keys" in " ".join(result.output.split())


def test_a_plain_file_of_a_newer_release_is_refused(folder: Path) -> None:
    _run("recordings", "export", FAILED, "-o", "new.json")
    path = folder / "new.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))

    result = _run("replay", "new.json")

    assert result.exit_code == Exit.RECORDING
    assert "made by a newer release (format 2; this one reads 1)" in " ".join(result.output.split())


def test_without_a_directory_there_is_nothing_to_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = _run("recordings", "list")

    assert result.exit_code == Exit.RECORDING
    assert "[recording] directory is not configured" in " ".join(result.output.split())


# -- the start ----------------------------------------------------------------


@rows(
    "recording, keys, said",
    ("a file in its place", {"directory": "config.toml"}, True, "File exists"),
    ("a directory that cannot be made", {"directory": "/proc/x"}, True, "/proc/x"),
    ("no key", {"directory": "recordings"}, False, "needs [secrets] keys"),
    ("recording to nowhere", {"record": "all"}, True, "needs a directory"),
    ("secrets unmasked", {"directory": "recordings", "redact": ["email"]}, True, '"secret"'),
)
@pytest.mark.parametrize("command", ["serve", "stdio"])
def test_a_server_that_could_not_record_does_not_start(
    command: str, recording: dict[str, Any], keys: bool, said: str, folder: Path
) -> None:
    tables = [f"[secrets]\nkeys = {json.dumps([KEY] if keys else [])}", "[recording]"]
    tables += [f"{name} = {json.dumps(value)}" for name, value in recording.items()]
    (folder / "config.toml").write_text("\n".join(tables))

    ports = ["--port", "0"] if command == "serve" else []
    done = subprocess.run(
        [sys.executable, "-m", "app", command, *ports],
        env=clean_environment({"PYTHONPATH": str(ROOT)}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == Exit.CONFIGURATION
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_stops_the_start(folder: Path) -> None:
    (folder / "recordings").chmod(0o500)

    result = _run("serve", "--port", "0")

    assert result.exit_code == Exit.CONFIGURATION
    assert "Permission denied" in result.output
