"""``tools/call`` for a client of an older revision: a result that is one."""

import re
from collections.abc import Mapping
from typing import Any, Final

from app.legacy.blocks import blocks
from app.legacy.encoding import decode, encode, own_meta
from app.legacy.revisions import Revision
from app.legacy.schemas import WRAPPED
from app.protocol.jsonrpc import dumps
from app.protocol.schema import SERVER_INFO_KEY


class Quick:
    """Translates what most calls give: one text, no error, and nothing in ``_meta``.

    Such a result is cut out of the encoded one. The text is matched as a whole, so nothing in it
    can be taken for what follows.

    Args:
        server_info: ``Implementation`` object of this server, as results have it.
    """

    def __init__(self, server_info: Mapping[str, Any]) -> None:
        meta = dumps({SERVER_INFO_KEY: server_info})
        self._end = b'"isError":false,"_meta":%b}' % meta
        self._cut = len(b',"_meta":%b}' % meta)

    def __call__(self, result: bytes, revision: Revision, *, wraps: bool) -> bytes | None:
        """A ``CallToolResult`` of the revision; None: not one of those. Arguments as ``called``."""
        found = _ONE_TEXT.match(result)
        if found is None or not result.endswith(self._end):
            return None
        text = found.end()
        if not revision.structured:
            return b'{%b"isError":false}' % result[_START:text]
        has_structured = text < len(result) - len(self._end)
        if has_structured and (wraps or not result.startswith(_OBJECT, text)):
            return None
        return b"{%b}" % result[_START : -self._cut]


_ONE_TEXT: Final = re.compile(
    rb'\{"resultType":"complete","content":\[\{"type":"text","text":"[^"\\]*+(?:\\.[^"\\]*+)*+"\}\],'
)
_START: Final = len(b'{"resultType":"complete",')
_OBJECT: Final = b'"structuredContent":{'


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
