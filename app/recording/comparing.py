"""Whether two results are the same, and how they differ.

Compared is what a tool has said: structured content, content blocks, ``isError`` and questions.
Not compared is what differs between any two runs or servers: ``_meta``, the sealed state of
questions, error ids, and a text block that repeats the structured content. Times are data like
any other: nobody but the tool's author knows which of them may differ.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from app.protocol.jsonrpc import canonical, loads_encoded
from app.recording.masking import result_to_keep

CONTEXT_LINES: Final = 2
_ERROR_ID: Final = re.compile(r"\(error id [^)]{0,64}\)")


def comparable(result: Mapping[str, Any], ignored: Collection[str] = ()) -> dict[str, Any]:
    """What is compared of a result object.

    Args:
        ignored: Names of members of the structured content that do not count, at any depth.
    """
    kept = result_to_keep(result)
    content = kept.get("content")
    if isinstance(content, list):
        if "structuredContent" in kept:
            structured = kept["structuredContent"]
            content = [block for block in content if not _repeats(block, structured)]
        if kept.get("isError") is True:
            content = [_without_error_id(block) for block in content]
        kept["content"] = content
        if not content and "structuredContent" in kept:
            del kept["content"]
    if ignored and "structuredContent" in kept:
        kept["structuredContent"] = _without(kept["structuredContent"], ignored)
    return kept


def digest(result: Mapping[str, Any]) -> str:
    """SHA-256 of what is compared, in hexadecimal."""
    return hashlib.sha256(canonical(comparable(result))).hexdigest()


def difference(before: Any, after: Any) -> str:
    """A unified diff of two values as indented JSON; empty where they are the same."""
    if canonical(before) == canonical(after):
        return ""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), "recorded", "replayed", lineterm="", n=CONTEXT_LINES
    )
    return "\n".join(lines)


def readable(value: Any) -> str:
    """Indented JSON for people: what a terminal would obey, or not show, is written as escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    if text.isascii():
        return text
    return "".join(
        each if each == "\n" or each.isprintable() else json.dumps(each)[1:-1] for each in text
    )


def _lines(value: Any) -> list[str]:
    return readable(value).split("\n")


def _repeats(block: Any, structured: Any) -> bool:
    """Whether a text block says no more than the structured content."""
    if not isinstance(block, Mapping) or block.get("type") != "text" or len(block) != 2:
        return False
    text = block.get("text")
    if text == structured:
        return True
    try:
        return canonical(loads_encoded(str(text).encode())) == canonical(structured)
    except (ValueError, RecursionError, TypeError):
        return False


def _without_error_id(block: Any) -> Any:
    if isinstance(block, Mapping) and isinstance(block.get("text"), str):
        return {**block, "text": _ERROR_ID.sub("(error id)", block["text"])}
    return block


def _without(value: Any, ignored: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _without(each, ignored) for key, each in value.items() if key not in ignored}
    if isinstance(value, list):
        return [_without(each, ignored) for each in value]
    return value
