"""What the suite calls in sessions of the earlier revisions."""

import asyncio
from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app import Context, Titles, tool


@tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Say something three times."""
    for text in ("started", "processing data", "completed"):
        ctx.log("info", f"Tool execution {text}")
        await asyncio.sleep(0.05)
    return "Done."


@tool(asks=["sampling"])
async def test_sampling(ctx: Context, prompt: str) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("answer", prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


class User(BaseModel):
    """Who answers."""

    username: Annotated[str, Field(description="User's response")]
    email: Annotated[str, Field(description="User's email address")]


@tool(asks=["elicitation"])
async def test_elicitation(ctx: Context, message: str) -> str:
    """Ask the user."""
    answer = await ctx.elicit("user", message, User)
    return f"User response: {answer.action} {answer.data}"


class Status(Enum):
    """Some choices."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    PENDING = "pending"


class Defaults(BaseModel):
    """A default of each type."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Status = Status.ACTIVE
    verified: bool = True


@tool(asks=["elicitation"])
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with defaults."""
    answer = await ctx.elicit("defaults", "Please review", Defaults)
    return f"Elicitation completed: {answer.action} {answer.data}"


OPTIONS = {"value1": "First", "value2": "Second", "value3": "Third"}


class Choices(BaseModel):
    """Each form of choice."""

    untitledSingle: Literal["option1", "option2", "option3"]  # noqa: N815  # the suite's name
    titledSingle: Annotated[Literal["value1", "value2", "value3"], Titles(OPTIONS)]  # noqa: N815  # likewise
    legacyEnum: Annotated[  # noqa: N815  # likewise
        Literal["opt1", "opt2", "opt3"],
        Titles({"opt1": "Option One", "opt2": "Option Two"}, as_enum_names=True),
    ]
    untitledMulti: list[Literal["option1", "option2", "option3"]]  # noqa: N815  # likewise
    titledMulti: list[Annotated[Literal["value1", "value2", "value3"], Titles(OPTIONS)]]  # noqa: N815  # likewise


@tool(asks=["elicitation"])
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with choices."""
    answer = await ctx.elicit("choices", "Please choose", Choices)
    return f"Elicitation completed: {answer.action} {answer.data}"


@tool
async def test_reconnection() -> str:
    """Take longer than a stream stays open."""
    await asyncio.sleep(1)
    return "Reconnection test completed"
