"""What the log says of a result and of arguments: their kinds, or a bounded part."""

import re
from typing import Any, Final

from app.observability.logs import encoded, redacted
from app.protocol.jsonrpc import loads_encoded

MAX_ITEMS: Final = 20
MAX_DEPTH: Final = 4
MAX_TEXT: Final = 200
MAX_BYTES: Final = 4096
"""Bounds of the arguments in a line: members of each object and list, levels, characters of each
text, and bytes of all."""

MAX_READ: Final = 4000
"""A longer text is not shown at all. What is cut before it was looked at for secrets may show half
of one, and to look through all of it would take too long."""

MAX_LOOKED_AT: Final = 16_000
"""Characters of all texts that are looked at for secrets."""

CUT: Final = "(cut)"
STRUCTURED: Final = "structured"
OTHER: Final = "other"
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource_link", "resource"})
_SHORT: Final = 8192

# A result with one text, as most are: to the end of the text, without reading it as JSON. The
# quantifiers never give back, so the time is linear.
_ONE_TEXT: Final = re.compile(
    rb'\{"resultType":"complete","content":\[\{"type":"text","text":"[^"\\]*+(?:\\.[^"\\]*+)*+"\}\],'
)
_IS_STRUCTURED: Final = b'"structuredContent":'


def content_types(result: bytes) -> list[str]:
    """The types of the blocks of an encoded result of a tool, each once, and ``structured``.

    Args:
        result: As ``ServerMessages`` has encoded it. What a worker process has made of it instead
            is of type ``other``.
    """
    match = _ONE_TEXT.match(result) if len(result) <= _SHORT else None
    if match is not None:
        structured = result.startswith(_IS_STRUCTURED, match.end())
        return ["text", STRUCTURED] if structured else ["text"]
    try:
        decoded = loads_encoded(result)
        found = [block["type"] for block in decoded.get("content", ())]
        types = {kind if kind in _BLOCKS else OTHER: None for kind in found}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return [OTHER]
    if "structuredContent" in decoded:
        types[STRUCTURED] = None
    return list(types)


def shown(arguments: dict[str, Any]) -> Any:
    """Arguments as a line of the log shows them: masked as configured, and bounded."""
    masked = redacted(_Bounds().of(arguments, MAX_DEPTH))
    short = _cut(masked)
    return short if len(encoded(short)) <= MAX_BYTES else CUT


class _Bounds:
    """Takes out of JSON data what is too much to be looked at."""

    def __init__(self) -> None:
        self._left = MAX_LOOKED_AT

    def of(self, value: Any, depth: int) -> Any:
        match value:
            case str():
                return self._text(value)
            case dict() if depth:
                kept = list(value.items())[:MAX_ITEMS]
                short = {self._text(key): self.of(each, depth - 1) for key, each in kept}
                return short if len(kept) == len(value) else {**short, CUT: CUT}
            case list() if depth:
                items = [self.of(each, depth - 1) for each in value[:MAX_ITEMS]]
                return items if len(items) == len(value) else [*items, CUT]
            case dict() | list():
                return CUT
            case int() if value.bit_length() >= 64:  # JSON of the log has no larger ones
                return CUT
        return value

    def _text(self, text: str) -> str:
        self._left -= len(text)
        return text if len(text) <= MAX_READ and self._left >= 0 else CUT


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > MAX_TEXT:
            return value[:MAX_TEXT] + CUT
        case dict():
            return {_cut(key): _cut(each) for key, each in value.items()}
        case list():
            return [_cut(each) for each in value]
    return value
