"""The commands, as somebody at a terminal or in a pipeline sees them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from app.cli.exits import Exit
from app.cli.main import add_all_commands
from tests.support.server import ServerProcess

GOOD = '''
from app import Context, ToolError, tool

@tool
async def shout(text: str, ctx: Context, times: int = 1) -> str:
    """Shout a text."""
    for done in range(times):
        ctx.progress(done + 1, times, "shouting")
    if not text:
        raise ToolError("There is nothing to shout.")
    return text.upper() * times
'''
BROKEN = "from app import tool\n\n@tool\ndef broken(:\n"
NO_SCHEMA = "from app import tool\n\n\n@tool\ndef taker(*values: int) -> int:\n    return 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with an empty tools folder."""
    (tmp_path / "tools").mkdir()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    structlog.reset_defaults()


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / "tools" / f"{name}.py").write_text(text)


def _run(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(add_all_commands(), list(arguments), env=env)


def _problems(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_run("check", "--json", *arguments).stdout)["problems"]
    return found


def test_check_is_content_with_good_tools(folder: Path) -> None:
    _write(folder, good=GOOD)
    result = _run("check")
    assert result.exit_code == Exit.OK
    assert "1 tool(s), 0 error(s), 0 warning(s)" in result.stdout


def test_check_names_file_line_and_reason_and_goes_on(folder: Path) -> None:
    _write(folder, good=GOOD, broken=BROKEN, no_schema=NO_SCHEMA)
    result = _run("check", "--json")
    assert result.exit_code == Exit.PROBLEMS
    report = json.loads(result.stdout)
    assert (report["ok"], report["tools"]) == (False, 1)
    found = {
        (Path(item["file"]).name, item["line"]): item["message"] for item in report["problems"]
    }
    assert "syntax error" in found["broken.py", 4]
    assert "*args" in found["no_schema.py", 4]


def test_check_warns_of_names_that_many_hosts_refuse_and_succeeds(folder: Path) -> None:
    _write(folder, good=GOOD.replace("@tool", '@tool(name="shout.louder")'))
    assert _run("check").exit_code == Exit.OK
    assert [item["severity"] for item in _problems()] == ["warning"]


def test_check_warns_of_an_override_that_names_no_tool(folder: Path) -> None:
    _write(folder, good=GOOD)
    (folder / "config.toml").write_text("[overrides.shuot]\nenabled = false\n")
    (problem,) = _problems()
    assert problem["severity"] == "warning"
    assert 'did you mean "shout"' in problem["message"]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_check_reports_a_folder_that_is_not_there(folder: Path, flags: tuple[str, ...]) -> None:
    result = _run("check", "--tools", "nowhere", *flags)
    assert result.exit_code == Exit.PROBLEMS
    assert "nowhere does not exist" in result.output


def test_tools_lists_what_would_be_served(folder: Path) -> None:
    _write(folder, good=GOOD)
    assert "shout" in _run("tools").stdout
    (tool,) = json.loads(_run("tools", "--json").stdout)
    assert tool["name"] == "shout"
    assert tool["inputSchema"]["required"] == ["text"]


CALLS: dict[str, tuple[str, int, str]] = {
    "a result": ('{"text": "hi", "times": 2}', Exit.OK, "HIHI"),
    "a tool error": ('{"text": ""}', Exit.PROBLEMS, "nothing to shout"),
    "bad arguments": ('{"txet": "hi"}', Exit.PROBLEMS, "missing required text"),
    "no JSON": ("{", Exit.USAGE, "not valid JSON"),
    "no object": ("[]", Exit.USAGE, "JSON object"),
}


@pytest.mark.parametrize(("arguments", "code", "said"), CALLS.values(), ids=CALLS.keys())
def test_call_runs_a_tool_as_a_request_would(
    folder: Path, arguments: str, code: int, said: str
) -> None:
    _write(folder, good=GOOD)
    result = _run("call", "shout", "--args", arguments)
    assert result.exit_code == code
    assert said in result.output


def test_call_prints_the_whole_result_for_programs(folder: Path) -> None:
    _write(folder, good=GOOD)
    result = _run("call", "shout", "--args", '{"text": "hi"}', "--json")
    assert json.loads(result.stdout)["structuredContent"] == "HI"


ASKS = """
from app import Context, tool


@tool(asks=["roots", "elicitation.url"])
async def ask(ctx: Context) -> str:
    \"\"\"Ask.\"\"\"
    return (await ctx.roots())[0].uri
"""


def test_call_of_a_tool_that_asks_says_that_nobody_is_here(folder: Path) -> None:
    _write(folder, asks=ASKS)
    result = _run("call", "ask")
    assert result.exit_code == Exit.PROBLEMS
    assert "ask asks its client (elicitation, roots), and here is nobody to ask" in result.output


def test_call_of_an_unknown_tool_names_those_that_are_served(folder: Path) -> None:
    _write(folder, good=GOOD, broken=BROKEN)
    result = _run("call", "shuot")
    assert result.exit_code == Exit.PROBLEMS
    assert "Served: shout" in result.output
    assert "broken.py:4" in result.output


@pytest.mark.parametrize(
    ("arguments", "env", "code", "said"),
    [
        (("--host", "::"), {}, Exit.CONFIGURATION, "[auth] allow_unauthenticated"),
        (("--port", "99999"), {}, Exit.CONFIGURATION, "server.port"),
        (("--log-format", "xml"), {}, Exit.CONFIGURATION, "logging.format"),
        ((), {"MCP__SERVER__PROT": "1"}, Exit.CONFIGURATION, 'did you mean "port"'),
        (("--config", "nowhere.toml"), {}, Exit.CONFIGURATION, "nowhere.toml"),
        (("--tools", "nowhere"), {}, Exit.TOOLS, "nowhere"),
        (("--workers", "2"), {}, Exit.CONFIGURATION, "[secrets] keys"),
        (
            ("--workers", "2"),
            {"MCP__SECRETS__KEYS": "k" * 32},
            Exit.CONFIGURATION,
            "limits multiply",
        ),
        ((), {"MCP__SERVER__FLEET": "true"}, Exit.CONFIGURATION, "[server] fleet"),
        (
            (),
            {"MCP__STATE__URL": "redis://x", "MCP__STATE__PASSWORD_FILE": "nowhere"},
            Exit.CONFIGURATION,
            "a file of [state] cannot be used",
        ),
        (
            ("--host", "203.0.113.1"),
            {"MCP__AUTH__ALLOW_UNAUTHENTICATED": "true"},
            Exit.BIND,
            "listen",
        ),
    ],
)
def test_serve_refuses_to_start_with_the_reason(
    folder: Path, arguments: tuple[str, ...], env: dict[str, str], code: int, said: str
) -> None:
    result = _run("serve", *arguments, env=env)
    assert result.exit_code == code
    assert said in result.output


def test_health_tells_a_server_that_is_ready_from_one_that_is_not(server: ServerProcess) -> None:
    assert _run("health", "--url", server.url).exit_code == Exit.OK
    assert _run("health", "--url", "http://127.0.0.1:1").exit_code == Exit.PROBLEMS
    assert _run("health", "--url", "nonsense").exit_code == Exit.USAGE


def test_the_version_is_that_of_the_package() -> None:
    assert _run("--version").stdout.startswith("mcp-tool-server 0.")
