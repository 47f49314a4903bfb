"""Tokens that clients hand back: any replica with the same keys can read them.

Cursors are signed, deterministic and free of principal and expiry, so that pages can be shared
and cached; visibility is decided again on every request. (Encrypted tokens, for state that is
bound to a caller, come with the features that need them.)
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from app.protocol.errors import InvalidParams

_TAG_BYTES: Final = 16
_CURSOR_PURPOSE: Final = b"mcp-tool-server cursor 1\0"
MAX_CURSOR_CHARACTERS: Final = 512


class KeyRing:
    """Secret keys, newest first: the first signs, every one of them verifies.

    Args:
        keys: At least one key of at least 16 bytes.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a key ring needs at least one key of at least 16 bytes")
        self._keys = tuple(keys)

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        return _tag(self._keys[0], purpose, data)

    def verify(self, purpose: bytes, data: bytes, tag: bytes) -> bool:
        return any(hmac.compare_digest(_tag(key, purpose, data), tag) for key in self._keys)


def _tag(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(key, purpose + data, hashlib.sha256)[:_TAG_BYTES]


def encode_cursor(last_name: str, *, keys: KeyRing) -> str:
    """The cursor of the page that follows the tool ``last_name``."""
    data = last_name.encode()
    token = keys.sign(_CURSOR_PURPOSE, data) + data
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode("ascii")


def decode_cursor(cursor: str, *, keys: KeyRing) -> str:
    """The name of the last tool that the client has seen.

    Raises:
        InvalidParams: Not a cursor of this server (Pagination, "Error Handling").
    """
    if len(cursor) <= MAX_CURSOR_CHARACTERS and cursor.isascii():
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        try:
            token = base64.b64decode(padded, altchars=b"-_", validate=True)
        except binascii.Error:
            token = b""
        tag, data = token[:_TAG_BYTES], token[_TAG_BYTES:]
        canonical = base64.urlsafe_b64encode(token).rstrip(b"=") == cursor.encode("ascii")
        if len(tag) == _TAG_BYTES and canonical and keys.verify(_CURSOR_PURPOSE, data, tag):
            return data.decode()
    raise InvalidParams("The cursor is not valid here; list again from the start without one.")
