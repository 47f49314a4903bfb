"""``@tool``: a function becomes a tool as declared."""

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from pydantic import BaseModel

from app.toolkit.marks import Icon

DECLARED: Final = "__mcp_tools__"
"""Global of a module: the tools that it declares, in order."""

P = ParamSpec("P")
R = TypeVar("R")


class RateLimit(TypedDict):
    """``@tool(rate_limit=...)``: at most ``capacity`` calls in any ``period_s`` seconds.

    Keys:
        bucket: Who shares the capacity: all callers (``tool``), each caller (``user`` or, which is
            the same here, ``user-tool``) or all callers of a tenant (``tenant``).
    """

    bucket: Literal["tool", "user", "tenant", "user-tool"]
    capacity: int
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec(Generic[P, R]):
    """A tool as declared by ``@tool``. Calling it calls the function."""

    function: Callable[P, R]
    name: str
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon | Mapping[str, Any]] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    rate_limit: RateLimit | None = None
    max_concurrent: int | None = None
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    structured: bool = True
    allow_unknown_arguments: bool | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    scopes: Sequence[str] = ()
    roles: Sequence[str] = ()
    clearance: str | None = None
    approvals: Sequence[str] = ()
    validate: Callable[..., Any] | None = None
    asks: Sequence[str | type[BaseModel]] = ()
    single_use: bool = False
    isolation: Literal["process"] | None = None
    max_memory_bytes: int | None = None
    max_cpu_s: float | None = None
    cache_ttl_s: float | None = None
    cache_scope: Literal["user", "tenant", "shared"] = "user"
    retries: int = 0
    audit: Literal["on", "off", "required"] = "on"
    record: Literal["errors", "all", "none"] | None = None
    log_arguments: bool = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


class ToolOptions(TypedDict, total=False):
    """What ``@tool`` takes.

    Keys:
        name: Default: the function's name. A sub-folder of ``tools/`` is put before it.
        title: For people.
        description: For the model. Default: the docstring.
        icons: ``Icon`` objects or mappings of the wire form.
        annotations: ``read_only``, ``destructive``, ``idempotent``, ``open_world``, ``title``;
            other keys are sent as they are.
        timeout_s: Deadline of one call in seconds; default: ``[execution] timeout_s``.
        rate_limit: How many calls in a while, besides ``[[limits.rates]]``; see ``RateLimit``.
        max_concurrent: How many calls of it may run at once; more are refused with 503.
        input_schema: A JSON Schema of your own. The function then takes the arguments by name
            (or all of them through ``**arguments``), unconverted.
        output_schema: A JSON Schema of your own; every result is checked against it.
        structured: False sends text alone, without structured content and output schema.
        allow_unknown_arguments: True ignores arguments that the function does not have.
            Default: ``[tools] unknown_arguments``.
        meta: ``_meta`` of the tool's definition.
        scopes: Scopes that a caller needs, all of them, besides what the rules demand.
        roles: Roles of which a caller needs one, likewise.
        clearance: Clearance that a caller needs, likewise.
        approvals: Approvals that a caller needs, all of them, likewise.
        validate: Called with the arguments by name, after the schema and before the function;
            refuses them by raising ``ToolError`` or ``ValueError``. May be ``async``.
        asks: What the tool may ask the client: ``elicitation`` (a form), ``elicitation.url``,
            ``sampling``, ``sampling.tools``, ``roots``; a client without it is refused before the
            tool runs. A model in the list is a form that is asked, and is checked when the tool
            is loaded.
        single_use: True: answers to the tool's questions count once, so a client cannot go back
            and continue a second time from the same question.
        isolation: ``"process"`` runs each call in a worker process, which is killed at the
            deadline and can harm no other call.
        max_memory_bytes: In a process: memory that a call may take beyond what its worker had
            when it was ready; default: ``[execution] process_memory_bytes``.
        max_cpu_s: In a process: processor time that a call may use, kept to a second; default:
            ``[execution] process_cpu_s``.
        cache_ttl_s: How long a result is kept and given again to equal calls, in seconds. For
            tools with the annotation ``read_only``.
        cache_scope: Who shares what is kept: the same caller (``user``), callers of one tenant, or
            all (``shared``), for results that do not depend on who asks.
        retries: How often a call that failed for a passing reason is run again, within its
            deadline: after ``ToolError(retryable=True)``, ``ConnectionError`` or
            ``TimeoutError``. For tools with the annotation ``idempotent`` or ``read_only``.
        audit: Whether calls are put on the audit record, where one is kept (``[audit]``).
            ``"required"``: the tool does not run unless that is on record before.
        record: Which calls are kept, masked and encrypted, so that they can be run again:
            ``"errors"``, ``"all"`` or ``"none"``; default: ``[recording] record``.
        log_arguments: True shows the arguments of its calls in the log, masked and bounded.
    """

    name: str
    title: str | None
    description: str | None
    icons: Sequence[Icon | Mapping[str, Any]]
    annotations: Mapping[str, Any]
    timeout_s: float | None
    rate_limit: RateLimit | None
    max_concurrent: int | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    structured: bool
    allow_unknown_arguments: bool | None
    meta: Mapping[str, Any]
    scopes: Sequence[str]
    roles: Sequence[str]
    clearance: str | None
    approvals: Sequence[str]
    validate: Callable[..., Any] | None
    asks: Sequence[str | type[BaseModel]]
    single_use: bool
    isolation: Literal["process"] | None
    max_memory_bytes: int | None
    max_cpu_s: float | None
    cache_ttl_s: float | None
    cache_scope: Literal["user", "tenant", "shared"]
    retries: int
    audit: Literal["on", "off", "required"]
    record: Literal["errors", "all", "none"] | None
    log_arguments: bool


@overload
def tool(function: Callable[P, R], /) -> ToolSpec[P, R]: ...


@overload
def tool(
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], ToolSpec[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> ToolSpec[P, R] | Callable[[Callable[P, R]], ToolSpec[P, R]]:
    """Declare a function as a tool: ``@tool`` or ``@tool(title=...)``; see ``ToolOptions``."""
    # The module that declares the tool keeps a note of it: one that a later definition of the
    # same name hides, or whose function comes from elsewhere, would be lost without a word.
    for option in options:
        if option not in ToolOptions.__annotations__:
            close = difflib.get_close_matches(option, ToolOptions.__annotations__, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TypeError(f"@tool has no option {option!r}{hint}")
    declared: list[ToolSpec[..., Any]] = sys._getframe(1).f_globals.setdefault(DECLARED, [])  # noqa: SLF001

    def declare(function: Callable[P, R]) -> ToolSpec[P, R]:
        described: Any = {"name": function.__name__, **options}
        spec = ToolSpec(function=function, **described)
        declared.append(spec)
        return spec

    return declare if function is None else declare(function)
