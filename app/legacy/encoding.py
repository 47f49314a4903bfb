"""Reading back what this server has encoded, and encoding it again."""

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.protocol.jsonrpc import dumps
from app.protocol.schema import META_PREFIX

_DIGITS: Final = bytes(ord("0") if 48 <= byte <= 57 else ord(" ") for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19  # 19 digits are the first that can pass the 64-bit bounds


def decode(encoded: bytes) -> Any:
    """Our own JSON: trusted to be some, and deeper than a client's may be. Numbers stay exact."""
    if encoded.translate(_DIGITS).find(_LONG_NUMBER) >= 0:
        return json.loads(encoded)  # the fast parser makes a double of what passes 64 bits
    return orjson.loads(encoded)


def encode(members: Mapping[str, Any]) -> bytes:
    """An object whose members are encoded one by one, or are bytes that are encoded already.

    Results are put together from encoded parts, each of which may be as deep as the encoder goes.
    """
    return b"{%b}" % b",".join(
        b"%b:%b" % (dumps(key), value if isinstance(value, bytes) else dumps(value))
        for key, value in members.items()
    )


def own_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """``_meta`` without what the modern protocol keeps there."""
    return {key: value for key, value in meta.items() if not key.startswith(META_PREFIX)}
