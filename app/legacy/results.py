"""``tools/call`` for a client of an older revision: a result that is one."""

from typing import Any

from app.legacy.blocks import blocks
from app.legacy.encoding import decode, encode, own_meta
from app.legacy.revisions import Revision
from app.legacy.schemas import WRAPPED
from app.protocol.jsonrpc import dumps


def called(result: bytes, revision: Revision, *, wraps: bool) -> bytes:
    """A ``CallToolResult`` of the revision from one of 2026-07-28.

    Args:
        result: Complete: a result that asks has no form here, see ``app.legacy.asking``.
        wraps: What ``app.legacy.schemas.wraps`` says about the tool's ``outputSchema``. What was
            listed under ``result`` comes there, even where this value of it is an object.
    """
    given = decode(result)
    if given["resultType"] != "complete":
        raise ValueError(f"a result of type {given['resultType']!r} is no CallToolResult")
    out: dict[str, Any] = {"content": blocks(given["content"], revision)}
    if revision.structured and "structuredContent" in given:
        value = given["structuredContent"]
        encoded = dumps(value)
        if wraps or not isinstance(value, dict):
            encoded = encode({WRAPPED: encoded})
        out["structuredContent"] = encoded
    out["isError"] = given.get("isError", False)
    if meta := own_meta(given.get("_meta", {})):
        out["_meta"] = meta
    return encode(out)
