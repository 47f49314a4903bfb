"""Tools and hooks that wait at gates, and count who passes."""

import asyncio
import contextlib
import dataclasses
from collections import Counter, defaultdict
from typing import Annotated, Any

from pydantic import BaseModel

from app import CallResult, Context, Header, HookCall, ToolError, after_call, before_call, tool

READS = {"read_only": True}
seen: Counter[str] = Counter()
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


async def wait_at(name: str) -> None:
    """Count, and wait until somebody opens."""
    seen[name] += 1
    try:
        await gates[name].wait()
    except asyncio.CancelledError:
        seen[f"{name} cancelled"] += 1
        raise


@tool
async def pay(amount: int = 1, waits: bool = False) -> dict[str, int]:
    """Pay; each run counts."""
    seen["paid"] += 1
    if waits:
        await wait_at("pay")
    return {"amount": amount, "times": seen["paid"]}


@tool
async def pay_where(region: Annotated[str, Header("Region")] = "eu") -> str:
    """Pay in a region, which the response repeats."""
    seen["paid"] += 1
    return region


@tool(annotations=READS, cache_ttl_s=60, cache_scope="shared")
async def kept(text: str, fails: bool = False) -> str:
    """Kept for all."""
    await wait_at("kept")
    if fails:
        raise ValueError("broken")
    return text


@tool(annotations=READS, cache_ttl_s=60)
async def kept_of_one(ctx: Context) -> list[str]:
    """Kept for one caller, and looks at what that may do."""
    seen["kept_of_one"] += 1
    return sorted(ctx.principal.scopes)


@tool(annotations=READS, cache_ttl_s=60)
async def kept_blindly(text: str = "") -> int:
    """Kept for one caller, and looks at nothing."""
    seen["kept_blindly"] += 1
    return seen["kept_blindly"]


@tool(annotations=READS, cache_ttl_s=60, cache_scope="tenant")
async def kept_of_tenant(ctx: Context) -> list[str]:
    """Kept for a tenant."""
    seen["kept_of_tenant"] += 1
    return sorted(ctx.principal.scopes)


@tool(annotations={"idempotent": True}, retries=2)
async def flaky(failures: int = 9, after_s: float = 0.0, how: str = "says") -> int:
    """Fails so often, for a passing reason."""
    seen["tried"] += 1
    if seen["tried"] > failures:
        if how == "waits":
            await wait_at("tried")
        return seen["tried"]
    if how == "breaks":
        raise ConnectionError("nobody answers")
    raise ToolError("The shop is closed.", retryable=True, retry_after_s=after_s)


@tool
async def hold() -> str:
    """Take up room."""
    await wait_at("hold")
    return "held"


class Sure(BaseModel):
    """A form."""

    sure: bool


@tool(asks=["elicitation"], single_use=True)
async def ask_once(ctx: Context, amount: int = 1) -> int:
    """Ask, and count each run after the answer."""
    await ctx.elicit("sure", f"Pay {amount}?", Sure)
    seen["asked"] += 1
    return seen["asked"]


@tool(asks=["elicitation"])
async def book(ctx: Context) -> int:
    """Have an effect before the question, which is to happen once."""

    async def reserve() -> int:
        seen["reserved"] += 1
        return seen["reserved"]

    number: int = await ctx.once("reserve", reserve)
    await ctx.elicit("sure", "Book it?", Sure)
    return number


@tool
async def deep(levels: int) -> dict[str, Any]:
    """Return what is nested deeply."""
    seen["deep"] += 1
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@tool
async def exact(digits: int) -> dict[str, int]:
    """Return a long number."""
    return {"number": int("9" * digits)}


class Card(BaseModel):
    """What a schema holds to a number."""

    id: int
    name: str = ""


@tool
async def card(number: int, name: str = "") -> Card:
    """Return a number that may be one of a card."""
    return Card(id=number, name=name)


@tool(annotations=READS, cache_ttl_s=60, cache_scope="shared")
async def ruled_kept(text: str) -> str:
    """Kept."""
    return text


@tool
async def ruled(text: str) -> str:
    """Say it again."""
    seen["ruled"] += 1
    return text


@before_call
async def stand_before(_: HookCall) -> None:
    """Wait before the tool."""
    await wait_at("before")


@before_call
async def swallow_before(_: HookCall) -> None:
    """Wait, and let the call go on when it is cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        await wait_at("before")


@before_call
async def wait_for_before(_: HookCall) -> None:
    """Wait by `wait_for`, which swallows a cancellation that comes with the end."""
    await asyncio.wait_for(wait_at("before"), 60)


@before_call
async def never_leave(_: HookCall) -> None:
    """Ignore every cancellation until the gate is open."""
    seen["stubborn"] += 1
    while not gates["stubborn"].is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await gates["stubborn"].wait()


@before_call
async def cancels_itself(_: HookCall) -> None:
    """Cancel the task of the call."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@before_call
def rewrite(call: HookCall) -> dict[str, Any]:
    """Put another text into the arguments."""
    return {**call.arguments, "text": call.options.get("to", "rewritten")}


@before_call
def no_json(call: HookCall) -> dict[str, Any]:
    """Leave arguments that have no JSON form."""
    return {**call.arguments, "amount": object()}


@before_call
def change_meta_in_place(call: HookCall) -> None:
    """Change what all hooks of a call share."""
    call.meta["example.com/changed"] = 1  # type: ignore[index]  # what must fail


@before_call
def refuse(_: HookCall) -> None:
    """Refuse, once."""
    seen["refused"] += 1
    if seen["refused"] == 2:  # the round with the answer
        raise ToolError("Not now.")


@after_call
async def stand_after(_: HookCall, __: CallResult) -> None:
    """Wait after the tool."""
    await wait_at("after")


@after_call
async def swallow_after(_: HookCall, result: CallResult) -> CallResult:
    """Wait, and go on when it is cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        await wait_at("after")
    return result


@after_call
def then(_: HookCall, __: CallResult) -> None:
    """Come last."""
    seen["then"] += 1


@after_call
def with_meta(call: HookCall, result: CallResult) -> CallResult:
    """Add what the options say to `_meta`."""
    return dataclasses.replace(result, meta={**result.meta, **call.options})


@after_call
def with_object(_: HookCall, result: CallResult) -> CallResult:
    """Add to `_meta` what has no JSON form."""
    return dataclasses.replace(result, meta={"example.com/x": object()})
