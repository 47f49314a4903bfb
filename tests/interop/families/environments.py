"""An environment for each family, made once from its lock file under `.interop/`."""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import nodejs
from tests.support.server import ROOT

HERE: Final = Path(__file__).parent
CACHE: Final = ROOT / ".interop"
INSTALL_S: Final = 300.0


def python_of(family: str) -> Path:
    """The interpreter of a virtual environment with what `requirements.txt` of a family locks."""
    lock = HERE / family / "requirements.txt"
    folder = CACHE / family
    python = folder / "bin" / "python"

    def make() -> None:
        uv = (sys.executable, "-m", "uv")
        _run(*uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        install = ("pip", "install", "--quiet", "--python", str(python))
        _run(*uv, *install, "--require-hashes", "-r", str(lock))

    _once(folder, [lock], make)
    return python


def packages_of(family: str) -> Path:
    """The folder of Node.js packages that `package-lock.json` of a family locks."""
    folder = CACHE / family
    names = ("package.json", "package-lock.json", ".npmrc")

    def make() -> None:
        folder.mkdir(parents=True)
        for name in names:
            shutil.copy(HERE / family / name, folder)
        nodejs.install(folder)

    _once(folder, [HERE / family / name for name in names], make)
    return folder / "node_modules"


def script_of(family: str) -> Path:
    """The driver of a family in Node.js, beside its packages: they are looked for from there."""
    packages = packages_of(family)
    shutil.copy(HERE / "scenarios.mjs", packages.parent)
    return Path(shutil.copy(HERE / family / "driver.mjs", packages.parent))


def version_in(family: str, package: str) -> str:
    """The version of a package in the lock file of a family."""
    lock = HERE / family / "requirements.txt"
    if lock.exists():
        found = re.search(
            rf"^{re.escape(package)}==([^\s;]+)", lock.read_text("utf-8"), re.MULTILINE
        )
        assert found, f"{lock} has no {package}"
        return found[1]
    packages = json.loads((HERE / family / "package-lock.json").read_text("utf-8"))["packages"]
    return str(packages[f"node_modules/{package}"]["version"])


def _once(folder: Path, locks: Sequence[Path], make: Callable[[], None]) -> None:
    """Make a folder, unless it was made of the same lock files."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in locks)).hexdigest()
    stamp = folder / "made-from"
    with _alone(folder):
        if stamp.exists() and stamp.read_text("utf-8") == digest:
            return
        shutil.rmtree(folder, ignore_errors=True)
        make()
        stamp.write_text(digest, "utf-8")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_S, check=False, cwd=ROOT
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
