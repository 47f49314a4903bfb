"""One exit code per kind of failure, each with a sentence that says what to do."""

import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from app.cli.exits import Exit
from tests.support.server import ROOT, clean_environment, toml

TOOLS: Final = Path(__file__).parent / "tools"
START_S: Final = 20.0


def serve(
    folder: Path,
    config: Mapping[str, Any] | str | None = None,
    *args: str,
    **how: Any,
) -> subprocess.CompletedProcess[str]:
    """Start a server that is going to fail, and wait for its end."""
    file = folder / "config.toml"
    file.write_text(config if isinstance(config, str) else toml(config or {}), "utf-8")
    options = ["--tools", str(TOOLS), "--port", "0", "--log-format", "json", *args]
    return subprocess.run(
        [sys.executable, "-m", "app", "serve", "--config", str(file), *options],
        cwd=ROOT,
        env=clean_environment({"TERM": "dumb"}),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        **how,
    )


@pytest.fixture
def taken() -> Iterator[str]:
    """A port where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def few_files() -> None:
    """A process that can open next to nothing."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))


CASES: Final[dict[str, tuple[Any, tuple[str, ...], Callable[[], None] | None, Exit, str]]] = {
    "an unknown option": ({}, ("--colour",), None, Exit.USAGE, "No such option"),
    "no TOML": ("[server", (), None, Exit.CONFIGURATION, "config.toml"),
    "an unknown key": ({"server": {"prot": 1}}, (), None, Exit.CONFIGURATION, 'mean "port"'),
    "a value out of range": (
        {"server": {"drain_s": -1}},
        (),
        None,
        Exit.CONFIGURATION,
        "server.drain_s",
    ),
    "no file of keys": (
        {"auth": {"api_keys_file": "/nowhere/keys.toml"}},
        (),
        None,
        Exit.CONFIGURATION,
        "/nowhere/keys.toml",
    ),
    "open to all beyond loopback": (
        {"server": {"host": "0.0.0.0"}},  # noqa: S104  # it is what is refused
        (),
        None,
        Exit.CONFIGURATION,
        "allow_unauthenticated",
    ),
    "workers without keys": ({}, ("--workers", "2"), None, Exit.CONFIGURATION, "[secrets] keys"),
    "no tools folder": ({}, ("--tools", "nowhere"), None, Exit.TOOLS, "nowhere does not exist"),
    "an address of another machine": (
        {"auth": {"allow_unauthenticated": True}},
        ("--host", "203.0.113.1"),
        None,
        Exit.BIND,
        "cannot listen on 203.0.113.1:0",
    ),
    "no event loop": ({}, (), few_files, Exit.STARTUP, "Too many open files"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_server_that_cannot_start_says_why_and_has_its_code(tmp_path: Path, case: str) -> None:
    config, args, before, code, said = CASES[case]
    done = serve(tmp_path, config, *args, preexec_fn=before)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert done.stdout == ""
    if code is not Exit.STARTUP:
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) < 8


def test_an_address_in_use_has_its_code(tmp_path: Path, taken: str) -> None:
    done = serve(tmp_path, {}, "--port", taken)
    assert done.returncode == Exit.BIND
    assert f"cannot listen on 127.0.0.1:{taken}: Address already in use" in done.stderr


def test_tools_that_cannot_be_loaded_do_not_keep_the_others_from_being_served(
    tmp_path: Path,
) -> None:
    """So there is no code for them: `check` is there to find them before."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "broken.py").write_text("from nowhere import nothing\n", "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--tools", str(tmp_path / "tools"), "--port", "0"],
        cwd=ROOT,
        env=clean_environment({"MCP__LOGGING__FORMAT": "json"}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process, process.stderr as lines:
        assert any('"event":"listening"' in line for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == Exit.OK
