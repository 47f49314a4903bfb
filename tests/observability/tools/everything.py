"""Tools that end in every way, and say all there is to say."""

import asyncio
import os
import time

from pydantic import BaseModel

from app import Context, Image, ToolError, ToolResult, tool

READS = {"read_only": True}
tries = 0


class Sum(BaseModel):
    """A sum."""

    total: int


class Sure(BaseModel):
    """A form."""

    sure: bool


@tool
async def add(a: int, b: int = 0) -> Sum:
    """Add."""
    return Sum(total=a + b)


@tool(log_arguments=True)
async def shown(text: str, password: str = "") -> str:
    """Have its arguments shown in the log."""
    return text + password[:0]


@tool(structured=False)
async def picture() -> ToolResult:
    """Return an image and a text."""
    return ToolResult(content=[Image(data=b"\x89PNG", mime_type="image/png"), "a picture"])


@tool(annotations=READS, cache_ttl_s=60)
async def kept(text: str) -> str:
    """Return what is kept."""
    return text


@tool(annotations=READS, retries=2)
async def flaky() -> str:
    """Fail the first time."""
    global tries  # noqa: PLW0603  # what a retry is about
    tries += 1
    if tries == 1:
        raise ToolError("Not yet.", retryable=True)
    return "done"


@tool
async def refuse() -> str:
    """Fail for the model."""
    raise ToolError("No.")


@tool
async def fail() -> str:
    """Fail for its author."""
    raise RuntimeError("a bug")


@tool(timeout_s=0.2)
async def hang(seconds: float = 60) -> str:
    """Take too long."""
    await asyncio.sleep(seconds)
    return "late"


@tool(timeout_s=0.2)
def hang_in_thread(seconds: float = 1) -> str:
    """Take too long in a thread."""
    time.sleep(seconds)
    return "late"


@tool(isolation="process")
def crash() -> str:
    """Take its process along."""
    os._exit(3)


@tool(asks=["elicitation"])
async def ask(ctx: Context) -> str:
    """Ask the user."""
    said = await ctx.elicit("sure", "Sure?", Sure)
    return said.action


@tool(rate_limit={"bucket": "tool", "capacity": 1, "period_s": 3600})
async def seldom() -> str:
    """Be callable once."""
    return "once"


@tool(scopes=["secret:read"])
async def secret() -> str:
    """Be for few."""
    return "s"


@tool
async def talk(ctx: Context) -> str:
    """Say how far it is."""
    ctx.progress(1, 2)
    ctx.progress(2, 2)
    return "told"
