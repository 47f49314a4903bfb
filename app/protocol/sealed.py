"""Tokens that clients hand back: any replica with the same keys can read them.

Cursors are signed, deterministic and free of principal and expiry, so that pages can be shared
and cached; visibility is decided again on every request. Sealed tokens are encrypted and
authenticated (AES-256-GCM), end at an instant, and open only for the caller and request that they
were made for. Clock and randomness are the caller's business.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.protocol.errors import InvalidParams

CLOCKS_DIFFER_S: Final = 300.0
"""Whatever must be known as long as a token opens is kept so much longer: the clock of the server
that opens it may be behind."""

_TAG_BYTES: Final = 16
_CURSOR_PURPOSE: Final = b"mcp-tool-server cursor 1\0"
MAX_CURSOR_CHARACTERS: Final = 512
_NONCE_BYTES: Final = 12
_EXPIRY: Final = struct.Struct(">d")
_HEAD_BYTES: Final = _NONCE_BYTES + _EXPIRY.size


class KeyRing:
    """Secret keys, newest first: the first signs, every one of them verifies.

    Args:
        keys: At least one key of at least 16 bytes.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a key ring needs at least one key of at least 16 bytes")
        self._keys = tuple(keys)

    def derived(self, purpose: str) -> tuple[bytes, ...]:
        """A key of 32 bytes for one purpose from each key, newest first (HKDF, RFC 5869)."""
        info = b"mcp-tool-server " + purpose.encode()
        return tuple(
            HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key)
            for key in self._keys
        )

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        return _tag(self._keys[0], purpose, data)

    def verify(self, purpose: bytes, data: bytes, tag: bytes) -> bool:
        return any(hmac.compare_digest(_tag(key, purpose, data), tag) for key in self._keys)


def _tag(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(key, purpose + data, hashlib.sha256)[:_TAG_BYTES]


def encode_cursor(last_name: str, *, keys: KeyRing) -> str:
    """The cursor of the page that follows the tool ``last_name``."""
    data = last_name.encode()
    return _text(keys.sign(_CURSOR_PURPOSE, data) + data)


def decode_cursor(cursor: str, *, keys: KeyRing) -> str:
    """The name of the last tool that the client has seen.

    Raises:
        InvalidParams: Not a cursor of this server (Pagination, "Error Handling").
    """
    token = _bytes(cursor, MAX_CURSOR_CHARACTERS)
    tag, data = token[:_TAG_BYTES], token[_TAG_BYTES:]
    if len(tag) == _TAG_BYTES and keys.verify(_CURSOR_PURPOSE, data, tag):
        return data.decode()
    raise InvalidParams("The cursor is not valid here; list again from the start without one.")


class Unopened(Exception):
    """A token that does not open here and now. Why is nobody's business but the log's."""


class Sealer:
    """Seals what a client must hand back unread and unchanged, for one purpose.

    A token is nonce, expiry and ciphertext. Purpose, expiry and what the token is bound to are
    authenticated with it, so it opens for nothing else.

    Args:
        purpose: Such as ``requestState 1``: tokens of another purpose do not open.
        max_characters: A longer token is not looked at.
    """

    def __init__(self, keys: KeyRing, *, purpose: str, max_characters: int) -> None:
        self._purpose = purpose.encode()
        self._max_characters = max_characters
        self._ciphers = tuple(AESGCM(key) for key in keys.derived(purpose))

    def seal(self, data: bytes, *, bound_to: bytes, expires_at: float, nonce: bytes) -> str:
        """A token of ``data``, encrypted with the newest key.

        Args:
            bound_to: What whoever opens it must present again; it is not in the token.
            expires_at: POSIX time from which the token opens no longer.
            nonce: 12 random bytes, new for each token. (Random ones are safe for 2^32 tokens of
                one key: NIST SP 800-38D, 8.3.)

        Raises:
            ValueError: The nonce has another length.
        """
        if len(nonce) != _NONCE_BYTES:
            raise ValueError(f"a nonce has {_NONCE_BYTES} bytes")
        head = nonce + _EXPIRY.pack(expires_at)
        return _text(head + self._ciphers[0].encrypt(nonce, data, self._extra(head, bound_to)))

    def open(self, token: str, *, bound_to: bytes, now: float) -> bytes:
        """What was sealed.

        Raises:
            Unopened: Altered, expired, of other keys, for another purpose or bound to something
                else.
        """
        raw = _bytes(token, self._max_characters)
        head, sealed = raw[:_HEAD_BYTES], raw[_HEAD_BYTES:]
        if len(sealed) < _TAG_BYTES:
            raise Unopened
        extra, nonce = self._extra(head, bound_to), head[:_NONCE_BYTES]
        for cipher in self._ciphers:
            try:
                data = cipher.decrypt(nonce, sealed, extra)
            except InvalidTag:
                continue
            # After the tag: only now is the expiry known to be ours.
            (expires_at,) = _EXPIRY.unpack(head[_NONCE_BYTES:])
            if now < expires_at:
                return data
            break
        raise Unopened

    def _extra(self, head: bytes, bound_to: bytes) -> bytes:
        # Each part has a length that is known or written, so no two bindings read the same.
        return b"%d:%b%b%b" % (len(self._purpose), self._purpose, head, bound_to)


def _text(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode("ascii")


def _bytes(text: str, max_characters: int) -> bytes:
    """What ``_text`` was made of; empty for anything that it does not make."""
    if len(text) > max_characters or not text.isascii():
        return b""
    try:
        token = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return b""
    # One token has one text: the bits that Base64 leaves over are zero.
    return token if _text(token) == text else b""
