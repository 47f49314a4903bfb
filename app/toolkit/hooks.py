"""Hooks: functions of yours around the calls of many tools, switched on by ``[[hooks]]``.

A hook is declared in a file of the tools folder, and runs for the tools that the settings name::

    @before_call
    def no_wildcards(call: HookCall) -> None:
        if call.arguments.get("query") == "*":
            raise ToolError("Ask for something in particular.")
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, overload

from app.content import NO_STRUCTURED_CONTENT
from app.principal import Principal
from app.protocol.jsonrpc import dumps
from app.protocol.schema import Implementation

DECLARED_HOOKS: Final = "__mcp_hooks__"
"""Global of a module: the hooks that it declares, in order."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """The call that a hook stands beside.

    Attributes:
        tool_name: The tool's name as served.
        arguments: As the hooks before this one have left them; not validated in ``before_call``,
            and not to be changed in place.
        principal: Who calls.
        client: What the client says it is; for display only.
        protocol_version: Revision of the request.
        meta: The request's ``_meta`` object.
        options: ``options`` of the entry in ``[[hooks]]``.
        notes: The hooks' own, to hand something on to those that come later in the same call.
    """

    tool_name: str
    arguments: Mapping[str, Any]
    principal: Principal
    client: Implementation | None
    protocol_version: str
    meta: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a tool returned, in its wire form. Change it with ``dataclasses.replace``.

    Attributes:
        structured_content: Plain JSON data; ``NO_STRUCTURED_CONTENT`` where there is none.
        content: Blocks in their wire form; None: derived from ``structured_content`` when all
            hooks have run.
        is_error: Whether the tool failed in a way that the model can act on.
        meta: ``_meta`` of the result, without what the server itself puts there.
    """

    structured_content: Any = NO_STRUCTURED_CONTENT
    content: Sequence[Mapping[str, Any]] | None = None
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)

    def blocks(self) -> list[dict[str, Any]]:
        """The content as it stands: ``content``, or what would be derived now."""
        if self.content is not None:
            return [dict(block) for block in self.content]
        structured = self.structured_content
        if structured is NO_STRUCTURED_CONTENT:
            return [{"type": "text", "text": ""}]
        text = structured if isinstance(structured, str) else dumps(structured).decode()
        return [{"type": "text", "text": text}]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSpec(Generic[P, R]):
    """A hook as declared. Calling it calls the function."""

    function: Callable[P, R]
    name: str
    when: Literal["before", "after"]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


@overload
def before_call(function: Callable[P, R], /) -> HookSpec[P, R]: ...


@overload
def before_call(*, name: str) -> Callable[[Callable[P, R]], HookSpec[P, R]]: ...


def before_call(
    function: Callable[P, R] | None = None, /, *, name: str | None = None
) -> HookSpec[P, R] | Callable[[Callable[P, R]], HookSpec[P, R]]:
    """Declare a hook that runs before a call: ``hook(call: HookCall)``; may be ``async``.

    It returns other arguments, or None to leave them; they are validated afterwards. It refuses
    the call by raising ``ToolError``; any other exception fails the call as one of the tool would.

    Args:
        name: By which ``[[hooks]]`` uses it. Default: the function's name. A sub-folder of
            ``tools/`` is put before it.
    """
    return _declaring("before", function, name)


@overload
def after_call(function: Callable[P, R], /) -> HookSpec[P, R]: ...


@overload
def after_call(*, name: str) -> Callable[[Callable[P, R]], HookSpec[P, R]]: ...


def after_call(
    function: Callable[P, R] | None = None, /, *, name: str | None = None
) -> HookSpec[P, R] | Callable[[Callable[P, R]], HookSpec[P, R]]:
    """Declare a hook that runs after a call: ``hook(call: HookCall, result: CallResult)``.

    It returns another ``CallResult``, or None to leave it. The output is validated and its text
    derived after all hooks. Errors of the tool pass through as well, with ``is_error``.
    """
    return _declaring("after", function, name)


def _declaring(
    when: Literal["before", "after"], function: Callable[P, R] | None, name: str | None
) -> HookSpec[P, R] | Callable[[Callable[P, R]], HookSpec[P, R]]:
    declared: list[HookSpec[..., Any]] = sys._getframe(2).f_globals.setdefault(DECLARED_HOOKS, [])  # noqa: SLF001  # as @tool does

    def declare(function: Callable[P, R]) -> HookSpec[P, R]:
        spec = HookSpec(function=function, name=name or function.__name__, when=when)
        declared.append(spec)
        return spec

    return declare if function is None else declare(function)
