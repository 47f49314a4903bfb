"""Hooks of a test, good ones and bad ones."""

import asyncio
import dataclasses
from collections import Counter
from typing import Any

from app import (
    NO_STRUCTURED_CONTENT,
    CallResult,
    HookCall,
    ToolError,
    after_call,
    before_call,
    tool,
)

seen: Counter[str] = Counter()


@before_call
def stamp(call: HookCall) -> dict[str, Any]:
    """Put the caller and an option into an argument."""
    return {**call.arguments, "by": f"{call.principal.subject} {call.options.get('word')}"}


@before_call
async def no_wildcard(call: HookCall) -> None:
    """Refuse a text."""
    await asyncio.sleep(0)
    if call.arguments.get("text") == "*":
        raise ToolError("Ask for something in particular.")


@before_call
def break_arguments(call: HookCall) -> dict[str, Any]:
    """Leave what the schema does not allow."""
    return {**call.arguments, "text": 7}


@before_call
def change_in_place(call: HookCall) -> None:
    """Change what it was given, without saying so."""
    call.arguments["text"] = "changed in place"  # type: ignore[index]  # what must have no effect


@after_call
def shout(call: HookCall, result: CallResult) -> CallResult | None:
    """Change every text to capitals."""
    seen[call.tool_name] += 1
    if isinstance(result.structured_content, dict):
        upper = {key: str(value).upper() for key, value in result.structured_content.items()}
        return dataclasses.replace(result, structured_content=upper)
    if result.content is not None:
        blocks = [{**block, "text": block["text"].upper()} for block in result.content]
        return dataclasses.replace(result, content=blocks)
    return None


@after_call
async def tag(call: HookCall, result: CallResult) -> CallResult:
    """Add to `_meta`, and notes of another hook."""
    return dataclasses.replace(result, meta={**result.meta, "example.com/tag": call.options["tag"]})


@after_call
def withhold(_: HookCall, result: CallResult) -> None:
    """Refuse a result."""
    if "secret plan" in str(result):
        raise ToolError("This result may not be shown.")


@after_call
def break_result(_: HookCall, result: CallResult) -> CallResult:
    """Leave what the output schema does not allow."""
    return dataclasses.replace(result, structured_content={"wrong": 1})


@after_call
def break_blocks(_: HookCall, result: CallResult) -> CallResult:
    """Leave what is no content."""
    return dataclasses.replace(
        result, structured_content=NO_STRUCTURED_CONTENT, content=[{"type": "json"}]
    )


@before_call(name="raises")
def raises_before(_: HookCall) -> None:
    """Fail."""
    raise RuntimeError("postgres://u:password@db/x")


@after_call(name="raises_after")
def fails_after(_: HookCall, __: CallResult) -> None:
    """End everything."""
    raise SystemExit(3)


@before_call
def returns_text(_: HookCall) -> str:
    """Return what is no mapping."""
    return "nothing"


@before_call
async def takes_its_time(call: HookCall) -> None:
    """Wait longer than a client is left in silence."""
    await asyncio.sleep(call.options["seconds"])


@before_call
async def hangs(_: HookCall) -> None:
    """Take too long."""
    await asyncio.sleep(60)


@tool
async def how_often(name: str) -> int:
    """How often `shout` has run beside a tool."""
    return seen[name]
