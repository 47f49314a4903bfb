"""What an incoming message is: ``classify(headers, body)``, ``classify_message(body)``.

The order of the checks is the order of refusal: envelope, ``_meta``, agreement of headers and
body, version. Era routing is body-first: ``_meta`` with a protocol version makes a request
modern, whatever its headers say (Versioning, "Backward Compatibility"). Where there are no
headers (stdio), the body alone decides.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from app.protocol import jsonrpc
from app.protocol.errors import (
    HeaderMismatch,
    InvalidParams,
    MethodNotFound,
    ProtocolError,
    UnsupportedProtocolVersion,
)
from app.protocol.headers import HeaderMap, decode_value
from app.protocol.jsonrpc import BadEnvelope, Message
from app.protocol.schema import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LATEST_PROTOCOL_VERSION,
    LEGACY_PROTOCOL_VERSIONS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_KEY,
    Implementation,
    RequestId,
    RequestMeta,
)
from app.protocol.trace_context import context_in_headers, context_in_meta, read_parent

NAME_SOURCE: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods that need ``Mcp-Name``, and the member of ``params`` that it mirrors."""

_new: Final = tuple.__new__  # of a NamedTuple, in half the time
_LEGACY_HEADERS: Final = frozenset(version.encode() for version in LEGACY_PROTOCOL_VERSIONS)
_LATEST: Final = LATEST_PROTOCOL_VERSION.encode()
_USUAL: Final = {
    method: method.encode()
    for method in ("tools/call", "tools/list", "server/discover", "subscriptions/listen")
}
MAX_PLAIN: Final = 128
"""A longer name is looked at closely each time, rather than remembered."""

_SERVED: Final = ", ".join(MODERN_PROTOCOL_VERSIONS)


class Call(NamedTuple):
    """A modern request whose envelope, ``_meta`` and standard headers are right."""

    id: RequestId
    method: str
    params: dict[str, Any]
    meta: RequestMeta


class Legacy(NamedTuple):
    """A request of the ``initialize`` era. ``version`` is its header's, None without one."""

    message: Message
    version: str | None


class Notification(NamedTuple):
    """A well-formed notification. Over HTTP it is accepted with 202, and nothing changes on the
    modern wire.
    """

    method: str
    params: dict[str, Any] | None = None


class Response(NamedTuple):
    """A JSON-RPC response of the client: of the ``initialize`` era, where servers ask.

    Attributes:
        message: As it came.
        error: What is wrong with it where nobody has asked anything.
    """

    message: dict[str, Any]
    error: ProtocolError


class Rejected(NamedTuple):
    """``method``, ``id`` and the ``_meta`` object stand where they could be read."""

    error: ProtocolError
    id: RequestId | None
    method: str | None = None
    meta: Mapping[str, Any] | None = None


def classify(
    headers: HeaderMap, body: bytes, *, legacy: bool = False
) -> Call | Legacy | Notification | Rejected:
    """Decide what the message is and whether its headers tell the truth about it.

    Args:
        legacy: Whether the revisions of the ``initialize`` era are served.
    """
    try:
        message = jsonrpc.parse(body)
    except BadEnvelope as bad:
        return Rejected(bad.error, bad.id)
    if message.id is None:
        return Notification(message.method, message.params)
    meta = message.params.get("_meta") if message.params is not None else None
    try:
        if isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta:
            return _modern(headers, message, meta)
        return _without_version(headers, message, meta)
    except UnsupportedProtocolVersion as error:
        if legacy:
            error = unsupported_by_all(error)
        return Rejected(error, message.id, message.method, _object(meta))
    except ProtocolError as error:
        return Rejected(error, message.id, message.method, _object(meta))


def classify_message(body: bytes) -> Call | Legacy | Notification | Response | Rejected:
    """Decide what a message is that came without headers (stdio, "Request Metadata").

    A request without the protocol version in ``_meta`` is legacy, and its version is not known.
    """
    try:
        message = jsonrpc.parse(body)
    except BadEnvelope as bad:
        if bad.response is not None:
            return Response(bad.response, bad.error)
        return Rejected(bad.error, bad.id)
    if message.id is None:
        return Notification(message.method, message.params)
    meta = message.params.get("_meta") if message.params is not None else None
    if not isinstance(meta, dict) or PROTOCOL_VERSION_KEY not in meta:
        return Legacy(message, None)
    try:
        request_meta = parse_meta(meta)
        if request_meta.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise unsupported(request_meta.protocol_version)
    except ProtocolError as error:
        return Rejected(error, message.id, message.method, meta)
    assert message.params is not None
    return Call(message.id, message.method, message.params, request_meta)


def without_version(message: Message) -> ProtocolError:
    """The refusal of a request that names no version, where only modern ones are served."""
    if message.method == "initialize":
        # Versioning: legacy clients may show nothing but this message.
        return MethodNotFound(
            f"This server has no initialize handshake; it serves the protocol versions {_SERVED}, "
            "whose requests stand alone."
        )
    meta = message.params.get("_meta") if message.params is not None else None
    where = "params._meta" if isinstance(meta, dict) else "params (with a _meta object)"
    return InvalidParams(
        f'{where} lacks the required key "{PROTOCOL_VERSION_KEY}"; every request carries it. '
        f"This server serves {_SERVED}."
    )


def _modern(headers: HeaderMap, message: Message, meta: dict[str, Any]) -> Call:
    request_meta = parse_meta(meta)
    _check_standard_headers(headers, message, request_meta.protocol_version)
    if request_meta.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise unsupported(request_meta.protocol_version)
    if request_meta.trace_parent is None and b"traceparent" in headers:
        outer = context_in_headers(headers)
        if outer is not None:
            request_meta = request_meta._replace(trace_parent=outer.parent, trace_state=outer.state)
    assert message.id is not None and message.params is not None
    return _new(Call, (message.id, message.method, message.params, request_meta))


def _without_version(headers: HeaderMap, message: Message, meta: Any) -> Legacy:
    version = headers.get(b"mcp-protocol-version", b"").strip(b" \t")
    if not version:
        return Legacy(message, None)
    if version in _LEGACY_HEADERS:
        return Legacy(message, version.decode("ascii"))
    if version.decode("latin-1") in MODERN_PROTOCOL_VERSIONS:
        where = "params._meta" if isinstance(meta, dict) else "params (with a _meta object)"
        raise InvalidParams(
            f'{where} lacks the required key "{PROTOCOL_VERSION_KEY}"; every request of '
            f"{version.decode('latin-1')} carries it."
        )
    raise unsupported(version.decode("latin-1"))


def unsupported(requested: str) -> UnsupportedProtocolVersion:
    """The refusal of a protocol version that is not served."""
    return UnsupportedProtocolVersion(
        f"Unsupported protocol version. Served: {_SERVED}.",
        requested=requested[:64],
        supported=MODERN_PROTOCOL_VERSIONS,
    )


def unsupported_in_session(requested: str) -> UnsupportedProtocolVersion:
    """The same for a message of the ``initialize`` era."""
    return UnsupportedProtocolVersion(
        f"Unsupported protocol version. Served in this way: {', '.join(LEGACY_PROTOCOL_VERSIONS)}.",
        requested=requested[:64],
        supported=LEGACY_PROTOCOL_VERSIONS,
    )


def unsupported_by_all(error: UnsupportedProtocolVersion) -> UnsupportedProtocolVersion:
    """The same where older revisions are served too."""
    requested = str(error.data["requested"])
    older = ", ".join(LEGACY_PROTOCOL_VERSIONS)
    if requested in LEGACY_PROTOCOL_VERSIONS:
        return UnsupportedProtocolVersion(
            f"Unsupported protocol version in _meta. Served in this way: {_SERVED}; the revisions "
            f"{older} open with initialize.",
            requested=requested,
            supported=MODERN_PROTOCOL_VERSIONS,
        )
    return UnsupportedProtocolVersion(
        f"Unsupported protocol version. Served: {_SERVED}, {older}.",
        requested=requested,
        supported=(*MODERN_PROTOCOL_VERSIONS, *LEGACY_PROTOCOL_VERSIONS),
    )


def parse_meta(meta: Mapping[str, Any]) -> RequestMeta:
    """``RequestMetaObject`` of a modern request.

    Raises:
        InvalidParams: A required key is missing, or a known one has the wrong shape.
    """
    version = meta.get(PROTOCOL_VERSION_KEY)
    if not isinstance(version, str):
        raise InvalidParams(f'_meta["{PROTOCOL_VERSION_KEY}"] must be a string.')
    capabilities = meta.get(CLIENT_CAPABILITIES_KEY)
    if not isinstance(capabilities, dict):
        problem = "must be an object" if CLIENT_CAPABILITIES_KEY in meta else "is required"
        raise InvalidParams(f'_meta["{CLIENT_CAPABILITIES_KEY}"] {problem}.')
    level = token = None
    if LOG_LEVEL_KEY in meta:
        level = meta[LOG_LEVEL_KEY]
        if level not in LOG_LEVELS:
            raise InvalidParams(f'_meta["{LOG_LEVEL_KEY}"] must be one of {", ".join(LOG_LEVELS)}.')
    if "progressToken" in meta:
        token = meta["progressToken"]
        if type(token) not in (str, int):
            raise InvalidParams("_meta.progressToken must be a string or an integer.")
    info = _implementation(meta[CLIENT_INFO_KEY]) if CLIENT_INFO_KEY in meta else None
    trace = context_in_meta(meta) if "traceparent" in meta else None
    return _new(
        RequestMeta,
        (
            version,
            capabilities,
            info,
            level,
            token,
            None if trace is None else trace.parent,
            meta,
            None if trace is None else trace.state,
        ),
    )


def trace_parent(meta: Mapping[str, Any]) -> str | None:
    """The ``traceparent`` of a request; a malformed one is ignored (W3C Trace Context)."""
    return read_parent(meta.get("traceparent"))


def _object(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def _implementation(value: Any) -> Implementation:
    if isinstance(value, dict):
        name, version = value.get("name"), value.get("version")
        if isinstance(name, str) and isinstance(version, str):
            return _new(Implementation, (name, version))
    raise InvalidParams(
        f'_meta["{CLIENT_INFO_KEY}"] must be an object with the strings "name" and "version".'
    )


def _check_standard_headers(headers: HeaderMap, message: Message, version: str) -> None:
    usual = _USUAL.get(message.method)
    if (
        usual is None
        or headers.repeated
        or headers.get(b"mcp-method") != usual
        or headers.get(b"mcp-protocol-version") != _LATEST
        or version != LATEST_PROTOCOL_VERSION
    ):
        # Not plainly right, so look closely.
        _check(headers, b"mcp-protocol-version", "MCP-Protocol-Version", version, "_meta")
        _check(headers, b"mcp-method", "Mcp-Method", message.method, "method")
    source = NAME_SOURCE.get(message.method)
    if source is None:
        return
    assert message.params is not None
    name = message.params.get(source)
    plain = _plain(name) if type(name) is str and len(name) <= MAX_PLAIN else None
    if plain is not None and headers.get(b"mcp-name") == plain and not headers.repeated:
        return
    text = decode_value(_single(headers, b"mcp-name", "Mcp-Name"))
    if text is None:
        raise HeaderMismatch("The header Mcp-Name has invalid characters or invalid Base64.")
    if isinstance(name, str) and text != name:
        raise HeaderMismatch(f"The header Mcp-Name does not match params.{source} in the body.")


@lru_cache(1024)
def _plain(name: str) -> bytes | None:
    """How a name is sent if nothing about it needs encoding; None where something may."""
    if name.isascii() and name.isprintable() and name[:1] not in (" ", "=", ""):
        return None if name[-1] == " " else name.encode()
    return None


def _check(headers: HeaderMap, name: bytes, display: str, expected: str, source: str) -> None:
    value = _single(headers, name, display)
    # Raw non-ASCII bytes never agree, not even with the same bytes in the body.
    if not value.isascii() or value.strip(b" \t") != expected.encode():
        raise HeaderMismatch(
            f"The header {display} does not match the value in the body ({source}); header "
            "values are case-sensitive and sent as they are."
        )


def _single(headers: HeaderMap, name: bytes, display: str) -> bytes:
    value = headers.get(name)
    if value is None or not value.strip(b" \t"):
        raise HeaderMismatch(f"The header {display} is required and missing or empty.")
    if name in headers.repeated:
        # Ours: refuse two copies. A proxy may route on one while we obey the other (the reason
        # that Streamable HTTP, "Server Validation", gives).
        raise HeaderMismatch(f"The header {display} was sent more than once.")
    return value
