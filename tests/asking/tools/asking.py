"""Tools that ask, each in a way of its own."""

import asyncio
import contextlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SecretStr

from app import Context, SamplingTool, ToolError, tool

EFFECTS: list[str] = []


class Login(BaseModel):
    name: Annotated[str, Field(min_length=2)]


class Trip(BaseModel):
    to: Literal["Rome", "Oslo"]
    nights: Annotated[int, Field(ge=1, le=9)] = 1
    email: Annotated[str | None, Field(json_schema_extra={"format": "email"})] = None


class Secret(BaseModel):
    password: SecretStr


@tool(asks=[Login])
async def login(ctx: Context, greeting: str = "Hello") -> str:
    """Ask for a name."""
    answer = await ctx.elicit("github_login", "Please provide your GitHub username", Login)
    if answer.data is None:
        return f"{answer.action}: nobody is greeted"
    return f"{greeting}, {answer.data.name}!"


@tool(asks=[Login, Trip])
async def book(ctx: Context) -> dict[str, Any]:
    """Ask twice, one after the other, and do something in between."""
    who = await ctx.elicit("who", "Who travels?", Login)
    number = await ctx.once("number", _effect)
    trip = await ctx.elicit("trip", f"Where does {who.data and who.data.name} go?", Trip)
    return {
        "name": who.data and who.data.name,
        "trip": trip.data and trip.data.model_dump(),
        "number": number,
    }


async def _effect() -> int:
    EFFECTS.append("booked")
    return len(EFFECTS)


@tool
def effects() -> int:
    """How often something was done."""
    return len(EFFECTS)


@tool(asks=[Login], single_use=True)
async def redeem(ctx: Context) -> str:
    """Ask, and take each answer once."""
    answer = await ctx.elicit("who", "Who redeems it?", Login)
    return f"redeemed by {answer.data and answer.data.name}"


@tool(asks=["elicitation", "sampling", "roots"])
async def everything(ctx: Context) -> list[str]:
    """Ask for three things at once, in tasks inside tasks."""

    async def people() -> str:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.elicit("one", "Who is first?", Login))
            two = group.create_task(asyncio.wait_for(ctx.elicit("two", "And second?", Login), 5))
        return f"{one.result().action} {two.result().action}"

    said, poem, roots = await asyncio.gather(
        people(), ctx.sample("poem", "A poem, please.", max_tokens=50), ctx.roots()
    )
    return [said, poem.text, *(root.uri for root in roots)]


@tool(asks=["sampling", "sampling.tools"])
async def research(ctx: Context, rounds: int = 2) -> str:
    """Let the client's model add numbers."""

    def add(arguments: dict[str, Any]) -> int:
        EFFECTS.append("added")
        if arguments["a"] < 0:
            raise ToolError("Only what is above zero.")
        return int(arguments["a"] + arguments["b"])

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }
    adder = SamplingTool(name="add", description="Add.", input_schema=schema, function=add)
    answer = await ctx.sample(
        "sum", "What is 2 + 3?", max_tokens=50, tools=[adder], max_rounds=rounds
    )
    return answer.text


@tool(asks=["elicitation.url"])
async def connect(ctx: Context, url: str = "https://example.com/connect") -> str:
    """Send the user to a page."""
    return (await ctx.elicit_url("connect", "Please connect your account.", url)).action


@tool
async def undeclared(ctx: Context) -> str:
    """Ask without having said so."""
    return (await ctx.elicit("who", "Who is it?", Login)).action


@tool
async def polite(ctx: Context) -> str:
    """Ask only those who can be asked."""
    if not ctx.can_ask("elicitation"):
        return "nobody to ask"
    return (await ctx.elicit("who", "Who is it?", Login)).action


@tool(asks=["elicitation"])
async def swallow(ctx: Context) -> str:
    """Catch the pause."""
    with contextlib.suppress(BaseException):
        await ctx.elicit("who", "Who is it?", Login)
    return "went on"


@tool(asks=["elicitation"])
async def tidy(ctx: Context) -> str:
    """Clean up on the way out."""
    try:
        await ctx.elicit("who", "Who is it?", Login)
    finally:
        await asyncio.sleep(0)
        EFFECTS.append("tidied")
    return "done"


@tool(asks=["elicitation"])
async def restless(ctx: Context) -> str:
    """Ask another question each time."""
    EFFECTS.append("asked")
    await ctx.elicit("who", f"Question {len(EFFECTS)}?", Login)
    return "done"


@tool(asks=["elicitation"])
async def hoard(ctx: Context, size: int) -> str:
    """Remember much."""
    await ctx.once("much", lambda: "x" * size)
    return (await ctx.elicit("who", "Who is it?", Login)).action


@tool(asks=["elicitation"])
async def careless(ctx: Context, how: str) -> str:
    """Ask what must not be asked."""
    if how == "secret":
        await ctx.elicit("a", "Your password?", Secret)
    if how == "link":
        await ctx.elicit("a", "See https://example.com", Login)
    if how == "key":
        await ctx.elicit("not a key", "Who?", Login)
    if how == "same key":
        await asyncio.gather(ctx.elicit("a", "Who?", Login), ctx.elicit("a", "Who else?", Login))
    return "asked"


@tool
def from_thread(ctx: Context) -> str:
    """Ask from a thread."""
    coroutine = ctx.elicit("who", "Who is it?", Login)
    return str(coroutine)


@tool(asks=["elicitation"])
async def speak_first(ctx: Context) -> str:
    """Report progress, then ask."""
    ctx.progress(1, 2)
    await asyncio.sleep(0.05)
    return (await ctx.elicit("who", "Who is it?", Login)).action
