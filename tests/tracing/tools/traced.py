"""Tools that say in whose trace they run, and what can become of a call."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from opentelemetry import baggage, trace

from app import Context, ToolError, tool

READS = {"read_only": True}


def _place(ctx: Context) -> dict[str, Any]:
    here = trace.get_current_span().get_span_context()
    return {
        "headers": ctx.trace_headers(),
        "trace": f"{here.trace_id:032x}",
        "span": f"{here.span_id:016x}",
        "baggage": {key: str(value) for key, value in baggage.get_all().items()},
    }


@tool
async def place(ctx: Context) -> dict[str, Any]:
    """Say where an asynchronous tool is."""
    await asyncio.sleep(0)
    return _place(ctx)


@tool
def place_in_thread(ctx: Context) -> dict[str, Any]:
    """Say where a synchronous tool is."""
    return _place(ctx)


@tool(isolation="process")
def place_in_process(ctx: Context) -> dict[str, Any]:
    """Say where a tool in a process is."""
    return _place(ctx)


@tool(isolation="process")
async def place_async_in_process(ctx: Context) -> dict[str, Any]:
    """Say where an asynchronous tool in a process is."""
    return _place(ctx)


@tool
async def own_span(ctx: Context) -> dict[str, Any]:
    """Make a span of its own."""
    with trace.get_tracer("a tool").start_as_current_span("own work"):
        return _place(ctx)


@tool
async def take(text: str = "", number: int = 0) -> str:
    """Take arguments."""
    return f"{text[:0]}{number}"


@tool
async def refuse(text: str) -> str:
    """Tell the model."""
    raise ToolError(f"Not {text}.")


@tool
async def crash(text: str) -> str:
    """Fail, with the argument in the error."""
    raise ValueError(text)


@tool(timeout_s=0.2)
async def dawdle() -> str:
    """Pass its deadline."""
    await asyncio.sleep(30)
    return "late"


@tool(timeout_s=0.2)
def dawdle_in_thread() -> str:
    """Pass its deadline in a thread that goes on for a while."""
    threading.Event().wait(0.6)
    return "late"


def _wait_for(file: str) -> None:
    Path(f"{file}.begun").touch()
    pause = threading.Event()
    for _ in range(1000):
        if Path(file).exists():
            return
        pause.wait(0.01)


@tool
def hold_thread(file: str) -> str:
    """Keep a thread until there is a file."""
    _wait_for(file)
    return "done"


@tool(isolation="process")
def hold_process(file: str) -> str:
    """Keep a process until there is a file."""
    _wait_for(file)
    return "done"


@tool
async def wait_long() -> str:
    """Run until the client goes."""
    await asyncio.sleep(30)
    return "never"


@tool
async def guarded() -> str:
    """Be for one network."""
    return "in"


@tool
async def rare() -> str:
    """Be called once."""
    return "once"


@tool(cache_ttl_s=60, annotations={"read_only": True})
async def kept(number: int) -> int:
    """Give what can be kept."""
    return number


_failed: set[str] = set()


@tool(retries=2, annotations={"read_only": True})
async def shaky(name: str) -> str:
    """Fail at first."""
    if name not in _failed:
        _failed.add(name)
        raise ToolError("Not yet.", retryable=True, retry_after_s=0.01)
    return "now"
