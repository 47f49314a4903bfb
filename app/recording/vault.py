"""Recordings at rest: encrypted and authenticated (AES-256-GCM), with keys of the key ring.

A file begins with a line in plain text that names its format, so that another release can say
what it cannot read; that line is authenticated with the rest.
"""

import re
import secrets
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.protocol.sealed import KeyRing
from app.recording.recording import FORMAT, KIND, Unusable, check_format

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD: Final = re.compile(re.escape(KIND.encode()) + rb" ([0-9]{1,9})\n")
_OURS: Final = b"%b %d\n" % (KIND.encode(), FORMAT)
OVERHEAD_BYTES: Final = len(_OURS) + _NONCE_BYTES + _TAG_BYTES


class Vault:
    """Seals with the newest key of a ring, and opens with each of them.

    Args:
        keys: None: nothing can be sealed or opened.
        random: Gives that many random bytes. (Random nonces are safe for 2^32 recordings of one
            key: NIST SP 800-38D, 8.3.)
    """

    def __init__(
        self, keys: KeyRing | None, *, random: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        derived = () if keys is None else keys.derived("recording 1")
        self._ciphers = tuple(AESGCM(key) for key in derived)
        self._random = random

    def seal(self, data: bytes) -> bytes:
        """The bytes of a file."""
        nonce = self._random(_NONCE_BYTES)
        return _OURS + nonce + self._ciphers[0].encrypt(nonce, data, _OURS)

    def open(self, sealed: bytes) -> bytes:
        """What was sealed.

        Raises:
            Unusable: It is no such file, of another format, altered, cut short, or of other keys.
        """
        head = _HEAD.match(sealed)
        if head is None:
            raise Unusable("it is no recording of an mcp-tool-server")
        check_format(int(head[1]))
        nonce, rest = sealed[head.end() :][:_NONCE_BYTES], sealed[head.end() + _NONCE_BYTES :]
        if len(rest) < _TAG_BYTES:
            raise Unusable("it is cut short")
        if not self._ciphers:
            raise Unusable("it is encrypted, and there are no [secrets] keys to open it with")
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, rest, head[0])
            except InvalidTag:
                continue
        raise Unusable(
            "it does not open with the [secrets] keys: it was altered or cut short, or is of a "
            "server with other keys"
        )


def is_sealed(data: bytes) -> bool:
    """Whether the bytes of a file are a recording that must be opened."""
    return _HEAD.match(data) is not None
