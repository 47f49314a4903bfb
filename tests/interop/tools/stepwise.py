"""Calls that the test leads by the hand: each step waits for another call."""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

from app import Context, tool

HoldState = Literal["started", "cancelled"]

_steps: Final = asyncio.Semaphore(0)
_holding: Final[Mapping[HoldState, asyncio.Event]] = {
    "started": asyncio.Event(),
    "cancelled": asyncio.Event(),
}


@tool
async def climb(steps: int, ctx: Context) -> str:
    """Report each step, and take it when `take_step` is called."""
    for step in range(1, steps + 1):
        ctx.progress(step, steps, f"step {step}")
        await _steps.acquire()
    return f"{steps} steps"


@tool
async def take_step() -> str:
    """Let `climb` take one step."""
    _steps.release()
    return "taken"


@tool
def sprint(steps: int, ctx: Context) -> str:
    """Report each step without a pause, from a thread."""
    for step in range(1, steps + 1):
        ctx.progress(step, steps)
    return f"{steps} steps"


@tool
async def narrate(ctx: Context) -> str:
    """Log a line that is worth nothing and one that is worth reading."""
    ctx.log("debug", "fine detail")
    ctx.log("warning", {"disk": "nearly full"}, logger="storage")
    return "told"


@tool
async def hold(ctx: Context, aloud: bool = False) -> str:
    """Wait until the call is cancelled."""
    if aloud:
        ctx.progress(1, message="holding")
    _holding["started"].set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _holding["cancelled"].set()
        raise
    return "nobody cancelled"


@tool
async def await_hold(state: HoldState) -> HoldState:
    """Wait until `hold` has started, or has been cancelled."""
    await _holding[state].wait()
    _holding[state].clear()
    return state
