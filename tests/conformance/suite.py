"""Runs the official conformance suite (a Node.js program) and reads what it found."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import nodejs

HERE: Final = Path(__file__).resolve().parent
PROGRAM: Final = Path("@modelcontextprotocol", "conformance", "dist", "index.js")
RUN_S: Final = 120.0

ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
# server-<scenario>-<instant>; only the instant tells where a scenario's name ends.
FOLDER: Final = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d{2}-\d{2}T[0-9-]+Z")


@dataclass(frozen=True, slots=True, order=True)
class Check:
    """One thing that the suite looked at.

    Attributes:
        status: SUCCESS, INFO, WARNING, FAILURE or SKIPPED.
        message: What was wrong; empty where nothing was.
    """

    scenario: str
    id: str
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one run: the exit code, the text for people, and every check."""

    exit_code: int
    text: str
    checks: tuple[Check, ...]

    @property
    def scenarios(self) -> frozenset[str]:
        """Names of the scenarios that were run."""
        return frozenset(check.scenario for check in self.checks)

    def having(self, *statuses: str) -> list[Check]:
        """The checks of these statuses, in order of scenario and id."""
        return sorted(check for check in self.checks if check.status in statuses)

    def summary(self) -> str:
        """What was not a success, one line each, and the suite's own verdict."""
        lines = [
            f"{check.status:8} {check.scenario}:{check.id}  {check.message}"
            for check in self.having("FAILURE", "WARNING", "SKIPPED")
        ]
        _, _, verdict = self.text.rpartition("=== SUMMARY ===")
        return "\n".join([*lines, verdict.strip(), f"exit code {self.exit_code}"])


def run(url: str, output: Path, *, revision: str) -> Report:
    """Run every server scenario of a revision against `url`; install the suite if it is missing.

    Args:
        url: The MCP endpoint, on a loopback address.
        output: An empty folder for what the suite writes.
        revision: A protocol revision, such as 2026-07-28.
    """
    suite = nodejs.install(HERE) / PROGRAM
    done = subprocess.run(
        [
            *(nodejs.NODE, suite, "server", "--url", url),
            *("--suite", "all", "--spec-version", revision),
            *("--expected-failures", HERE / f"expected-failures-{revision}.yml"),
            *("--output-dir", output),
        ],
        env=nodejs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=RUN_S,
        check=False,
    )
    return Report(
        exit_code=done.returncode,
        text=ANSI.sub("", done.stdout),
        checks=tuple(_read_checks(output)),
    )


def _read_checks(output: Path) -> list[Check]:
    checks = []
    for path in sorted(output.glob("*/checks.json")):
        name = FOLDER.fullmatch(path.parent.name)
        assert name is not None, f"the suite names its results differently now: {path.parent.name}"
        for entry in json.loads(path.read_text("utf-8")):
            message = entry.get("errorMessage") or ""
            checks.append(Check(name["scenario"], entry["id"], entry["status"], message))
    return checks
