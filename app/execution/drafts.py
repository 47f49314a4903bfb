"""Results on their way through the hooks: what a tool returned, not checked and encoded yet."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.content import NO_STRUCTURED_CONTENT
from app.protocol.jsonrpc import loads_encoded
from app.toolkit import CallResult

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": (),
}
"""Members of each kind of block that are texts and must be there (``ContentBlock``)."""


class BadBlock(ValueError):
    """A content block that the protocol does not have; the text says why."""


class BadDraft(ValueError):
    """A result that cannot be read again; the text says why."""


def draft_of(result: CallResult) -> dict[str, Any]:
    """A result as JSON data, which ``read_draft`` reads: not yet what is sent."""
    draft: dict[str, Any] = {"isError": result.is_error}
    if result.structured_content is not NO_STRUCTURED_CONTENT:
        draft["structuredContent"] = result.structured_content
    if result.content is not None:
        draft["content"] = result.content
    if result.meta:
        draft["_meta"] = result.meta
    return draft


def read_draft(encoded: bytes) -> CallResult:
    """The counterpart of ``draft_of``, once it was encoded.

    Raises:
        BadDraft: It is none.
    """
    try:
        draft: Mapping[str, Any] = loads_encoded(encoded)
    except (ValueError, RecursionError) as error:
        raise BadDraft(f"what the tool returned cannot be given to hooks: {error}") from None
    return CallResult(
        structured_content=draft.get("structuredContent", NO_STRUCTURED_CONTENT),
        content=draft.get("content"),
        is_error=draft["isError"],
        meta=draft.get("_meta", {}),
    )


def check_blocks(blocks: Any) -> list[dict[str, Any]]:
    """Content blocks as hooks have left them.

    Raises:
        BadBlock: One is none of the protocol's kinds, or lacks what its kind needs.
    """
    if isinstance(blocks, (str, bytes)) or not isinstance(blocks, Sequence):
        raise BadBlock("content is no list of blocks")
    checked = []
    for index, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str) or kind not in _REQUIRED:
            raise BadBlock(f"content[{index}] has none of the types {', '.join(_REQUIRED)}")
        for member in _REQUIRED[kind]:
            if not isinstance(block.get(member), str):
                raise BadBlock(f"content[{index}].{member} must be text")
        if kind == "resource" and not isinstance(block.get("resource"), Mapping):
            raise BadBlock(f"content[{index}].resource must be an object")
        checked.append(dict(block))
    return checked
