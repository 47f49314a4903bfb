"""Runs many commands of the command line in one process: each start costs a second of imports.

`python -m tests.docs.commands` takes a JSON list of argument lists on standard input and writes a
JSON list of what they printed.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from app.cli.main import add_all_commands
from tests.support.server import ROOT, clean_environment


def outputs(commands: Sequence[Sequence[str]], cwd: Path) -> list[str]:
    """What each command prints, standard output and standard error together."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.commands"],
        input=json.dumps(commands),
        cwd=cwd,
        env=clean_environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _main() -> None:
    app, runner = add_all_commands(), CliRunner()
    commands = json.load(sys.stdin)
    json.dump([runner.invoke(app, arguments).output for arguments in commands], sys.stdout)


if __name__ == "__main__":
    _main()
