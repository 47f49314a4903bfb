"""What ``@tool`` was given, looked over: each option as the server uses it, or what is wrong.

Every function raises ``ToolDefinitionError`` where an option is not as ``ToolOptions`` says.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from app.policy.rules import HINTS, Own
from app.protocol.capabilities import ASKS
from app.registry.forms import form_of
from app.registry.signature import InputPlan
from app.settings import SCOPE_TOKEN, RateLimit, Record, Settings, ToolOverride
from app.toolkit import Icon, ToolSpec

MAX_CACHE_TTL_S: Final = 86_400
MAX_RETRIES: Final = 10
AUDIT: Final = ("on", "off", "required")
CACHE_SCOPES: Final = ("user", "tenant", "shared")


class ToolDefinitionError(ValueError):
    """A tool that cannot be served; the text says why."""


class ProcessLimits(NamedTuple):
    """What one call may use of a worker process."""

    memory_bytes: int
    cpu_s: float


class Caching(NamedTuple):
    """How long results are kept, and for whom: one caller, a tenant, or all."""

    ttl_s: float
    scope: str


def process_limits(spec: ToolSpec[..., Any], settings: Settings) -> ProcessLimits | None:
    """What a call may use of a worker process; None: it runs in the server's own."""
    if spec.isolation not in (None, "process"):
        raise ToolDefinitionError(f'isolation is {spec.isolation!r}; it can only be "process"')
    for option in ("max_memory_bytes", "max_cpu_s"):
        value = getattr(spec, option)
        if value is None:
            continue
        if spec.isolation is None:
            raise ToolDefinitionError(f'{option} is kept only with isolation="process"')
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ToolDefinitionError(f"{option} is {value!r}; it must be a number above 0")
    if spec.isolation is None:
        return None
    return ProcessLimits(
        int(spec.max_memory_bytes or settings.execution.process_memory_bytes),
        spec.max_cpu_s or settings.execution.process_cpu_s,
    )


def own_demands(spec: ToolSpec[..., Any]) -> Own:
    """What a tool demands of its callers."""
    for option in ("scopes", "roles", "approvals"):
        names = getattr(spec, option)
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise ToolDefinitionError(f'{option} must be a list of texts such as ["a:read"]')
    for scope in spec.scopes:
        if not SCOPE_TOKEN.match(scope):
            raise ToolDefinitionError(f"{scope!r} is no scope: one word, without quotes")
    return Own(
        frozenset(spec.scopes), frozenset(spec.roles), spec.clearance, frozenset(spec.approvals)
    )


def rate_limit(spec: ToolSpec[..., Any]) -> RateLimit | None:
    """How many calls in a while."""
    if spec.rate_limit is None:
        return None
    try:
        return RateLimit.model_validate(spec.rate_limit)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'all'}: {each['msg']}" for each in error.errors()
        )
        example = '{"bucket": "user", "capacity": 5, "period_s": 60}'
        raise ToolDefinitionError(f"rate_limit must be as {example}: {problems}") from None


def max_concurrent(spec: ToolSpec[..., Any]) -> int | None:
    """How many calls at once."""
    value = spec.max_concurrent
    if value is not None and (type(value) is not int or value < 1):
        raise ToolDefinitionError(f"max_concurrent is {value!r}; it must be a whole number above 0")
    return value


def asked(spec: ToolSpec[..., Any], arguments: InputPlan) -> tuple[str, ...]:
    """The capabilities that a client needs, because the tool may ask for what they give."""
    if isinstance(spec.asks, str):
        raise ToolDefinitionError('asks must be a list such as ["elicitation"]')
    names = []
    for each in spec.asks:
        if isinstance(each, str):
            if each not in ASKS:
                raise ToolDefinitionError(f"asks has {each!r}; known are {', '.join(ASKS)}")
            names.append(each)
        else:
            form_of(each)
            names.append("elicitation")
    if spec.single_use and not names:
        raise ToolDefinitionError("single_use is for tools that ask; say what in asks")
    if names and spec.isolation is not None:
        raise ToolDefinitionError(
            'it asks the client, which a tool with isolation="process" cannot; leave one out'
        )
    if names and not inspect.iscoroutinefunction(spec.function):
        raise ToolDefinitionError("it asks the client, which only an async tool can: `async def`")
    if names and arguments.context_parameter is None:
        raise ToolDefinitionError("it asks the client and takes no Context to ask with")
    return tuple(name for name in ASKS if name in names)


def wire_annotations(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """``ToolAnnotations``, by the names of the protocol."""
    if not isinstance(annotations, Mapping):
        raise ToolDefinitionError('annotations must be a mapping such as {"read_only": True}')
    out = {}
    for key, value in annotations.items():
        wire = HINTS.get(key, key)
        if wire in HINTS.values() and not isinstance(value, bool):
            raise ToolDefinitionError(f"the annotation {key!r} must be True or False")
        if wire == "title" and not isinstance(value, str):
            raise ToolDefinitionError("the annotation 'title' must be text")
        out[wire] = value
    return out


def wire_icon(icon: Any) -> dict[str, Any]:
    """An ``Icon`` of the protocol."""
    if not isinstance(icon, (Mapping, Icon)):
        raise ToolDefinitionError(f"the icon {icon!r} must be written Icon(src={icon!r})")
    value: dict[str, Any] = dict(icon) if isinstance(icon, Mapping) else icon.as_json()
    source = value.get("src")
    # Overview, "icons": clients must reject every other scheme.
    if not isinstance(source, str) or urlsplit(source).scheme not in {"http", "https", "data"}:
        raise ToolDefinitionError(f"the icon {source!r} is not an http(s) or data URI")
    return value


def caching(spec: ToolSpec[..., Any], override: ToolOverride) -> Caching | None:
    """How long results are kept; None: they are not."""
    if spec.cache_scope not in CACHE_SCOPES:
        known = ", ".join(f'"{scope}"' for scope in CACHE_SCOPES)
        raise ToolDefinitionError(f"cache_scope is {spec.cache_scope!r}; it can be {known}")
    for ttl_s in (spec.cache_ttl_s, override.cache_ttl_s):
        if ttl_s is None or ttl_s == 0:
            continue
        if not _is_number(ttl_s) or not 0 < ttl_s <= MAX_CACHE_TTL_S:
            raise ToolDefinitionError(
                f"cache_ttl_s is {ttl_s!r}; it must be above 0 and at most {MAX_CACHE_TTL_S} s"
            )
        if not _declares(spec, "readOnlyHint"):
            raise ToolDefinitionError(
                "cache_ttl_s is for tools that only read: declare "
                'annotations={"read_only": True}, or leave it out'
            )
    ttl_s = spec.cache_ttl_s if override.cache_ttl_s is None else override.cache_ttl_s
    return Caching(ttl_s, spec.cache_scope) if ttl_s else None


def audit(spec: ToolSpec[..., Any], override: ToolOverride, settings: Settings) -> str:
    """Whether calls are put on record."""
    value = override.audit or spec.audit
    if value not in AUDIT:
        known = ", ".join(f'"{each}"' for each in AUDIT)
        raise ToolDefinitionError(f"audit is {value!r}; it can be {known}")
    if value == "required" and settings.audit.directory is None:
        raise ToolDefinitionError(
            'audit="required" needs a record: set [audit] directory, or override it with "on"'
        )
    return value


def retries(spec: ToolSpec[..., Any]) -> int:
    """How often a call that failed for a passing reason is run again."""
    value = spec.retries
    if type(value) is not int or not 0 <= value <= MAX_RETRIES:
        raise ToolDefinitionError(
            f"retries is {value!r}; it must be a whole number from 0 to {MAX_RETRIES}"
        )
    if value and not (_declares(spec, "idempotentHint") or _declares(spec, "readOnlyHint")):
        raise ToolDefinitionError(
            "retries is for tools that may be run twice: declare "
            'annotations={"idempotent": True} or {"read_only": True}, or leave it out'
        )
    return value


def record(spec: ToolSpec[..., Any], override: ToolOverride, settings: Settings) -> Record:
    """Which calls are kept so that they can be run again."""
    if spec.record not in (None, *get_args(Record)):
        known = ", ".join(f'"{each}"' for each in get_args(Record))
        raise ToolDefinitionError(f"record is {spec.record!r}; it can be {known}")
    return override.record or spec.record or settings.recording.record


def log_arguments(spec: ToolSpec[..., Any], override: ToolOverride) -> bool:
    """Whether the log shows the arguments of its calls."""
    if type(spec.log_arguments) is not bool:
        raise ToolDefinitionError(f"log_arguments is {spec.log_arguments!r}; it is True or False")
    return spec.log_arguments if override.log_arguments is None else override.log_arguments


def _declares(spec: ToolSpec[..., Any], hint: str) -> bool:
    return any(
        HINTS.get(key, key) == hint and value is True for key, value in spec.annotations.items()
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
