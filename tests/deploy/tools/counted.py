"""Tools that tell a file how often and where they ran."""

# ruff: noqa: ASYNC110 - polls a file, the only thing a test can touch from outside

import asyncio
import os
from pathlib import Path
from typing import Annotated

from app import Context, Header, tool

STEP_S = 0.01


def is_there(path: str) -> bool:
    """Whether the test has created the file."""
    return Path(path).exists()


def note(path: str, line: str) -> None:
    """Append one line."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(timeout_s=60)
async def wait(path: str, ctx: Context, release: str = "", progress: bool = False) -> str:
    """Note who runs it, wait until the file `release` is there, note how it ended."""
    note(path, f"started {os.getpid()}")
    try:
        if progress:
            ctx.progress(1, 2, "begun")
        while not (release and is_there(release)):
            await asyncio.sleep(STEP_S)
    except asyncio.CancelledError:
        note(path, "cancelled")
        raise
    return "released"


@tool(timeout_s=60)
async def export_report(seconds: float = 0) -> int:
    """Heavy, by its name; silent for a while."""
    await asyncio.sleep(seconds)
    return os.getpid()


@tool
def render_chart() -> int:
    """Heavy, by its name."""
    return os.getpid()


@tool
def execute_sql(region: Annotated[str, Header("Region")]) -> str:
    """Belongs to a place."""
    return region
