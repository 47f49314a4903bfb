"""Runs the hooks of a call, one after the other."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from app.content import NO_STRUCTURED_CONTENT, check_meta
from app.execution.caching import OWN_PREFIX
from app.execution.execution import Execution
from app.execution.results import message_of
from app.protocol.jsonrpc import dumps, loads_encoded
from app.registry.guards import MASKING
from app.registry.hooks import Hook
from app.toolkit import CallResult, HookCall, ToolError


class Refused(Exception):
    """A hook does not let the call through; the text is for the model."""


class Withheld(Exception):
    """What must be masked cannot be, in a result of this form."""

    public: Final = "The result holds what must be masked, and its schema does not allow it."

    def __init__(self, hook: str) -> None:
        super().__init__(hook)
        self.hook = hook


class HookFailed(Exception):
    """A hook has raised, or returned what it must not."""

    def __init__(self, hook: str, error: BaseException) -> None:
        super().__init__(hook)
        self.hook = hook
        self.error = error


class HookRunner:
    """Runs the hooks of one call; when nobody waits for it any more, no further one.

    Attributes:
        running: Name of the hook that runs; None: none does.
    """

    __slots__ = ("_execution", "running")

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.running: str | None = None

    async def before(self, hooks: Sequence[Hook], call: HookCall) -> dict[str, Any]:
        """The arguments as the hooks have left them.

        Raises:
            Refused: One of them does not let the call through.
            HookFailed: One of them failed; what it guards must not run.
        """
        for hook in hooks:
            call = dataclasses.replace(call, options=hook.options)
            try:
                changed = await self._run(hook, call)
            except ToolError as error:
                raise Refused(message_of(error) or "The call was refused.") from None
            if changed is not None:
                arguments = MappingProxyType(_plain_arguments(hook, changed))
                call = dataclasses.replace(call, arguments=arguments)
        return dict(call.arguments)

    async def after(self, hooks: Sequence[Hook], call: HookCall, result: CallResult) -> CallResult:
        """The result as the hooks have left it.

        Raises:
            HookFailed: One of them failed; what it guards must not be sent.
            Withheld: What is left may be sent, but is no result of the tool any more.
        """
        for hook in hooks:
            call = dataclasses.replace(call, options=hook.options)
            try:
                changed = await self._run(hook, call, result)
            except ToolError as error:
                text = message_of(error) or "The result was refused."
                changed = CallResult(content=[{"type": "text", "text": text}], is_error=True)
            if changed is None:
                continue
            if not isinstance(changed, CallResult):
                what = f"returned {type(changed).__name__}, no CallResult"
                raise HookFailed(hook.name, TypeError(what))
            if changed.meta is not result.meta:
                _check_meta(hook, result.meta, changed.meta)
            if hook.name in MASKING:
                self._check_masked(hook, result, changed)
            result = changed
        return result

    async def _run(self, hook: Hook, *given: Any) -> Any:
        self.running = hook.name
        try:
            value = hook.run(*given)
            if hook.is_async:
                value = await value
        except ToolError:
            self._execution.leave_if_over()
            raise
        except BaseException as error:  # noqa: BLE001  # a hook may raise anything
            if isinstance(error, asyncio.CancelledError):
                self._execution.leave_if_over()
            # Whatever else it raises, SystemExit included, is its own failure.
            raise HookFailed(hook.name, error) from None
        finally:
            self.running = None
        self._execution.leave_if_over()
        return value

    def _check_masked(self, hook: Hook, before: CallResult, after: CallResult) -> None:
        """A number that was masked is a text, which the output schema may not allow."""
        tool, structured = self._execution.tool, after.structured_content
        if (
            tool.output.schema is not None
            and not after.is_error
            and structured is not NO_STRUCTURED_CONTENT
            and structured != before.structured_content
            and not tool.conforms(structured)
            and tool.conforms(before.structured_content)
        ):
            raise Withheld(hook.name)


def _plain_arguments(hook: Hook, changed: Any) -> dict[str, Any]:
    if not isinstance(changed, Mapping):
        raise HookFailed(hook.name, TypeError(f"returned {type(changed).__name__}, no mapping"))
    try:
        # A copy as well: nobody changes them behind the validation.
        arguments: dict[str, Any] = loads_encoded(dumps(dict(changed)))
    except (TypeError, ValueError, RecursionError) as error:
        raise HookFailed(hook.name, error) from None
    return arguments


def _check_meta(hook: Hook, before: Mapping[str, Any], after: Any) -> None:
    try:
        meta = dict(after)
        check_meta(meta)
        dumps(meta)
    except (TypeError, ValueError, RecursionError) as error:
        raise HookFailed(hook.name, error) from None
    if not hook.is_built_in:
        for key, value in meta.items():
            if key.startswith(OWN_PREFIX) and (key not in before or before[key] != value):
                raise HookFailed(hook.name, ValueError(f"the _meta key {key!r} is the server's"))
