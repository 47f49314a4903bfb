"""Tools that keep something, ask something, or do something that must be done once."""

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from app import Context, tool


class City(BaseModel):
    """A form."""

    city: str


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def limited() -> str:
    """Can be called so often and no more."""
    return "done"


@tool
async def begin(ctx: Context) -> str:
    """A new list."""
    return await ctx.handles.create("list", [], 600)


@tool
async def put(ctx: Context, handle: str, item: str) -> list[str]:
    """One more on a list."""
    found: list[str] = await ctx.handles.update("list", handle, lambda items: [*items, item])
    return found


@tool
async def drop(ctx: Context, handle: str) -> str:
    """Forget a list."""
    await ctx.handles.delete("list", handle)
    return "dropped"


@tool(asks=[City])
async def travel(ctx: Context) -> str:
    """Ask twice, one after the other."""
    first = await ctx.elicit("from", "From where?", City)
    second = await ctx.elicit("to", "And where to?", City)
    return f"{first.data and first.data.city} to {second.data and second.data.city}"


@tool(asks=[City], single_use=True)
async def redeem(ctx: Context) -> str:
    """Ask, and take each answer once."""
    answer = await ctx.elicit("city", "Which one?", City)
    return f"redeemed {answer.data and answer.data.city}"


@tool
async def pay(folder: str, order: str, wait_s: float = 0.0) -> dict[str, Any]:
    """Pay; each run is a line in a file, whichever server has done it."""
    path = Path(folder) / order
    with path.open("a", encoding="utf-8") as file:
        file.write("paid\n")
    await asyncio.sleep(wait_s)
    return {"order": order, "runs": len(path.read_text("utf-8").splitlines())}


def _numbered(number: int) -> Any:
    async def function() -> int:
        """One of many."""
        return number

    function.__name__ = f"number_{number:02}"
    return tool(function)


for _number in range(25):
    globals()[f"number_{_number:02}"] = _numbered(_number)
