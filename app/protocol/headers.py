"""The header codec of Streamable HTTP: standard headers, Base64 sentinel, ``Mcp-Param-*``.

Source: Streamable HTTP, "Request Metadata".
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from app.protocol.errors import HeaderMismatch
from app.protocol.jsonschema import subschemas

PARAM_PREFIX: Final = b"mcp-param-"
MAX_MIRRORED_BYTES: Final = 1024
"""A mirrored response header longer than this is left out (proxies bound header sizes)."""

SAFE_INTEGER: Final = 2**53 - 1
MAX_PARTS: Final = 20_000

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")  # 1*tchar, RFC 9110 section 5.6.2
_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?\Z")
_SENTINEL_START: Final = b"=?base64?"
_SENTINEL_END: Final = b"?="
_NONE: Final[frozenset[bytes]] = frozenset()


class HeaderMap(dict[bytes, bytes]):
    """Request headers by lower-case name, and which names came more than once.

    The value of a repeated header is the copies joined with ``, `` (RFC 9110, section 5.3).
    """

    __slots__ = ("repeated",)

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        dict.__init__(self, raw)  # super() costs half as much again
        self.repeated: frozenset[bytes] = _NONE
        # dict() kept the last copy of each name; a shorter dict means that some were repeated.
        if len(self) != len(raw):
            self._join(raw)

    def _join(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        copies: dict[bytes, list[bytes]] = {}
        for name, value in raw:
            copies.setdefault(name, []).append(value)
        self.update({name: b", ".join(values) for name, values in copies.items()})
        self.repeated = frozenset(name for name, values in copies.items() if len(values) > 1)


def decode_value(value: bytes) -> str | None:
    """The text that an ``Mcp-Name`` or ``Mcp-Param-*`` value stands for, or None if malformed.

    Plain values are visible ASCII, space and tab. ``=?base64?...?=`` holds Base64 of UTF-8, in
    its one canonical form: a decoder that accepts a second spelling lets a proxy and this
    server read different values. Anything that only resembles the sentinel is literal text.
    """
    value = value.strip(b" \t")
    if not is_sentinel(value):
        return value.decode("ascii") if _is_visible(value) else None
    encoded = value[len(_SENTINEL_START) : -len(_SENTINEL_END)]
    try:
        data = base64.b64decode(encoded, validate=True)
        if base64.b64encode(data) != encoded:  # non-zero trailing bits
            return None
        return data.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


def encode_value(text: str) -> bytes:
    """The header value for a text, by the rules that clients follow ("Value Encoding").

    Raises:
        UnicodeEncodeError: The text has a lone surrogate.
    """
    if text.isascii():
        value = text.encode("ascii")
        if value == value.strip(b" \t") and _is_visible(value) and not is_sentinel(value):
            return value
    return _SENTINEL_START + base64.b64encode(text.encode("utf-8")) + _SENTINEL_END


def is_token(value: bytes) -> bool:
    """Whether a value is ``1*tchar`` (RFC 9110, section 5.6.2)."""
    return bool(_TOKEN.match(value.decode("latin-1")))


def is_sentinel(value: bytes) -> bool:
    """Whether a value is marked as Base64. The markers may not overlap: ``=?base64?=`` is text."""
    return (
        value.startswith(_SENTINEL_START)
        and value.endswith(_SENTINEL_END)
        and len(value) >= len(_SENTINEL_START) + len(_SENTINEL_END)
    )


def _is_visible(value: bytes) -> bool:
    """Visible ASCII, space and tab: what RFC 9110 lets a field value hold."""
    return value.isascii() and value.decode("ascii").replace("\t", " ").isprintable()


@dataclass(frozen=True, slots=True)
class MirroredParameter:
    """A parameter that clients repeat in ``Mcp-Param-{name}``.

    Attributes:
        name: As annotated, for messages.
        header: The lower-case header name.
        path: The chain of ``properties`` keys from the root of the arguments.
        type: ``string``, ``integer`` or ``boolean``.
    """

    name: str
    header: bytes
    path: tuple[str, ...]
    type: str


class InvalidAnnotation(ValueError):
    """An ``x-mcp-header`` that breaks a rule: conforming clients would drop the tool."""


def mirrored_parameters(schema: Mapping[str, Any]) -> tuple[MirroredParameter, ...]:
    """The header plan of an input schema, compiled once at load.

    Raises:
        InvalidAnnotation: Any ``x-mcp-header`` breaks "Schema Extension".
    """
    found: list[MirroredParameter] = []
    for node, path in subschemas(schema, MAX_PARTS):
        if "x-mcp-header" not in node:
            continue
        # Statically reachable: a chain of `properties` keys alone.
        if not path or path[::2] != ("properties",) * (len(path) // 2):
            raise InvalidAnnotation(
                "x-mcp-header must be on a property that is reached through `properties` "
                "alone: not through items, anyOf, oneOf, allOf, not, if, $ref or $defs."
            )
        found.append(_annotated(node, tuple(str(name) for name in path[1::2])))
    seen: dict[bytes, MirroredParameter] = {}
    for parameter in found:
        other = seen.setdefault(parameter.header, parameter)
        if other is not parameter:
            raise InvalidAnnotation(
                f"x-mcp-header {parameter.name!r} is used by both {'.'.join(other.path)!r} and "
                f"{'.'.join(parameter.path)!r}; header names must be unique in any case."
            )
    return tuple(sorted(found, key=lambda parameter: parameter.path))


def _annotated(node: Mapping[str, Any], path: tuple[str, ...]) -> MirroredParameter:
    name, where = node["x-mcp-header"], ".".join(path)
    if not isinstance(name, str) or not _TOKEN.match(name):
        raise InvalidAnnotation(
            f"x-mcp-header of {where!r} must be an HTTP token (letters, digits and "
            f"!#$%&'*+-.^_`|~), not {name!r}."
        )
    kind = node.get("type")
    if kind not in ("string", "integer", "boolean"):  # it may be a list
        raise InvalidAnnotation(
            f"x-mcp-header of {where!r} needs the single type string, integer or boolean, "
            f"not {kind!r}."
        )
    if kind == "integer":
        low, high = node.get("minimum"), node.get("maximum")
        for bound in (low, high):
            if isinstance(bound, (int, float)) and abs(bound) > SAFE_INTEGER:
                raise InvalidAnnotation(
                    f"x-mcp-header of {where!r}: integers must stay within ±(2**53-1)."
                )
    return MirroredParameter(name, PARAM_PREFIX + name.lower().encode("ascii"), path, kind)


def check_parameters(
    plan: Sequence[MirroredParameter], headers: HeaderMap, arguments: Mapping[str, Any]
) -> None:
    """Do the ``Mcp-Param-*`` headers say what the arguments say?

    Raises:
        HeaderMismatch: A header is missing, superfluous, repeated, malformed or different.
    """
    for parameter in plan:
        value = value_at(arguments, parameter.path)
        raw = headers.get(parameter.header)
        if raw is None:
            if value is None or isinstance(value, (dict, list)):
                continue  # the schema check owns values of a wrong shape
            raise HeaderMismatch(
                f"The header Mcp-Param-{parameter.name} is missing; the argument "
                f"{'.'.join(parameter.path)!r} must be mirrored in it. Call tools/list for the "
                "current inputSchema."
            )
        if parameter.header in headers.repeated:
            raise HeaderMismatch(f"The header Mcp-Param-{parameter.name} was sent twice.")
        text = decode_value(raw)
        if text is None:
            raise HeaderMismatch(
                f"The header Mcp-Param-{parameter.name} has invalid characters or invalid Base64."
            )
        if not _agrees(text, value):
            raise HeaderMismatch(
                f"The header Mcp-Param-{parameter.name} does not match the argument "
                f"{'.'.join(parameter.path)!r} in the body."
            )


def value_at(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The instance value at a property path; None where a step is missing."""
    node: Any = arguments
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def _agrees(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, (int, float)):
        # "42.0" and 42 are equal; compared exactly, never as floats, and never beyond the range
        # in which every client can ("Schema Extension").
        if abs(value) > SAFE_INTEGER:
            return False
        return bool(_PLAIN_DECIMAL.match(text)) and Decimal(text) == Decimal(value)
    return False


def mirrored_headers(
    plan: Sequence[MirroredParameter], arguments: Mapping[str, Any]
) -> list[tuple[bytes, bytes]]:
    """``Mcp-Param-*`` response headers, so that access logs have them for every client."""
    headers = []
    for parameter in plan:
        value = value_at(arguments, parameter.path)
        if value is None:
            continue
        if isinstance(value, bool):
            encoded = b"true" if value else b"false"
        elif isinstance(value, (int, float)):
            encoded = b"%d" % int(value)
        else:
            encoded = encode_value(str(value))
        if len(encoded) <= MAX_MIRRORED_BYTES:
            headers.append((parameter.header, encoded))
    return headers
