"""What tool authors use: ``@tool``, ``Context``, ``Header``, ``ToolError``.

``@tool`` describes; it registers nothing outside the module that uses it. The registry finds the
specifications in the modules that it loads.
"""

import difflib
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from pydantic import GetJsonSchemaHandler
from pydantic_core import core_schema

from app.principal import Principal
from app.protocol.headers import SAFE_INTEGER
from app.protocol.schema import Implementation

DECLARED: Final = "__mcp_tools__"
"""Global of a module: the tools that it declares, in order."""

P = ParamSpec("P")
R = TypeVar("R")


class ToolError(Exception):
    """A failure that the model can act on: its text reaches the model as ``isError``.

    Any other exception reaches the caller as a generic text with an error id; only the log has
    the details (Tools, "Error Handling").
    """


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter that clients repeat in the HTTP header ``Mcp-Param-{name}``.

    Use: ``region: Annotated[str, Header("Region")]``. For str, int, bool and their Optional
    and Literal forms (Tools, "x-mcp-header"). Header values are visible to every proxy on the
    way: never mark a secret.
    """

    name: str

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Clients need one primitive type on an annotated property, so Optional is unfolded."""
        out = dict(handler(schema))
        choices = out.get("anyOf", [])
        kinds = [choice for choice in choices if choice.get("type") != "null"]
        if len(kinds) == 1:
            del out["anyOf"]
            out.update(kinds[0])
        if out.get("type") == "integer":
            out["minimum"] = max(-SAFE_INTEGER, out.get("minimum", -SAFE_INTEGER))
            out["maximum"] = min(SAFE_INTEGER, out.get("maximum", SAFE_INTEGER))
        return {**out, "x-mcp-header": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Icon:
    """An image for a tool: an http(s) or data URI (Overview, "``icons``")."""

    src: str
    mime_type: str | None = None
    sizes: Sequence[str] = ()
    theme: str | None = None

    def as_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"src": self.src}
        if self.mime_type is not None:
            out["mimeType"] = self.mime_type
        if self.sizes:
            out["sizes"] = list(self.sizes)
        if self.theme is not None:
            out["theme"] = self.theme
        return out


class Finished(Awaitable[None]):
    """Done already; ``await`` lets other work run once. Returned where awaiting is optional."""

    def __await__(self) -> Generator[None, None, None]:
        yield


FINISHED: Final = Finished()


class CallChannel(Protocol):
    """What a running call offers to its Context (see ``app.execution``)."""

    @property
    def is_over(self) -> bool: ...
    @property
    def remaining_s(self) -> float: ...
    def progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def log(self, level: str, data: Any, logger: str | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The call that a tool answers. Declare a parameter of this type to get it.

    Attributes:
        tool_name: The tool's name as served.
        request_id: JSON-RPC id of the request; unique only to its sender.
        principal: Who calls.
        protocol_version: Revision of the request.
        client: What the client says it is; for display only.
        meta: The request's ``_meta`` object.
        settings: ``[overrides."<tool>".settings]`` and their environment variables.
        lifespan: What the module's ``lifespan()`` yielded, else None.
    """

    tool_name: str
    request_id: str | int
    principal: Principal
    protocol_version: str
    client: Implementation | None
    meta: Mapping[str, Any]
    settings: Mapping[str, Any]
    lifespan: Any
    channel: CallChannel = field(repr=False)

    def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Tell the client how far the call is. From the event loop and from threads alike.

        Values that do not increase are dropped, floods are thinned out, and nothing is sent to
        a client that did not ask for progress. Awaiting the returned object is optional.

        Raises:
            TypeError, ValueError: Not a finite number, or the message is not text.
        """
        self.channel.progress(done, total, message)
        return FINISHED

    def log(self, level: str, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client if it asked for this level.

        The protocol has deprecated this feature; prefer progress, results and your own logs.

        Raises:
            ValueError: The level is not one of the eight of RFC 5424, or a number is not finite.
            TypeError: The data has no JSON form.
        """
        self.channel.log(level, data, logger)
        return FINISHED

    @property
    def cancelled(self) -> bool:
        """Whether the caller has gone or the deadline has passed. For threads to look at."""
        return self.channel.is_over

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; never negative."""
        return self.channel.remaining_s


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
    """

    name: str
    title: str | None
    description: str | None
    icons: Sequence[Icon | Mapping[str, Any]]
    annotations: Mapping[str, Any]
    timeout_s: float | None
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
