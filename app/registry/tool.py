"""One tool, compiled: everything that a call needs is looked up, never worked out."""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs
import orjson
from jsonschema.protocols import Validator
from pydantic import ValidationError

from app.content import check_meta
from app.policy.rules import Own
from app.protocol.errors import ParseError
from app.protocol.headers import InvalidAnnotation, MirroredParameter, mirrored_parameters
from app.protocol.jsonrpc import dumps, loads
from app.registry.effective import NoJsonForm, effective_arguments
from app.registry.explain import explain, explain_binding
from app.registry.options import (
    Caching,
    ProcessLimits,
    ToolDefinitionError,
    asked,
    audit,
    caching,
    log_arguments,
    max_concurrent,
    own_demands,
    process_limits,
    rate_limit,
    record,
    retries,
    wire_annotations,
    wire_icon,
)
from app.registry.schemas import (
    SchemaError,
    allows_strings,
    check_schema,
    compile_explainer,
    compile_validator,
)
from app.registry.signature import (
    InputPlan,
    OutputPlan,
    SignatureError,
    describe,
    input_plan,
    output_plan,
    refuse_secret,
)
from app.registry.validation import validated
from app.settings import (
    ENVIRONMENT_TOOL,
    MAX_DEADLINE_S,
    RateLimit,
    Record,
    Settings,
    ToolOverride,
)
from app.toolkit import ToolSpec

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
PORTABLE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""What many hosts accept; a name outside it is served with a warning."""


SHORT_VERSION: Final = 12


class InvalidArguments(Exception):
    """Arguments that do not fit. ``reasons`` are sentences for the model."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A tool as served in one snapshot.

    Attributes:
        definition: The ``Tool`` object of the schema, encoded.
        mirrored: Its header plan.
        rate_limit: How many calls in a while, besides what the settings say for many tools.
        max_concurrent: How many calls of it may run at once; None: as many as of all tools.
        is_async: Whether its function is a coroutine function.
        process: What a call may use of a worker process; None: it runs in the server's own.
        runs_in: ``loop``, ``thread`` or ``process``.
        source: What the module loader knows of its file; opaque here.
        annotations: As its author wrote them.
        own: What it demands of callers by itself.
        arguments: The names of its arguments, as far as the input schema lists them.
        asks: Capabilities that a client needs, because the tool may ask for what they give.
        single_use: Whether answers to its questions count once.
        caching: How long results are kept; None: they are not.
        retries: How often a call that failed for a passing reason is run again.
        audit: Whether its calls are put on record: ``on``, ``off``, or ``required``, without which
            it does not run.
        record: Which calls are kept so that they can be run again: ``errors``, ``all``, ``none``.
        version: Equal for equal code, definition and settings, on every replica.
        short_version: Its beginning as text, for the log.
        log_arguments: Whether the log shows the arguments of its calls.
    """

    name: str
    function: Callable[..., Any]
    definition: bytes
    input: InputPlan
    output: OutputPlan
    mirrored: tuple[MirroredParameter, ...]
    is_async: bool
    process: ProcessLimits | None
    runs_in: str
    timeout_s: float
    rate_limit: RateLimit | None
    max_concurrent: int | None
    settings: Mapping[str, Any]
    structured: bool
    source: Any
    annotations: Mapping[str, Any]
    own: Own
    arguments: frozenset[str]
    asks: tuple[str, ...]
    single_use: bool
    caching: Caching | None
    retries: int
    audit: str
    record: Record
    version: bytes
    short_version: str
    log_arguments: bool
    _accepts: jsonschema_rs.Draft202012Validator
    _explainer: "_LazyExplainer"
    _conforms: jsonschema_rs.Draft202012Validator | None
    _decodable: frozenset[str]
    _known: frozenset[str] | None
    _optional_mirrored: tuple[tuple[str, ...], ...]

    def prepare(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Validate arguments: those that count, and the function's keyword arguments.

        The latter are left to the worker where there is one: types of the author's are not
        tried out here.

        Raises:
            InvalidArguments: They do not satisfy the input schema or the Python types.
        """
        for path in self._optional_mirrored:
            arguments = _without_null(arguments, path)
        if self._known is not None:
            arguments = {key: arguments[key] for key in arguments if key in self._known}
        if not self._accepts.is_valid(arguments):
            arguments = self._decoded(arguments)
        if self.process is not None:
            return arguments, arguments
        return arguments, self._bind(arguments)

    def effective(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function gets them, by the names that clients know, in JSON.

        Args:
            keywords: What ``prepare`` has returned.

        Raises:
            InvalidArguments: One has no JSON form, so that no rule can look at it; or, of a tool
                in a process, they do not satisfy the Python types.
        """
        plan = self.input
        if self.process is not None:
            # A rule looks at what the worker will make of them.
            keywords = self._bind(keywords)
        try:
            return effective_arguments(keywords, plan.names, plan.defaults)
        except NoJsonForm as error:
            reason = f"{error.name}: has no JSON form, so the rules cannot look at it"
            raise InvalidArguments([reason]) from None

    def _bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.input.bind(arguments)
        except ValidationError as error:
            raise InvalidArguments(explain_binding(error)) from None

    def conforms(self, value: Any) -> bool:
        """Whether plain JSON data satisfies the output schema, where there is one."""
        return self._conforms is None or self._conforms.is_valid(value)

    def _decoded(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Undo what some hosts do: a list, object, number or boolean sent as its JSON text.

        Only where no string is allowed, so that a genuine string is never touched.
        """
        decoded = {key: self._decode(key, value) for key, value in arguments.items()}
        if not self._accepts.is_valid(decoded):
            raise InvalidArguments(explain(self._explainer.get(), decoded))
        return decoded

    def _decode(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and key in self._decodable:
            try:
                decoded = loads(value.encode())
            except ParseError:
                return value
            # "null" is left alone: whether it means null or is a mistake cannot be known.
            return value if decoded is None or isinstance(decoded, str) else decoded
        return value


def call_began(tool: Tool) -> None:
    """Count a call, so that the code it runs is not closed under it."""
    tool.source.begin()


def call_ended(tool: Tool) -> None:
    """The counterpart of ``call_began``, when the tool's code has really ended."""
    tool.source.end()


class _LazyExplainer:
    """Compiled when the first bad arguments come; most tools never need it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._explainer: Validator | None = None

    def get(self) -> Validator:
        if self._explainer is None:
            self._explainer = compile_explainer(self._schema, what="inputSchema")
        return self._explainer


def compile_tool(spec: ToolSpec[..., Any], *, name: str, source: Any, settings: Settings) -> Tool:
    """Compile a declared tool under the name that it is served by.

    Raises:
        ToolDefinitionError: With the reason.
    """
    try:
        return _compile(spec, name=name, source=source, settings=settings)
    except ToolDefinitionError:
        raise
    except (SchemaError, InvalidAnnotation, SignatureError, ValueError) as error:
        raise ToolDefinitionError(str(error)) from error
    except Exception as error:  # whatever a wrong argument of @tool leads to
        raise ToolDefinitionError(f"{type(error).__name__}: {error}") from error


def _compile(spec: ToolSpec[..., Any], *, name: str, source: Any, settings: Settings) -> Tool:
    if not TOOL_NAME.match(name):
        raise ToolDefinitionError(
            f"the name {name!r} is not 1 to 128 characters of A-Z a-z 0-9 _ . -"
        )
    if spec.timeout_s is not None and not 0 < spec.timeout_s <= MAX_DEADLINE_S:
        raise ToolDefinitionError(
            f"timeout_s is {spec.timeout_s}; it must be above 0 and at most {MAX_DEADLINE_S} s"
        )
    if inspect.isasyncgenfunction(spec.function) or inspect.isgeneratorfunction(spec.function):
        raise ToolDefinitionError("it is a generator; a tool returns one result")
    refuse_unknown = settings.tools.unknown_arguments == "refuse"
    if spec.allow_unknown_arguments is not None:
        refuse_unknown = not spec.allow_unknown_arguments
    arguments = input_plan(spec, refuse_unknown=refuse_unknown)
    result = output_plan(spec)
    check_schema(arguments.schema, what="inputSchema", root_object=True)
    mirrored = mirrored_parameters(arguments.schema)
    for parameter in mirrored:
        refuse_secret(parameter.path[-1], parameter.name)
    if result.schema is not None:
        check_schema(result.schema, what="outputSchema", root_object=False)
    override = override_for(name, settings.overrides)
    required = arguments.schema.get("required", ())
    is_async = inspect.iscoroutinefunction(spec.function)
    process = process_limits(spec, settings)
    properties: Mapping[str, Any] = arguments.schema.get("properties", {})
    definition = dumps(_definition(spec, name, arguments, result, override))
    version = _version(name, source, definition, override)
    drops_unknown = spec.input_schema is None and not refuse_unknown
    return Tool(
        name=name,
        function=validated(spec.function, spec.validate),
        definition=definition,
        input=arguments,
        output=result,
        mirrored=mirrored,
        is_async=is_async,
        process=process,
        runs_in="process" if process is not None else "loop" if is_async else "thread",
        timeout_s=override.timeout_s or spec.timeout_s or settings.execution.timeout_s,
        rate_limit=override.rate_limit or rate_limit(spec),
        max_concurrent=override.max_concurrent or max_concurrent(spec),
        settings=override.settings,
        structured=spec.structured,
        source=source,
        annotations=spec.annotations,
        own=own_demands(spec),
        arguments=frozenset(properties),
        asks=asked(spec, arguments),
        single_use=spec.single_use,
        caching=caching(spec, override),
        retries=retries(spec),
        audit=audit(spec, override, settings),
        record=record(spec, override, settings),
        version=version,
        short_version=version.hex()[:SHORT_VERSION],
        log_arguments=log_arguments(spec, override),
        _accepts=compile_validator(arguments.schema, what="inputSchema"),
        _explainer=_LazyExplainer(arguments.schema),
        _conforms=None
        if result.schema is None
        else compile_validator(result.schema, what="outputSchema"),
        _decodable=frozenset(
            key for key, value in properties.items() if not allows_strings(value, arguments.schema)
        ),
        _known=frozenset(properties) if drops_unknown else None,
        _optional_mirrored=tuple(
            parameter.path
            for parameter in mirrored
            if len(parameter.path) > 1 or parameter.path[0] not in required
        ),
    )


def _definition(
    spec: ToolSpec[..., Any],
    name: str,
    arguments: InputPlan,
    result: OutputPlan,
    override: ToolOverride,
) -> dict[str, Any]:
    description, _ = describe(spec)
    out: dict[str, Any] = {"name": name}
    if title := override.title or spec.title:
        out["title"] = title
    if description := override.description or description:
        out["description"] = description
    if spec.icons:
        out["icons"] = [wire_icon(icon) for icon in spec.icons]
    out["inputSchema"] = arguments.schema
    if result.schema is not None:
        out["outputSchema"] = result.schema
    if spec.annotations:
        out["annotations"] = wire_annotations(spec.annotations)
    if spec.meta:
        check_meta(spec.meta)
        out["_meta"] = dict(spec.meta)
    return out


def _version(name: str, source: Any, definition: bytes, override: ToolOverride) -> bytes:
    code = getattr(source, "key", "")
    parts = (name, code, definition.decode(), override.model_dump_json())
    return hashlib.sha256(dumps(parts)).digest()


def override_for(name: str, overrides: Mapping[str, ToolOverride]) -> ToolOverride:
    """The override of a tool; one from the environment is laid over one from the file.

    In the environment ``FINANCE_CONVERT`` stands for ``finance.convert``.
    """
    of_file = overrides.get(name)
    of_environment = overrides.get(ENVIRONMENT_TOOL + environment_name(name))
    if of_file is None or of_environment is None:
        return of_file or of_environment or ToolOverride()
    merged = of_file.model_dump(exclude_unset=True) | of_environment.model_dump(exclude_unset=True)
    merged["settings"] = {**of_file.settings, **of_environment.settings}
    return ToolOverride.model_validate(merged)


def environment_name(name: str) -> str:
    """How a tool is named in ``MCP__OVERRIDES__NAME__...``, in lower case."""
    return re.sub(r"[._-]+", "_", name.lower())


def fingerprint(definitions: list[bytes]) -> str:
    """Hex digest that is equal on every replica which serves these definitions."""
    digest = hashlib.sha256()
    for definition in definitions:
        digest.update(b"%d:" % len(definition))
        digest.update(definition)
    return digest.hexdigest()


def _without_null(node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The same without a null at the path. A copy: what the client sent stays as it was."""
    key, rest = path[0], path[1:]
    if key not in node:
        return node
    child = node[key]
    if not rest:
        return {name: node[name] for name in node if name != key} if child is None else node
    if not isinstance(child, dict):
        return node
    changed = _without_null(child, rest)
    return node if changed is child else {**node, key: changed}


def definition_of(tool: Tool) -> dict[str, Any]:
    """The decoded ``Tool`` object, for people."""
    value: dict[str, Any] = orjson.loads(tool.definition)
    return value
