"""Tools with effects, which are counted."""

import asyncio
import os
import time
from collections import Counter
from typing import Any

from pydantic import BaseModel

from app import Context, ToolError, tool

paid: Counter[str] = Counter()
tries: Counter[str] = Counter()


@tool
async def pay(order: str, amount: int, wait_s: float = 0) -> dict[str, Any]:
    """Pay; each run counts."""
    paid[order] += 1
    await asyncio.sleep(wait_s)
    return {"order": order, "amount": amount, "times": paid[order]}


@tool
def pay_in_thread(order: str, wait_s: float = 0) -> dict[str, Any]:
    """The same in a thread."""
    paid[order] += 1
    time.sleep(wait_s)
    return {"order": order, "times": paid[order]}


@tool(isolation="process")
def pay_apart(order: str, path: str, exit_code: int | None = None) -> dict[str, Any]:
    """The same in a process, which may end; the effect is a line in a file."""
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123  # atomic append
        file.write(f"{order}\n")
    if exit_code is not None:
        os._exit(exit_code)
    return {"order": order}


@tool
async def times(order: str) -> int:
    """How often an order was paid."""
    return paid[order]


class Confirmation(BaseModel):
    """A form."""

    sure: bool


@tool(asks=["elicitation"])
async def pay_if_sure(ctx: Context, order: str) -> dict[str, Any]:
    """Pay after the user has said so."""
    said = await ctx.elicit("sure", "Pay it?", Confirmation)
    if said.data is None or not said.data.sure:
        return {"order": order, "times": paid[order]}
    paid[order] += 1
    return {"order": order, "times": paid[order]}


@tool(asks=["elicitation"], single_use=True)
async def pay_if_sure_once(ctx: Context, order: str) -> dict[str, Any]:
    """The same; an answer counts once."""
    await ctx.elicit("sure", "Pay it?", Confirmation)
    paid[order] += 1
    return {"order": order, "times": paid[order]}


REPEATABLE = {"idempotent": True}


def _try(name: str, failures: int) -> int:
    tries[name] += 1
    if tries[name] <= failures:
        raise ToolError("The shop is closed.", retryable=True, retry_after_s=0.01)
    return tries[name]


@tool(annotations=REPEATABLE, retries=2)
async def flaky(name: str, failures: int) -> int:
    """Fails so often, then says how often it was tried."""
    return _try(name, failures)


@tool(annotations=REPEATABLE, retries=2)
def flaky_in_thread(name: str, failures: int) -> int:
    """The same in a thread."""
    return _try(name, failures)


@tool(annotations=REPEATABLE, retries=2, isolation="process")
def flaky_apart(path: str, failures: int) -> int:
    """The same in a process; the tries are lines in a file."""
    with open(path, "a+", encoding="utf-8") as file:  # noqa: PTH123  # as above
        file.write("try\n")
        file.seek(0)
        count = len(file.readlines())
    if count <= failures:
        raise ToolError("The shop is closed.", retryable=True, retry_after_s=0.01)
    return count


@tool(annotations=REPEATABLE, retries=3)
async def broken(name: str, kind: str) -> int:
    """Fails every time, in some way."""
    tries[name] += 1
    match kind:
        case "connection":
            raise ConnectionError("nobody answers")
        case "timeout":
            raise TimeoutError
        case "value":
            raise ValueError("always")
        case "long":
            raise ToolError("Come back tomorrow.", retryable=True, retry_after_s=86_400)
        case "for good":
            raise ToolError("Never.")
    raise AssertionError(kind)


@tool
async def tried(name: str) -> int:
    """How often something was tried."""
    return tries[name]


@tool
async def busy() -> None:
    """Says when to come back."""
    raise ToolError("The shop is closed.", retryable=True, retry_after_s=3)
