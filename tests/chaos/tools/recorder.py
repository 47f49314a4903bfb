"""Tools that write down each run of theirs, so that runs can be counted from outside."""

import asyncio
import os
from typing import Any

from app import Context, tool


def _record(ctx: Context, number: int) -> None:
    # One write of one line: several processes append to the same file.
    ledger = os.open(str(ctx.settings["ledger"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{number} {os.getpid()}\n".encode())
    finally:
        os.close(ledger)


@tool
async def record(number: int, ctx: Context) -> dict[str, Any]:
    """Write a number down.

    Args:
        number: The number.
    """
    _record(ctx, number)
    return {"number": number, "by": os.getpid()}


@tool
async def record_slowly(number: int, seconds: float, ctx: Context) -> dict[str, Any]:
    """Write a number down and think about it.

    Args:
        number: The number.
        seconds: How long to think.
    """
    _record(ctx, number)
    await asyncio.sleep(seconds)
    return {"number": number, "by": os.getpid()}
