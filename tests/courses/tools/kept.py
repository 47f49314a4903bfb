"""Tools whose results are kept, and that say how often they ran."""

import asyncio
from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel

from app import Context, Header, ToolError, tool

READS = {"read_only": True}
runs: Counter[str] = Counter()


class Answer(BaseModel):
    """What was asked, and how often the tool has run."""

    text: str
    run: int


def ran(name: str, text: str) -> Answer:
    runs[name] += 1
    return Answer(text=text, run=runs[name])


@tool(annotations=READS, cache_ttl_s=60)
async def mine(text: str, region: Annotated[str, Header("Region")] = "eu") -> Answer:
    """Kept for the caller."""
    return ran(f"mine {region}", text)


@tool(annotations=READS, cache_ttl_s=60, cache_scope="tenant")
def ours(text: str) -> Answer:
    """Kept for the tenant; runs in a thread."""
    return ran("ours", text)


@tool(annotations=READS, cache_ttl_s=60, cache_scope="shared")
async def everybodys(text: str, wait_s: float = 0) -> Answer:
    """Kept for all; may take its time."""
    answer = ran("everybodys", text)
    await asyncio.sleep(wait_s)
    return answer


@tool(annotations=READS, cache_ttl_s=0.4)
async def briefly(text: str) -> Answer:
    """Kept for a moment."""
    return ran("briefly", text)


@tool(annotations=READS, cache_ttl_s=60, isolation="process")
def apart(text: str) -> Answer:
    """Kept, and runs in a process."""
    return ran("apart", text)


@tool(annotations=READS, cache_ttl_s=60)
async def by_locale(ctx: Context, text: str) -> dict[str, Any]:
    """Looks at what the client adds to its request."""
    answer = ran("by_locale", text)
    return {"locale": ctx.meta.get("example.com/locale"), "run": answer.run}


@tool(annotations=READS, cache_ttl_s=60)
async def failing(text: str) -> Answer:
    """Fails every other time."""
    answer = ran("failing", text)
    if answer.run % 2:
        raise ToolError(f"run {answer.run}")
    return answer


@tool
async def how_often(name: str) -> int:
    """How often a tool has run."""
    return runs[name]


class Color(BaseModel):
    """A form."""

    color: str


@tool(annotations=READS, cache_ttl_s=60, asks=["elicitation"])
async def asking(ctx: Context, text: str, ask: bool = True) -> dict[str, Any]:
    """Asks the user, or not."""
    answer = ran("asking", text)
    if not ask:
        return {"run": answer.run}
    said = await ctx.elicit("color", "Which color?", Color)
    return {"color": said.data.color if said.data else None, "run": answer.run}
