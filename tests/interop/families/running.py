"""Runs the driver of one family against a server of its own."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.interop.families.families import Run
from tests.interop.families.scenarios import SCENARIOS
from tests.interop.support import NAMES, PAGE_SIZE
from tests.interop.support import TOOLS as SHARED
from tests.support.server import PLENTY, ROOT, ServerProcess, toml

TOOLS: Final = Path(__file__).with_name("tools")
ALL_NAMES: Final = sorted([*NAMES, "greet", "invite"])
CONFIG: Final[Mapping[str, Any]] = {"tools": {"page_size": PAGE_SIZE}}
RUN_S: Final = 240.0


class Outcome(NamedTuple):
    """How one scenario went.

    Attributes:
        ok: None: the client has no means for it.
        detail: Why not; of `connect`, the revision.
    """

    ok: bool | None
    detail: str


def run(run: Run, command: Sequence[str] | None = None) -> dict[str, Outcome]:
    """Put one family through every scenario.

    Args:
        command: Starts its driver, in place of the one in the family's own environment.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interop-")))
        tools = folder / "tools"
        for source in (SHARED, TOOLS):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tools, ignore=ignored, dirs_exist_ok=True)
        job: dict[str, Any] = {"transport": run.transport, "era": run.era, "revision": run.revision}
        job["tools"] = ALL_NAMES
        if run.transport == "http":
            job["url"] = stack.enter_context(ServerProcess(tools, CONFIG)).url
            job["command"] = []
        else:
            config = folder / "config.toml"
            config.write_text(toml({**CONFIG, "limits": PLENTY}), "utf-8")
            job |= {
                "command": [sys.executable, "-m", "app", "stdio"],
                "cwd": str(ROOT),
                "log": str(folder / "server.log"),
                "env": {"PYTHONUNBUFFERED": "1"},
            }
            job["command"] += ["--config", str(config), "--tools", str(tools)]
        return _outcomes(command or run.family.command(), job)


def _outcomes(command: Sequence[str], job: Mapping[str, Any]) -> dict[str, Outcome]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=RUN_S,
        check=False,
    )
    found: dict[str, Outcome] = {}
    for line in done.stdout.splitlines():
        try:
            said = json.loads(line)
            found[said["scenario"]] = Outcome(said["ok"], said["detail"])
        except (ValueError, KeyError, TypeError):
            continue  # a library that prints
    why = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
    if "connect" in found and not found["connect"].ok:
        why = "it did not connect"
    missing = Outcome(ok=False, detail=f"not reached: {why}")
    return {scenario: found.get(scenario, missing) for scenario in SCENARIOS}
