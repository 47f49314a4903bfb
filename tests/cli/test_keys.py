"""``keys create`` and ``keys hash``."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.auth.api_keys import hash_key, is_key, make_key, read_api_keys
from app.cli.exits import Exit
from app.cli.main import add_all_commands
from app.settings import Settings
from tests.support.cases import rows


def _run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(add_all_commands(), ["keys", *arguments], input=text)


def test_a_key_is_shown_once_with_the_table_for_the_configuration() -> None:
    result = _run(
        *("create", "--id", "ci-bot", "--scope", "a:read", "--scope", "b", "--role", "ops"),
        *("--tenant", 'Ä"\\\n\x7f', "--clearance", "high", "--approval", "cfo"),
        *("--expires-in-days", "30"),
    )
    assert result.exit_code == 0, result.output
    key, _, table = result.stdout.partition("\n")
    assert is_key(key.encode())
    assert key not in table + result.stderr
    settings = Settings.model_validate(tomllib.loads(table))
    (entry,) = settings.auth.api_keys
    assert (entry.id, entry.hash) == ("ci-bot", hash_key(key))
    assert (entry.scopes, entry.roles, entry.approvals) == (("a:read", "b"), ("ops",), ("cfo",))
    assert (entry.tenant, entry.clearance) == ('Ä"\\\n\x7f', "high")
    assert entry.expires_at is not None and entry.expires_at.utcoffset() is not None


def test_a_plain_key_has_a_plain_table() -> None:
    result = _run("create", "--id", "a")
    (entry,) = tomllib.loads(result.stdout.partition("\n")[2])["auth"]["api_keys"]
    assert set(entry) == {"id", "hash"}


def test_a_file_gets_the_table_without_the_key_and_nobody_else_may_write_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("# ours")
    file.chmod(0o644)
    shown = []
    for name in ("a", "b"):
        result = _run("create", "--id", name, "--scope", "s", "--file", str(file))
        assert result.exit_code == 0, result.output
        shown.append(result.stdout.strip())
        assert str(file) in result.stderr
    assert [key.hash for key in read_api_keys(file)] == [hash_key(key) for key in shown]
    assert stat.S_IMODE(file.stat().st_mode) & 0o022 == 0
    assert file.read_text().startswith("# ours\n")
    assert shown[0] not in file.read_text()


def test_an_id_that_stands_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    _run("create", "--id", "a", "--file", str(file))
    before = file.read_text()
    result = _run("create", "--id", "a", "--file", str(file))
    assert result.exit_code == Exit.USAGE
    assert "already" in result.stderr
    assert (result.stdout, file.read_text()) == ("", before)


@rows(
    "arguments, said",
    ("an id in capitals", ("--id", "CI"), "lower-case"),
    ("a scope with a quote", ("--id", "a", "--scope", 'a"b'), "--scope"),
    ("an empty role", ("--id", "a", "--role", ""), "--role"),
    ("no id", (), "--id"),
    ("a time that has passed", ("--id", "a", "--expires-in-days", "0"), "--expires-in-days"),
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], said: str) -> None:
    result = _run("create", *arguments)
    assert result.exit_code == Exit.USAGE
    assert said in result.stderr.replace("\n", " ")
    assert result.stdout == ""


def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[auth]\n")
    result = _run("create", "--id", "a", "--file", str(file))
    assert result.exit_code == Exit.CONFIGURATION
    assert "only [[api_keys]] tables" in result.stderr
    assert (result.stdout, file.read_text()) == ("", "[auth]\n")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    result = _run("create", "--id", "a", "--file", str(tmp_path / "none" / "keys.toml"))
    assert result.exit_code == Exit.CONFIGURATION
    assert "cannot be written" in result.stderr
    assert result.stdout == ""


def test_a_key_is_hashed_from_standard_input() -> None:
    key = make_key("a")
    assert _run("hash", text=key + "\n").stdout == hash_key(key) + "\n"


@pytest.mark.parametrize("text", ["", "secret\n", hash_key("x") + "\n"])
def test_what_is_no_key_is_not_hashed(text: str) -> None:
    result = _run("hash", text=text)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")


def test_the_working_directory_needs_no_configuration(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert _run("create", "--id", "a").exit_code == 0
    finally:
        os.chdir(before)


def test_a_key_of_an_administrator_goes_into_its_own_section(tmp_path: Path) -> None:
    result = _run("create", "--id", "alice", "--admin")
    settings = Settings.model_validate(tomllib.loads(result.stdout.partition("\n")[2]))
    assert [key.id for key in settings.admin.keys] == ["alice"]
    assert settings.auth.api_keys == ()
    file = tmp_path / "admins.toml"
    filed = _run("create", "--id", "bob", "--admin", "--file", str(file))
    assert "[admin] keys_file" in filed.stderr
    assert [key.id for key in read_api_keys(file)] == ["bob"]
    assert _run("create", "--id", "eve", "--admin", "--scope", "x").exit_code == Exit.USAGE
