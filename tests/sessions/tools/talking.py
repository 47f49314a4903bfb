"""Tools that say and ask something, for clients of every revision."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from app import (
    Audio,
    Context,
    EmbeddedResource,
    Header,
    Image,
    ResourceLink,
    Text,
    Titles,
    ToolError,
    tool,
)


class Sum(BaseModel):
    """A result that is an object."""

    total: int


@tool(title="Addition", annotations={"read_only": True})
async def add(a: int, b: int = 1) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@tool
def words(text: str, region: Annotated[str, Header("Region")] = "eu") -> list[str]:
    """A result that is no object."""
    return [*text.split(), region]


@tool
async def blocks() -> list[Text | Image | Audio | ResourceLink | EmbeddedResource]:
    """One block of each kind."""
    return [
        Text("text"),
        Image(b"image"),
        Audio(b"audio"),
        ResourceLink("file:///a", "a", title="A"),
        EmbeddedResource("file:///b", text="b"),
    ]


@tool
async def count(ctx: Context, to: int, wait_s: float = 0.0) -> str:
    """Tell each step."""
    for number in range(1, to + 1):
        ctx.progress(number, to, f"step {number}")
        ctx.log("info", {"step": number})
        ctx.log("debug", "detail")
        await asyncio.sleep(wait_s)
    return f"{to} steps"


@tool
async def refuse() -> None:
    """Fail in a way that the model can act on."""
    raise ToolError("Not today.")


class Trip(BaseModel):
    """A form."""

    city: str
    days: int = 3
    seat: Annotated[Literal["a", "w"], Titles({"a": "Aisle", "w": "Window"})] = "w"


@tool(asks=["elicitation"], timeout_s=1, max_concurrent=1)
async def book(ctx: Context, who: str) -> dict[str, Any]:
    """Ask the user, within a short deadline and without room for a second call."""
    said = await ctx.elicit("trip", f"A trip for {who}?", Trip)
    return {"who": who, "action": said.action, "trip": said.data and said.data.model_dump()}


@tool(asks=["sampling"])
async def think(ctx: Context, about: str) -> str:
    """Ask the client's model."""
    return (await ctx.sample("thought", about, max_tokens=50)).text


@tool(asks=["roots"])
async def folders(ctx: Context) -> list[str]:
    """Ask for roots."""
    return [root.uri for root in await ctx.roots()]


@tool(asks=["elicitation.url"])
async def visit(ctx: Context) -> str:
    """Send the user somewhere."""
    return (await ctx.elicit_url("page", "Please look.", "https://example.com/page")).action


@tool(asks=["elicitation"])
async def both(ctx: Context) -> list[str]:
    """Ask two things at once, and do something once."""
    done = await ctx.once("effect", lambda: "once")
    one, two = await asyncio.gather(
        ctx.elicit("one", "First?", Trip), ctx.elicit("two", "Second?", Trip)
    )
    return [done, *(said.data.city if said.data else said.action for said in (one, two))]


@tool(annotations={"read_only": True}, cache_ttl_s=60, asks=["elicitation"])
async def kept(ctx: Context, ask: bool) -> str:
    """Ask, in a tool whose results are kept."""
    if not ask:
        return "kept"
    said = await ctx.elicit("trip", "Where to?", Trip)
    return said.data.city if said.data else said.action


@tool
async def wait(path: str, for_s: float = 30) -> str:
    """Leave a line when it begins, and one when it ends."""
    file = Path(path)
    _line(file, "began")
    try:
        await asyncio.sleep(for_s)
    except asyncio.CancelledError:
        _line(file, "cancelled")
        raise
    _line(file, "ended")
    return "waited"


def _line(file: Path, text: str) -> None:
    with file.open("a") as out:
        out.write(f"{text}\n")
