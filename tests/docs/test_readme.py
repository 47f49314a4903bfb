"""The README's shell session, run as printed against a server."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks, squeezed
from tests.support.server import ServerProcess, clean_environment
from tests.support.waiting import eventually

PAGE = ROOT / "README.md"
MARK = "<!-- session -->"
_VERSION = re.compile(r'"version":"[^"]*"')
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+(Z|[+-]\d{2}:?\d{2})")


def _steps() -> list[tuple[Block, str]]:
    """The blocks of the session, each with the output that is printed after it."""
    found: list[tuple[Block, str]] = []
    for block in blocks(PAGE, "bash", "text"):
        if block.before == MARK:
            found.append((block, ""))
        elif block.language == "text":
            assert found and not found[-1][1], f"output of nothing: line {block.line}"
            found[-1] = (found[-1][0], block.text)
    return found


def _normal(text: str) -> str:
    """Without white space, versions and dates, which examples cannot foresee."""
    return squeezed(_DATE.sub("DATE", _VERSION.sub('"version":""', squeezed(text))))


def _pattern(expected: str) -> re.Pattern[str]:
    """What an example promises; `...` stands for anything."""
    parts = (re.escape(part) for part in _normal(expected).split("..."))
    return re.compile(".*?".join(parts) + r"\Z")


class Shell:
    """A bash that reads a session as a terminal would give it, with job control."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-m"],
            cwd=folder,
            env=clean_environment({"no_proxy": "*"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def run(self, script: str, number: int, expected: str) -> str:
        """Run a block and return what was printed from it on until it is what is expected."""
        assert self._process.stdin is not None
        start = len(self._lines)
        end = f"end of step {number}"
        self._process.stdin.write(f"{script}\necho; echo {end!r}\n")
        self._process.stdin.flush()
        pattern = _pattern(expected)

        def printed() -> str:
            return "".join(line for line in self._lines[start:] if line != f"{end}\n")

        # A job in the background may print after the mark.
        with contextlib.suppress(AssertionError):
            eventually(
                lambda: f"{end}\n" in self._lines[start:] and pattern.match(_normal(printed())),
                f"the output of step {number}",
            )
        return printed().strip()

    def close(self) -> None:
        """End the shell and what it left running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join(5)
            assert self._process.stdout is not None
            self._process.stdout.close()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the session needs of a clone of the repository."""
    shutil.copytree(
        ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "config.toml", tmp_path)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    program = binaries / "mcp-tool-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app "$@"\n', "utf-8")
    program.chmod(0o755)
    (binaries / "python").symlink_to(sys.executable)
    return tmp_path


@pytest.fixture
def running(clone: Path) -> Iterator[ServerProcess]:
    config = (clone / "config.toml").read_text("utf-8")
    with ServerProcess(clone / "tools", config) as server:
        yield server


@pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("curl")), reason="needs bash and curl"
)
def test_the_session_works_as_printed(clone: Path, running: ServerProcess) -> None:
    shell = Shell(clone)
    try:
        shell.run(f"export PYTHONPATH={ROOT}", 0, "")
        for number, (block, expected) in enumerate(_steps(), start=1):
            script = block.text.replace("http://127.0.0.1:8000/mcp", running.url)
            assert running.url in script or "curl" not in script

            printed = shell.run(script, number, expected)

            as_shown = _pattern(expected).match(_normal(printed)) is not None
            assert as_shown, f"README.md:{block.line}: printed\n{printed}\nnot\n{expected}"
    finally:
        shell.close()


def test_the_session_shows_what_a_reader_looks_for() -> None:
    session = "\n".join(block.text for block, _ in _steps())

    for part in (
        "server/discover",
        "tools/list",
        "tools/call",
        "Mcp-Param-Region",
        "export_report",
        "subscriptions/listen",
        "cat > tools/",
    ):
        assert part in session, part


def test_the_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        target
        for block in blocks(PAGE, "bash")
        if block.before != MARK
        for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)
    }

    assert named
    assert named <= targets
