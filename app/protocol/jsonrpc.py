"""JSON-RPC 2.0 envelopes: bytes to message and message to bytes (Overview, "Messages")."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from app.protocol.errors import InvalidRequest, ParseError, ProtocolError
from app.protocol.schema import RequestId

MAX_DEPTH: Final = 200
"""Levels of nesting that a body may have; the encoder of results stops at 254."""

ENCODER_DEPTH: Final = 254
"""Levels of nesting that the encoder accepts."""

# One pass over the body answers two questions that the parser leaves open: is a number longer
# than it can hold exactly, and can the nesting be deeper than MAX_DEPTH at all?
_SHAPE: Final = bytes(
    ord("0") if 48 <= byte <= 57 else ord("[") if byte in b"[{" else ord(" ") for byte in range(256)
)
_LONG_NUMBER: Final = b"0" * 19  # 19 digits are the first that can pass the 64-bit bounds


_ID_TYPES: Final = (str, int)
"""Types of ``RequestId``; bool, a subclass of int, is none of them."""


class Message(NamedTuple):
    """One JSON-RPC request or notification.

    Attributes:
        id: None for a notification.
        params: The params object; None where the member is absent or null.
    """

    id: RequestId | None
    method: str
    params: dict[str, Any] | None


class Batch(NamedTuple):
    """What is in a batch, by kind, and each kind in its order.

    Attributes:
        requests: Those that the batch itself does not cancel.
        responses: Answers to questions of the server.
    """

    requests: Sequence[Message]
    notifications: Sequence[Message]
    responses: Sequence[dict[str, Any]]


class BadEnvelope(Exception):
    """Not a request or notification. ``id`` is echoed where it could be read.

    Attributes:
        response: The message, where it is a JSON-RPC response.
    """

    def __init__(
        self,
        error: ProtocolError,
        id: RequestId | None = None,
        *,
        response: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.id = id
        self.response = response


def loads(body: bytes) -> Any:
    """Strict JSON (RFC 8259) to Python: nothing is rounded and nothing is guessed.

    Raises:
        ParseError: Not UTF-8, not JSON, nested too deeply, or a number that cannot be exact.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ParseError(f"The body is not valid JSON: {_reason(error)}.") from None
    shape = body.translate(_SHAPE)
    if (
        len(body) > 2 * MAX_DEPTH
        and shape.count(b"[") > MAX_DEPTH
        and _deeper_than(value, MAX_DEPTH)
    ):
        raise ParseError(f"The body is nested deeper than {MAX_DEPTH} levels.")
    if shape.find(_LONG_NUMBER) >= 0:  # four times faster than `in`, whose operand may be an int
        value = _loads_exactly(body)
    return value


def loads_encoded(encoded: bytes) -> Any:
    """What ``dumps`` has made: as deep as that goes, and with all its digits.

    Raises:
        ValueError, RecursionError: It was not made by that.
    """
    if encoded.translate(_SHAPE).find(_LONG_NUMBER) >= 0:
        return json.loads(encoded, parse_constant=_refuse_constant)
    return orjson.loads(encoded)


def _reason(error: orjson.JSONDecodeError) -> str:
    # The parser's sentence and position only: its exception also holds the document.
    return f"{error.msg}, line {error.lineno} column {error.colno}"


def _loads_exactly(body: bytes) -> Any:
    """The slow parser, for bodies with numbers beyond 64 bits; the fast one has accepted them."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ParseError("The body has a number with more digits than can be exact.") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, (dict, list)) for item in level)


def parse(body: bytes) -> Message:
    """One request or notification.

    Raises:
        BadEnvelope: With a ``ParseError`` or ``InvalidRequest``.
    """
    try:
        value = loads(body)
    except ParseError as error:
        raise BadEnvelope(error) from None
    if type(value) is dict and value.get("jsonrpc") == "2.0":
        id, method, params = value.get("id"), value.get("method"), value.get("params")
        if type(id) in _ID_TYPES and type(method) is str and type(params) is dict:
            return tuple.__new__(Message, (id, method, params))  # in half the time
    return message_of(value)


def message_of(value: Any) -> Message:
    """What is not plainly a request: a notification, an odd id, or a mistake to be named.

    Raises:
        BadEnvelope: With an ``InvalidRequest``.
    """
    if not isinstance(value, dict):
        kind = "a batch" if isinstance(value, list) else "not an object"
        raise BadEnvelope(
            InvalidRequest(
                f"The body is {kind}; each JSON-RPC request is an object and comes by itself."
            )
        )
    id = request_id(value["id"]) if "id" in value else None
    if value.get("jsonrpc") != "2.0":
        raise BadEnvelope(InvalidRequest('The member "jsonrpc" must be "2.0".'), id)
    method = value.get("method")
    if not isinstance(method, str):
        if "method" not in value and ("result" in value or "error" in value):
            raise BadEnvelope(
                InvalidRequest(
                    "JSON-RPC responses are not accepted here; answers to the server go into "
                    '"inputResponses" of the retried request.'
                ),
                response=value,
            )
        raise BadEnvelope(InvalidRequest('The member "method" must be a string.'), id)
    params = value.get("params")
    if params is not None and not isinstance(params, dict):
        raise BadEnvelope(InvalidRequest('The member "params" must be an object.'), id)
    return Message(id, method, params)


def request_id(id: Any) -> RequestId:
    """A value as the id of a request.

    Raises:
        BadEnvelope: It is neither a string nor an integer.
    """
    if type(id) in _ID_TYPES:
        return id  # type: ignore[no-any-return]  # narrowed by the line above
    if type(id) is float and id.is_integer() and abs(id) < 2**53:
        # 1.0 is an integer to JSON Schema; echo it as one.
        return int(id)
    raise BadEnvelope(InvalidRequest('The member "id" must be a string or an integer.'))


class NotFinite(ValueError):
    """NaN or infinity, which JSON cannot hold. ``path`` says where."""

    def __init__(self, path: str) -> None:
        super().__init__(f"a number that JSON cannot hold (NaN or infinity) at {path}")
        self.path = path


def dumps(value: Any) -> bytes:
    """JSON bytes of plain data. Integers beyond 64 bits stay exact.

    Raises:
        TypeError: The value has no JSON form (a lone surrogate included).
        NotFinite: It holds NaN or infinity.
    """
    try:
        encoded = orjson.dumps(value)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
        encoded = _dumps_exactly(value)
    # The fast encoder writes NaN and infinity as null; only then is it worth looking for them.
    if encoded.find(b"null") >= 0 and (path := _path_of_not_finite(value)) is not None:
        raise NotFinite(path)
    return encoded


def canonical(value: Any) -> bytes:
    """The same bytes for equal JSON data, whatever the order of its members.

    Raises:
        TypeError: The value has no JSON form.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _dumps_exactly(value: Any) -> bytes:
    """The slow encoder, for integers that the fast one refuses."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (ValueError, RecursionError) as error:
        if (path := _path_of_not_finite(value)) is not None:
            raise NotFinite(path) from None
        raise TypeError(str(error)) from None


def _path_of_not_finite(value: Any) -> str | None:
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    while stack:
        path, item, depth = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return path.removeprefix(".") or "the root"
        if depth > ENCODER_DEPTH:
            continue
        if isinstance(item, dict):
            stack.extend((f"{path}.{key}", child, depth + 1) for key, child in item.items())
        elif isinstance(item, (list, tuple)):
            stack.extend((f"{path}[{n}]", child, depth + 1) for n, child in enumerate(item))
    return None


def result_response(id: RequestId, result: bytes) -> bytes:
    """A result response around an encoded result object."""
    # As of ``encode_id``, but without a call where most ids are numbers.
    encoded = b"%d" % id if type(id) is int else orjson.dumps(id)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encoded, result)


def error_response(id: RequestId | None, error: ProtocolError) -> bytes:
    """An error response; without an id where none could be read (``id: null`` is invalid)."""
    member = b"" if id is None else b'"id":%b,' % encode_id(id)
    return b'{"jsonrpc":"2.0",%b"error":%b}' % (member, orjson.dumps(_printable(error.as_json())))


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    """A notification with its params."""
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method.encode(), dumps(params))


def encode_id(id: RequestId) -> bytes:
    """A request id as JSON, in the type it came in."""
    return b"%d" % id if type(id) is int else orjson.dumps(id)


def _printable(error: dict[str, Any]) -> dict[str, Any]:
    # A message may quote what a client sent; what came in as a header is not always UTF-8.
    error["message"] = error["message"].encode("utf-8", "replace").decode()
    return error
