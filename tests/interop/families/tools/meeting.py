"""A question to the user, and a tool that changes the list of tools."""

from pathlib import Path
from typing import Final

from pydantic import BaseModel

from app import Context, tool

NEWCOMER: Final = '''"""Came later."""

from app import tool


@tool
def newcomer() -> str:
    """Greet as one who came later."""
    return "hello"
'''


class Visitor(BaseModel):
    """A form."""

    name: str


@tool(asks=[Visitor])
async def greet(ctx: Context) -> str:
    """Ask for a name, and greet."""
    answer = await ctx.elicit("visitor", "Who is there?", Visitor)
    return f"Hello, {answer.data.name}!" if answer.data else answer.action


@tool
def invite() -> str:
    """Put another tool into the folder that is served."""
    path = Path(__file__).with_name("newcomer.py")
    draft = path.with_suffix(".draft")
    draft.write_text(NEWCOMER, "utf-8")
    draft.replace(path)
    return "invited"
