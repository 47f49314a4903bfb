"""``explain``: each way to name a caller, each thing that can be lacking, and mistakes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from app.auth.api_keys import hash_key, make_key
from app.cli.exits import Exit
from app.cli.main import add_all_commands
from tests.support.cases import rows

TOOLS = '''
from app import tool

@tool
async def convert(amount: float = 5000.0) -> str:
    """Convert."""
    return "done"

@tool(scopes=["admin"], annotations={"risk_level": "high"})
async def wipe() -> str:
    """Wipe."""
    return "done"

@tool
async def other() -> str:
    """Named by no rule."""
    return "done"
'''
RULES = """
[[policies]]
name = "money"
tools = ["conv*"]
requires = { scopes = ["finance:read"], roles = ["accountant", "controller"], clearance = "high" }
arguments = { amount = { maximum = 1000 } }
required_approvals = ["director"]

[policies.conditions]
time = "09:00-17:00"
days = ["mon-fri"]
timezone = "Europe/Berlin"
networks = ["10.0.0.0/8"]

[[policies]]
annotations = { risk_level = "high" }

[auth.scope_hierarchy]
"finance:all" = ["finance:read"]
"""
ALICE: dict[str, Any] = {
    "sub": "alice",
    "scope": "finance:all",
    "roles": ["controller"],
    "clearance": "high",
    "approvals": ["director"],
}
NOON = "2026-07-01T12:00+02:00"
GOOD = ("--at", NOON, "--from", "10.1.2.3", "--args", '{"amount": 10}')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with three tools and two rules."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "all.py").write_text(TOOLS)
    (tmp_path / "config.toml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    structlog.reset_defaults()


def _run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(add_all_commands(), ["explain", *arguments], input=stdin)


def _explained(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    result = _run(*arguments, "--json", stdin=stdin)
    found: dict[str, Any] = json.loads(result.stdout)
    assert (result.exit_code == Exit.OK) is found["callable"]
    return found


@rows(
    "claims, more, visible, callable_, lacking",
    ("everything is there", ALICE, GOOD, True, True, []),
    ("only scopes lack", {**ALICE, "scope": ""}, GOOD, True, False, ["scopes"]),
    ("a role lacks", {**ALICE, "roles": []}, GOOD, False, False, ["roles"]),
    ("a clearance lacks", {**ALICE, "clearance": "low"}, GOOD, False, False, ["clearance"]),
    ("an approval lacks", {**ALICE, "approvals": []}, GOOD, False, False, ["approvals"]),
    ("it is too late", ALICE, ("--at", "2026-07-01T18:00+02:00"), False, False, ["time"]),
    ("it is a Sunday", ALICE, ("--at", "2026-07-05T12:00+02:00"), False, False, ["time"]),
    ("it comes from elsewhere", ALICE, ("--at", NOON, "--from", "192.0.2.1"), True, False,
     ["networks"]),
    ("it asks for too much", ALICE, ("--at", NOON, "--args", '{"amount": 2000}'), True, False,
     ["arguments"]),
    ("its default is too much", ALICE, ("--at", NOON, "--args", "{}"), True, False, ["arguments"]),
)  # fmt: skip
def test_what_lacks_is_named(
    folder: Path,
    claims: dict[str, Any],
    more: tuple[str, ...],
    *,
    visible: bool,
    callable_: bool,
    lacking: list[str],
) -> None:
    found = _explained("--tool", "convert", "--claims", json.dumps(claims), *more)

    assert (found["visible"], found["callable"]) == (visible, callable_)
    assert found["decided_by"] == "rule 1 (money)"
    unmet = [line["what"].rsplit(": ", 1)[1] for line in found["demands"] if line["met"] is False]
    assert unmet == lacking


def test_what_was_not_said_is_left_open(folder: Path) -> None:
    found = _explained("--tool", "convert", "--claims", json.dumps(ALICE), "--at", NOON)

    assert found["verdict"].startswith("listed and callable, subject to")
    assert [line["what"] for line in found["demands"] if line["met"] is None] == [
        "rule 1 (money): networks",
        "rule 1 (money): arguments",
    ]


@rows(
    "tool, claims, decided_by, visible",
    ("the author demands as well", "wipe", {"sub": "a", "scope": "admin"}, "rule 2", True),
    ("no rule names it", "other", {"sub": "a"}, "default (deny)", False),
)
def test_who_decided_is_named(
    folder: Path, tool: str, claims: dict[str, Any], decided_by: str, visible: bool
) -> None:
    found = _explained("--tool", tool, "--claims", json.dumps(claims))

    assert (found["decided_by"], found["visible"]) == (decided_by, visible)


@pytest.mark.parametrize("way", ["--key", "--token"])
def test_a_key_is_looked_up(folder: Path, way: str) -> None:
    key = make_key("bot")
    entry = f'[[auth.api_keys]]\nid = "bot"\nhash = "{hash_key(key)}"\nscopes = ["admin"]\n'
    (folder / "config.toml").write_text(RULES + entry)

    found = _explained("--tool", "wipe", way, "-", stdin=f"{key}\n")

    assert found["caller"] == {"issuer": "api-key", "subject": "bot"}
    assert found["callable"] is True


def test_nobody_in_particular_is_refused_where_a_credential_is_needed(folder: Path) -> None:
    entry = f'[[auth.api_keys]]\nid = "bot"\nhash = "sha256:{"0" * 64}"\n'
    (folder / "config.toml").write_text(RULES + entry)

    result = _run("--tool", "wipe")

    assert result.exit_code == Exit.PROBLEMS
    assert "refused with 401" in result.stderr


def test_nobody_in_particular_is_a_caller_too(folder: Path) -> None:
    result = _run("--tool", "wipe")

    assert "for a caller without a credential" in result.stdout
    assert "rule 1 (money): is about other tools" in result.stdout
    assert "rule 2: decides" in result.stdout
    assert "Verdict: listed, but a call is refused with a challenge" in result.stdout


@rows(
    "arguments, code, said",
    ("a tool that there is not", ("--tool", "wype"), Exit.PROBLEMS, 'did you mean "wipe"'),
    ("two callers", ("--tool", "wipe", "--key", "a", "--claims", "{}"), Exit.USAGE, "use one"),
    ("claims that are none", ("--tool", "wipe", "--claims", "[]"), Exit.USAGE, "JSON object"),
    ("claims of nobody", ("--tool", "wipe", "--claims", "{}"), Exit.USAGE, "(sub)"),
    ("no instant", ("--tool", "wipe", "--at", "noon"), Exit.USAGE, "2026-12-24T18:00+01:00"),
    ("arguments that do not fit", ("--tool", "convert", "--args", '{"amount": "x"}'), Exit.PROBLEMS,
     "schema"),
    ("a key where none is configured", ("--tool", "wipe", "--key", "a"), Exit.PROBLEMS,
     "api_keys"),
    ("no tool", (), Exit.USAGE, ""),
)  # fmt: skip
def test_a_mistake_is_explained(
    folder: Path, arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    result = _run(*arguments)

    assert result.exit_code == code
    assert said in " ".join(result.stderr.split())


def test_a_refused_credential_says_why_and_not_what(folder: Path) -> None:
    entry = f'[[auth.api_keys]]\nid = "bot"\nhash = "sha256:{"0" * 64}"\n'
    (folder / "config.toml").write_text(RULES + entry)
    key = make_key("bot")

    result = _run("--tool", "wipe", "--key", key)

    assert result.exit_code == Exit.PROBLEMS
    assert "refused with 401" in result.stderr
    assert key[-20:] not in result.stderr


@rows(
    "rule, said",
    ("about no tool", 'tools = ["nothing.*"]', "rule 1 names no tool"),
    ("about an argument that there is not",
     'tools = ["convert"]\narguments = { amuont = { maximum = 1 } }',
     "rule 1: none of its tools has the argument 'amuont'"),
)  # fmt: skip
def test_check_tells_of_rules_that_close_nothing(folder: Path, rule: str, said: str) -> None:
    (folder / "config.toml").write_text(f"[[policies]]\n{rule}\n")
    done = subprocess.run(
        [sys.executable, "-m", "app", "check"],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == Exit.OK
    assert said in " ".join(done.stderr.split())
