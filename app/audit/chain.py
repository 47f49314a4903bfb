"""Records as lines, each of which carries the hash of the one before.

A line is a JSON object whose last members are ``prev``, the hash of the record before, and
``hash``, that of everything before it in the line. With a key the hash is an HMAC, which nobody
can make without it.
"""

import hashlib
import hmac
import re
from typing import Any, Final, NamedTuple

import orjson

GENESIS: Final = b"0" * 64
"""Stands for the hash of a record before the first."""

PLAIN: Final = "sha256"
KEYED: Final = "hmac-sha256"
MAX_LINE_BYTES: Final = 64 * 1024
"""No record is longer: whatever comes from clients is short in it."""

_TAIL: Final = re.compile(rb',"hash":"([0-9a-f]{64})"\}\Z')


class Head(NamedTuple):
    """Where a chain has got to: the number and the hash of its last record."""

    seq: int = 0
    hash: bytes = GENESIS


class Line(NamedTuple):
    """A line, taken apart.

    Attributes:
        body: What is hashed.
        hash: What the line says its hash is.
        record: The members.
    """

    body: bytes
    hash: bytes
    record: dict[str, Any]


class BadLine(ValueError):
    """A line that no chain has made; the text says why."""


class Hasher:
    """SHA-256 of bytes; with a key HMAC-SHA-256 (RFC 2104).

    The same as of ``hmac``, with both blocks of the key hashed once: that takes a quarter of the
    time, and each call is hashed twice.
    """

    def __init__(self, key: bytes | None) -> None:
        self._inner = self._outer = hashlib.sha256()
        if key is not None:
            block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
            self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
            self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))
        self._is_keyed = key is not None

    def hex(self, data: bytes) -> bytes:
        """In hexadecimal digits."""
        inner = self._inner.copy()
        inner.update(data)
        if not self._is_keyed:
            return inner.hexdigest().encode()
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest().encode()


class Chain:
    """Numbers records and ties each to the one before.

    Args:
        key: Of the HMAC; None: a hash that everybody can work out.
        head: The record that the next one follows.
    """

    def __init__(self, key: bytes | None, head: Head = Head()) -> None:  # noqa: B008  # immutable
        self._hash = Hasher(key).hex
        self.head = head

    def seal(self, *records: bytes) -> bytes:
        """The lines of records, each with its end.

        Args:
            records: The members of JSON objects, without their braces.
        """
        seq, prev = self.head
        hashed, lines = self._hash, []
        for record in records:
            seq += 1
            body = b'{"seq":%d,%b,"prev":"%b"' % (seq, record, prev)
            prev = hashed(body + b"}")
            lines.append(b'%b,"hash":"%b"}\n' % (body, prev))
        self.head = Head(seq, prev)
        return b"".join(lines)


def key_id(key: bytes) -> str:
    """A name for a key, from which nothing of it can be learnt."""
    return hmac.digest(key, b"key id", "sha256")[:8].hex()


def take_apart(line: bytes) -> Line:
    """A line without its end.

    Raises:
        BadLine: It is none.
    """
    found = _TAIL.search(line)
    if found is None:
        raise BadLine("it does not end in a hash")
    body = line[: found.start()] + b"}"
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadLine("it is no JSON") from None
    if not isinstance(record, dict):
        raise BadLine("it is no JSON object")
    if type(record.get("seq")) is not int or not isinstance(record.get("prev"), str):
        raise BadLine("it has no number or does not say what it follows")
    return Line(body, found[1], record)
