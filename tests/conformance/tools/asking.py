"""Tools that ask back; their names, keys and questions are those that the suite documents."""

import asyncio
from typing import Any

from pydantic import BaseModel

from app import Context, tool


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


@tool(asks=[Name])
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("user_name", "What is your name?", Name)
    return f"Hello, {answer.data.name}!" if answer.data else "Hello!"


@tool(asks=["sampling"])
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("capital_question", "What is the capital of France?", max_tokens=100)
    return answer.text


@tool(asks=["roots"])
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    roots = await ctx.roots("client_roots")
    return ", ".join(root.uri for root in roots)


@tool(asks=[Confirmation])
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask, and carry state to the next round."""
    state = await ctx.once("state", lambda: "state-ok")
    await ctx.elicit("confirm", "Please confirm.", Confirmation)
    return f"Confirmed: {state}"


@tool(asks=[Name, "sampling", "roots"])
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three questions at once."""
    asked: tuple[Any, ...] = await asyncio.gather(
        ctx.elicit("user_name", "What is your name?", Name),
        ctx.sample("greeting", "Write a greeting.", max_tokens=50),
        ctx.roots("client_roots"),
    )
    return f"{len(asked)} answers"


@tool(asks=(Name, Color))
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask a second question after the first."""
    await ctx.elicit("step1", "Step 1: What is your name?", Name)
    await ctx.elicit("step2", "Step 2: What is your favorite color?", Color)
    return "Both steps are done."


@tool(asks=[Confirmation])
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask with a state that must come back unchanged."""
    await ctx.elicit("confirm", "Please confirm.", Confirmation)
    return "Confirmed."


@tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client declared."""
    if ctx.can_ask("elicitation"):
        await ctx.elicit("user_name", "What is your name?", Name)
    if ctx.can_ask("sampling"):
        await ctx.sample("greeting", "Write a greeting.", max_tokens=50)
    return "Nothing is left to be asked."


@tool(asks=["sampling"])
async def test_missing_capability(ctx: Context) -> str:
    """Need a client that declares sampling."""
    return (await ctx.sample("greeting", "Write a greeting.", max_tokens=50)).text
