"""The hooks that are built in: ``redact`` and ``injection``."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.content import NO_STRUCTURED_CONTENT
from app.guards.injection import find_injection
from app.guards.redaction import Redactor
from app.guards.spans import Kind
from app.toolkit import CallResult, HookCall, ToolError

FLAGS_KEY: Final = "mcp-tool-server/flags"
"""``_meta`` of a result: what was found in the arguments that it answers."""

LONG_CHARACTERS: Final = 32 * 1024
"""Texts beyond this are looked through beside the event loop."""

log = structlog.get_logger()
T = TypeVar("T", bound=BaseModel)

Functions = tuple[Sequence[Callable[..., Any]], Sequence[Callable[..., Any]]]
"""What runs before, and what runs after."""


class BadOptions(ValueError):
    """Options of a hook that it does not understand; the text says what would be right."""


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class RedactOptions(_Options):
    """``options`` of ``use = "redact"``."""

    kinds: Annotated[
        tuple[Kind, ...],
        Field(min_length=1, description="What is masked: email, phone, card, national_id, secret."),
    ] = ("email", "phone", "card", "national_id", "secret")
    locales: Annotated[
        tuple[str, ...],
        Field(description='Countries, as "us" or "de": whose phone numbers and national ids.'),
    ] = ()
    keep_last: Annotated[
        int,
        Field(ge=0, le=4, description="Digits that stay of cards, phone numbers and national ids."),
    ] = 4


class InjectionOptions(_Options):
    """``options`` of ``use = "injection"``."""

    mode: Annotated[
        Literal["log", "flag", "refuse"],
        Field(
            description="What happens when arguments look like instructions to a model: a line in "
            "the log; also a flag in `_meta` of the result; or the call is refused."
        ),
    ] = "log"


def redact(options: Mapping[str, Any]) -> Functions:
    """Mask personal data and secrets in results."""
    chosen = _checked(RedactOptions, options)
    try:
        redactor = Redactor(chosen.kinds, locales=chosen.locales, keep_last=chosen.keep_last)
    except ValueError as error:
        raise BadOptions(str(error)) from None

    def masked(result: CallResult) -> CallResult:
        structured = result.structured_content
        if structured is not NO_STRUCTURED_CONTENT:
            structured = redactor.data(structured)
        content = result.content
        if content is not None:
            content = [_masked_block(redactor, block) for block in content]
        meta = redactor.data(dict(result.meta)) if result.meta else result.meta
        return dataclasses.replace(
            result, structured_content=structured, content=content, meta=meta
        )

    async def mask(_: HookCall, result: CallResult) -> CallResult:
        if _is_long(result):
            return await asyncio.to_thread(masked, result)
        return masked(result)

    return (), (mask,)


def injection(options: Mapping[str, Any]) -> Functions:
    """Notice arguments that look like instructions to a model."""
    mode = _checked(InjectionOptions, options).mode

    async def look(call: HookCall) -> None:
        if _has_more(call.arguments, LONG_CHARACTERS):
            findings = await asyncio.to_thread(find_injection, call.arguments)
        else:
            findings = find_injection(call.arguments)
        if not findings:
            return
        found = [{"argument": finding.path, "pattern": finding.pattern} for finding in findings]
        log.warning("injection_suspected", tool=call.tool_name, mode=mode, found=found)
        if mode == "refuse":
            places = ", ".join(dict.fromkeys(finding.path for finding in findings))
            raise ToolError(
                f"The call was refused: {places} holds what looks like instructions to a model "
                f"({', '.join(dict.fromkeys(finding.pattern for finding in findings))})."
            )
        call.notes[FLAGS_KEY] = found

    def flag(call: HookCall, result: CallResult) -> CallResult | None:
        found = call.notes.get(FLAGS_KEY)
        if not found:
            return None
        return dataclasses.replace(result, meta={**result.meta, FLAGS_KEY: found})

    return (look,), ((flag,) if mode == "flag" else ())


BUILT_IN: Final[Mapping[str, Callable[[Mapping[str, Any]], Functions]]] = {
    "redact": redact,
    "injection": injection,
}
"""By the name that ``[[hooks]]`` uses."""

MASKING: Final = frozenset({"redact"})
"""Those that take values out of results: what is left may be no result any more."""

OPTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "redact": RedactOptions,
    "injection": InjectionOptions,
}


def _checked(model: type[T], options: Mapping[str, Any]) -> T:
    try:
        return model.model_validate(options)
    except ValidationError as error:
        problems = "; ".join(
            f"options.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        known = ", ".join(model.model_fields)
        raise BadOptions(f"{problems} (options are {known})") from None


def _masked_block(redactor: Redactor, block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content block with its texts masked; what is encoded bytes stays as it is."""
    kept = {key: block[key] for key in ("type", "data", "mimeType") if key in block}
    data = {key: value for key, value in block.items() if key not in kept}
    resource = data.get("resource")
    blob = None
    if isinstance(resource, Mapping) and "blob" in resource:
        blob = resource["blob"]
        data["resource"] = {key: value for key, value in resource.items() if key != "blob"}
    masked = redactor.data(data)
    if blob is not None:
        masked["resource"]["blob"] = blob
    return {**kept, **masked}


def _is_long(result: CallResult) -> bool:
    structured = result.structured_content
    texts = [result.content, None if structured is NO_STRUCTURED_CONTENT else structured]
    return _has_more(texts, LONG_CHARACTERS)


def _has_more(value: Any, characters: int) -> bool:
    """Whether the texts of JSON data have more than so many characters together."""
    stack, seen = [value], 0
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            seen += len(item)
        elif isinstance(item, Mapping):
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, (list, tuple)):
            stack += item
        seen += 1
        if seen > characters:
            return True
    return False
