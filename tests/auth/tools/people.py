"""Tools that show as whom a call is served, and that make calls wait for each other."""

import asyncio
from typing import Any

from app import Context, ToolError, tool

WAIT_S = 20.0
gatherings: dict[str, tuple[set[str], asyncio.Event]] = {}


@tool
def whoami(ctx: Context) -> dict[str, Any]:
    """Tell who calls, as tools see it."""
    principal = ctx.principal
    return {
        "issuer": principal.issuer,
        "subject": principal.subject,
        "tenant": principal.tenant,
        "clearance": principal.clearance,
        "scopes": sorted(principal.scopes),
        "roles": sorted(principal.roles),
    }


@tool
async def gather(gathering: str, word: str, together: int, ctx: Context) -> dict[str, Any]:
    """Wait until so many callers have come, report some progress, and give the word back."""
    arrived, complete = gatherings.setdefault(gathering, (set(), asyncio.Event()))
    arrived.add(word)
    if len(arrived) == together:
        complete.set()
    await asyncio.wait_for(complete.wait(), WAIT_S)
    for step in range(1, 4):
        await ctx.progress(step, 3, f"{ctx.principal.subject}:{word}")
    return {"subject": ctx.principal.subject, "word": word}


@tool
def give_up() -> str:
    """Fail in a way that the model can mend."""
    raise ToolError("Try another day.")


@tool
def crash(ctx: Context) -> str:
    """Fail with all that the tool knows."""
    raise RuntimeError(f"{ctx!r} {ctx.principal!r} {ctx.meta!r}")
