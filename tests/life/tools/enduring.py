"""Tools that are under way when the server ends."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

from pydantic import BaseModel

from app import Context, tool

from ._files import note


@tool
def whoami() -> int:
    """The process that serves."""
    return os.getpid()


@tool(timeout_s=60)
async def wait(path: str, release: str) -> str:
    """Wait until the file `release` is there."""
    note(path, "started")
    while not Path(release).exists():  # noqa: ASYNC110, ASYNC240  # all that a test can touch
        await asyncio.sleep(0.01)
    return "released"


class Where(BaseModel):
    """A form."""

    city: str


@tool(asks=["elicitation"], timeout_s=60)
async def ask(ctx: Context, path: str) -> str:
    """Ask the user and wait."""
    note(path, "started")
    return str(await ctx.elicit("where", "Where to?", Where))


@tool(timeout_s=60)
async def block(path: str) -> None:
    """Compute in the event loop for ever."""
    note(path, "started")
    while True:
        time.monotonic()


@tool
def orphan() -> int:
    """Leave a process behind that soon ends, and whose parent has ended."""
    command = "import subprocess; print(subprocess.Popen(['sleep', '0.2']).pid)"
    done = subprocess.run(
        ["python3", "-c", command], capture_output=True, text=True, check=True, timeout=10
    )
    return int(done.stdout)
