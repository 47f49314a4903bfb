"""`mcp-tool-server admin`: the same from a terminal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.admin import KEY_VARIABLE
from app.cli.exits import Exit
from app.cli.main import add_all_commands
from tests.administration.replicas import ADMIN_KEY, KEYS, Fleet
from tests.support.cases import rows

Run = Callable[..., Result]


@pytest.fixture
def run(fleet: Fleet) -> Run:
    """Runs a command against the first replica."""

    def invoke(*args: str, key: str | None = ADMIN_KEY, url: str | None = None) -> Result:
        env = {KEY_VARIABLE: key, "COLUMNS": "200"}
        return CliRunner().invoke(
            add_all_commands(), ["admin", *args, "--url", url or fleet[0].admin], env=env
        )

    return invoke


def test_a_tool_goes_and_comes(run: Run, fleet: Fleet) -> None:
    off = run("disable", "beta")
    assert (off.exit_code, off.stdout.splitlines()[-1]) == (0, "beta: off")
    assert fleet[2].names() == {"alpha", "gamma"}
    assert "beta" in run("tools").stdout
    on = run("enable", "beta")
    assert on.stdout.splitlines()[-1] == "beta: everybody"
    assert "beta" in fleet[1].names()


def test_a_rollout_does_not_switch_on_what_was_switched_off(run: Run, fleet: Fleet) -> None:
    assert run("disable", "beta").exit_code == 0
    for said in (["--percent", "100"], ["--tenant", "acme"], ["--everybody"]):
        assert run("rollout", "beta", *said).exit_code == 0
        assert all("beta" not in replica.names("ada") for replica in fleet.replicas)
    assert run("enable", "beta").exit_code == 0
    assert all("beta" in replica.names("ada") for replica in fleet.replicas)


def test_a_rollout_grows_until_it_is_over(run: Run, fleet: Fleet) -> None:
    first = run("rollout", "beta", "--percent", "0", "--tenant", "acme")
    assert first.stdout.splitlines()[-1] == "beta: 0 % and tenants acme"
    assert "beta" in fleet[1].names("ada") and "beta" not in fleet[1].names("eve")
    assert run("disable", "beta").stdout.splitlines()[-1] == (
        "beta: off (then 0 % and tenants acme)"
    )
    assert run("enable", "beta").exit_code == 0
    assert run("rollout", "beta", "--everybody").exit_code == 0
    assert "beta" in fleet[1].names("eve")


def test_replicas_and_credentials(run: Run, fleet: Fleet) -> None:
    assert run("drain", fleet[1].id).exit_code == 0
    assert fleet[1].client.get("/readyz").status == 503
    assert "draining" in run("status").stdout
    assert run("undrain", fleet[1].id).exit_code == 0
    assert run("revoke", "eve").exit_code == 0
    assert fleet[2].client.ask("tools/list", headers={"X-API-Key": KEYS["eve"]}).status == 401
    assert run("restore", "eve").exit_code == 0
    assert run("reload").exit_code == 0


def test_the_status_for_people_and_for_programs(run: Run, fleet: Fleet) -> None:
    shown = run("status")
    assert shown.exit_code == 0
    for replica in fleet.replicas:
        assert replica.id in shown.stdout
    status: dict[str, Any] = json.loads(run("status", "--json").stdout)
    assert len(status["fleet"]) == 3 and status["agree"]


@rows(
    "args, code, said",
    ("an unknown tool", ["disable", "bet"], Exit.PROBLEMS, 'Did you mean "beta"?'),
    ("an unknown replica", ["drain", "x"], Exit.PROBLEMS, "no such replica"),
    ("an unknown key", ["revoke", "x"], Exit.PROBLEMS, "nothing to revoke"),
    ("an end that is none", ["revoke", "eve", "--expires-at", "soon"], Exit.PROBLEMS, "expires_at"),
    ("nothing said", ["rollout", "beta"], Exit.USAGE, "--percent"),
    ("too much said", ["rollout", "beta", "--everybody", "--percent", "1"], Exit.USAGE,
     "--everybody"),
    ("a share that is none", ["rollout", "beta", "--percent", "101"], Exit.USAGE, "Usage"),
)  # fmt: skip
def test_what_cannot_be_done_is_explained(run: Run, args: list[str], code: Exit, said: str) -> None:
    result = run(*args)
    assert result.exit_code == code, result.output
    assert said in result.output


def test_the_key_comes_from_a_file_or_the_environment_alone(run: Run, tmp_path: Path) -> None:
    none = run("status", key=None)
    assert (none.exit_code, KEY_VARIABLE in none.output) == (Exit.CREDENTIAL, True)
    wrong = run("status", key=KEYS["ada"])
    assert (wrong.exit_code, "not known" in wrong.output) == (Exit.CREDENTIAL, True)
    assert run("status", key="hunter2").exit_code == Exit.CREDENTIAL
    file = tmp_path / "key"
    file.write_text(f"{ADMIN_KEY}\n", "utf-8")
    assert run("status", "--key-file", str(file), key=None).exit_code == Exit.OK
    missing = run("status", "--key-file", str(tmp_path / "none"), key=None)
    assert missing.exit_code == Exit.CREDENTIAL


def test_who_is_not_there_is_named(run: Run, fleet: Fleet) -> None:
    nobody = run("status", url="http://127.0.0.1:9")
    assert (nobody.exit_code, "127.0.0.1:9" in nobody.output) == (Exit.PROBLEMS, True)
    other = run("status", url=fleet[0].url.removesuffix("/mcp"))
    assert (other.exit_code, "no administrative listener" in other.output) == (1, True)
    assert run("status", url="ftp://x").exit_code == Exit.USAGE


def test_a_change_that_not_all_have_applied_is_a_problem(run: Run, fleet: Fleet) -> None:
    fleet[2].state.line.is_cut = fleet[2].state.wire.is_cut = True
    result = run("disable", "beta")
    assert result.exit_code == Exit.PROBLEMS
    assert f"{fleet[2].id}/" in result.output and "has not applied it yet" in result.output
