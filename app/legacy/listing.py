"""``tools/list`` for a client of an older revision."""

from collections.abc import Mapping
from typing import Any, Final

from app.legacy.encoding import decode, encode, own_meta
from app.legacy.revisions import Revision
from app.legacy.schemas import input_schema, output_schema
from app.protocol.jsonrpc import dumps

_HINTS: Final = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""``ToolAnnotations``, since there are any."""


def listed(page: bytes, revision: Revision) -> bytes:
    """A ``ListToolsResult`` of the revision from one of 2026-07-28.

    Always the same for the same page, so a caller may keep it.
    """
    result = decode(page)
    tools = b",".join(dumps(tool(each, revision)) for each in result["tools"])
    out: dict[str, Any] = {}
    if meta := own_meta(result.get("_meta", {})):
        out["_meta"] = meta
    if "nextCursor" in result:
        out["nextCursor"] = result["nextCursor"]
    out["tools"] = b"[%b]" % tools
    return encode(out)


def tool(definition: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """One ``Tool`` in the revision's vocabulary."""
    out: dict[str, Any] = {"name": definition["name"]}
    if revision.titles and "title" in definition:
        out["title"] = definition["title"]
    if "description" in definition:
        out["description"] = definition["description"]
    if revision.icons and "icons" in definition:
        out["icons"] = definition["icons"]
    out["inputSchema"] = input_schema(definition["inputSchema"])
    if revision.structured and "outputSchema" in definition:
        out["outputSchema"] = output_schema(definition["outputSchema"])
    if revision.tool_annotations and (annotations := _annotations(definition, revision)):
        out["annotations"] = annotations
    if revision.block_meta and (meta := own_meta(definition.get("_meta", {}))):
        out["_meta"] = meta
    return out


def _annotations(definition: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    given = definition.get("annotations", {})
    out = {key: given[key] for key in _HINTS if key in given}
    if not revision.titles and "title" in definition:
        # The one place for a title in 2025-03-26. Where there are two, the tool's own is shown.
        out["title"] = definition["title"]
    return out
