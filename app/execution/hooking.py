"""Runs the hooks of a call, one after the other."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from app.execution.results import message_of
from app.registry.hooks import Hook
from app.toolkit import CallResult, HookCall, ToolError


class Refused(Exception):
    """A hook does not let the call through; the text is for the model."""


class HookFailed(Exception):
    """A hook has raised, or returned what it must not."""

    def __init__(self, hook: str, error: BaseException) -> None:
        super().__init__(hook)
        self.hook = hook
        self.error = error


async def run_before(hooks: Sequence[Hook], call: HookCall) -> dict[str, Any]:
    """The arguments as the hooks have left them.

    Raises:
        Refused: One of them does not let the call through.
        HookFailed: One of them failed; what it guards must not run.
    """
    for hook in hooks:
        call = dataclasses.replace(call, options=hook.options)
        try:
            changed = await _run(hook, call)
        except ToolError as error:
            raise Refused(message_of(error) or "The call was refused.") from None
        if changed is None:
            continue
        if not isinstance(changed, Mapping):
            raise HookFailed(hook.name, TypeError(f"returned {type(changed).__name__}, no mapping"))
        call = dataclasses.replace(call, arguments=MappingProxyType(dict(changed)))
    return dict(call.arguments)


async def run_after(hooks: Sequence[Hook], call: HookCall, result: CallResult) -> CallResult:
    """The result as the hooks have left it.

    Raises:
        HookFailed: One of them failed; what it guards must not be sent.
    """
    for hook in hooks:
        call = dataclasses.replace(call, options=hook.options)
        try:
            changed = await _run(hook, call, result)
        except ToolError as error:
            text = message_of(error) or "The result was refused."
            changed = CallResult(content=[{"type": "text", "text": text}], is_error=True)
        if changed is None:
            continue
        if not isinstance(changed, CallResult):
            what = f"returned {type(changed).__name__}, no CallResult"
            raise HookFailed(hook.name, TypeError(what))
        result = changed
    return result


async def _run(hook: Hook, *given: Any) -> Any:
    try:
        value = hook.run(*given)
        return await value if hook.is_async else value
    except ToolError:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # nobody waits any more
        # Whatever else it raises, SystemExit included, is its own failure.
        raise HookFailed(hook.name, error) from None
