"""Shell sessions of the documentation, run as printed."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.docs.markdown import ROOT, Block, blocks, squeezed
from tests.support.server import clean_environment
from tests.support.waiting import eventually

MARK: Final = "<!-- session -->"
STEP_S: Final = 20.0
"""What one step may take; each command of ours costs a second of imports."""

can_run: Final = bool(shutil.which("bash") and shutil.which("curl"))

_VERSION = re.compile(r'"version":"[^"]*"')
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+(Z|[+-]\d{2}:?\d{2})")


def steps(page: Path) -> list[tuple[Block, str]]:
    """The blocks of a page's session, each with the output that is printed after it."""
    found: list[tuple[Block, str]] = []
    for block in blocks(page, "bash", "text"):
        if block.before == MARK:
            found.append((block, ""))
        elif block.language == "text":
            assert found and not found[-1][1], f"output of nothing: {page.name}:{block.line}"
            found[-1] = (found[-1][0], block.text)
    return found


def make_clone(folder: Path) -> Path:
    """What a session needs of a clone of the repository."""
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "config.toml", folder)
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    program = binaries / "mcp-tool-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app "$@"\n', "utf-8")
    program.chmod(0o755)
    (binaries / "python").symlink_to(sys.executable)
    return folder


def run_as_printed(page: Path, clone: Path, at_hand: Callable[[str], str]) -> None:
    """Run a page's session in a clone, and compare each step with what the page prints.

    Args:
        at_hand: The script of a step, for the address that the server has here.

    Raises:
        AssertionError: A step prints something else.
    """
    with Shell(clone) as shell:
        shell.run("true", 0, "...")  # bash complains that it is not at a terminal
        for number, (block, expected) in enumerate(steps(page), start=1):
            printed = shell.run(at_hand(block.text), number, expected)

            as_shown = _pattern(expected).match(_normal(printed)) is not None
            assert as_shown, f"{page.name}:{block.line}: printed\n{printed}\nnot\n{expected}"


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
            env=clean_environment({"no_proxy": "*", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def _type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def run(self, script: str, number: int, expected: str) -> str:
        """Run a block and return what was printed from it on until it is what is expected."""
        start = len(self._lines)
        end = f"end of step {number}"
        self._type(f"{script}\necho; echo {end!r}\n")
        pattern = _pattern(expected)

        def printed() -> str:
            return "".join(line for line in self._lines[start:] if line != f"{end}\n")

        # A job in the background may print after the mark.
        with contextlib.suppress(AssertionError):
            eventually(
                lambda: f"{end}\n" in self._lines[start:] and pattern.match(_normal(printed())),
                f"the output of step {number}",
                STEP_S,
            )
        return printed().strip()

    def close(self) -> None:
        """End the shell and what it left running."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            # Each job has a process group of its own.
            self._type("\nkill $(jobs -p) 2>/dev/null; wait 2>/dev/null\n")
            self._process.stdin.close()
        try:
            self._process.wait(15)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join(5)
            assert self._process.stdout is not None
            self._process.stdout.close()
