"""Tools that say something before they answer."""

import asyncio

from app import Context, tool

PACE_S = 0.05  # the pace that the suite documents for its fixture tools


@tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report 0, 50 and 100 of 100, then answer."""
    for done in (0, 50, 100):
        ctx.progress(done, total=100, message=f"{done} of 100")
        await asyncio.sleep(PACE_S)
    return "All three steps are done."


@tool
async def test_logging_tool(ctx: Context) -> str:
    """Log three lines, which only a request that asks for logging may hear."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", text)
        await asyncio.sleep(PACE_S)
    return "Three lines were logged."


@tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then answer without asking anything back."""
    ctx.progress(1, total=2, message="Halfway")
    await asyncio.sleep(PACE_S)
    ctx.progress(2, total=2)
    return "Nothing had to be asked."
