"""Frames between the server and a worker: length, kind, reason, payload."""

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from app.execution.results import ResultEncoder
from app.principal import ANONYMOUS, Principal, read_only
from app.protocol.schema import Implementation, RequestId
from app.protocol.trace_context import TraceContext
from app.settings import Settings

_HEAD: Final = struct.Struct(">IBB")
_SECONDS: Final = struct.Struct(">d")
MAX_OTHER_BYTES: Final = 1024 * 1024
"""Largest payload that is not a result."""


class Kind:
    """What a frame is. The server sends LOAD once, then CALL, at last LEAVE."""

    LOAD: Final = 1
    CALL: Final = 2
    LEAVE: Final = 3
    LOADING: Final = 10
    READY: Final = 11
    RESULT: Final = 12
    TOOL_ERROR: Final = 13
    FAILED: Final = 14
    CAUSE: Final = 15
    PROGRESS: Final = 16
    MESSAGE: Final = 17
    LINE: Final = 18
    PASSING: Final = 19


ENDINGS: Final = (Kind.RESULT, Kind.TOOL_ERROR, Kind.PASSING, Kind.FAILED)
"""Frames that end a call."""

REASONS: Final = ("", "memory", "processes", "directory", "streams")
"""Why a worker asks to be replaced after its call, by number; the first: it does not."""


class Frame(NamedTuple):
    """One message. ``reason`` is an index of ``REASONS``."""

    kind: int
    reason: int
    payload: bytes


class BadFrame(Exception):
    """The peer sends what is no frame, or one that is too large."""


def encode(kind: int, payload: bytes = b"", reason: int = 0) -> bytes:
    """A frame as bytes."""
    return _HEAD.pack(len(payload), kind, reason) + payload


def passing(passing_s: float, result: bytes) -> bytes:
    """The payload of ``PASSING``: a tool error that may be gone after so many seconds."""
    return _SECONDS.pack(passing_s) + result


def read_passing(payload: bytes) -> tuple[float, bytes]:
    """The counterpart of ``passing``.

    Raises:
        BadFrame: It is nothing of that kind.
    """
    if len(payload) < _SECONDS.size:
        raise BadFrame("a tool error without its seconds")
    (seconds,) = _SECONDS.unpack_from(payload)
    if not 0 <= seconds < math.inf:
        raise BadFrame("a tool error with impossible seconds")
    return seconds, payload[_SECONDS.size :]


class FrameReader:
    """Cuts a stream of bytes into frames.

    Args:
        max_bytes: Largest payload.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now.

        Raises:
            BadFrame: The stream cannot be read on.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD.size:
            length, kind, reason = _HEAD.unpack_from(buffer)
            if length > self._max_bytes or reason >= len(REASONS):
                raise BadFrame(f"a frame of kind {kind} with {length} bytes")
            end = _HEAD.size + length
            if len(buffer) < end:
                return
            payload = bytes(buffer[_HEAD.size : end])
            del buffer[:end]
            yield Frame(kind, reason, payload)


class ToolToLoad(NamedTuple):
    """A tool of a file. Calls name it by its place in ``Load.tools``."""

    path: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """All that a worker is told before it is ready; pickled.

    Attributes:
        folder: Of the tools.
        builds: Sources by path, and the files of them to load, build by build. The worker loads
            what the server has loaded, whatever the folder holds by now.
        lifespans: Settings for the ``lifespan()`` of each file; None: they are not entered.
        settings: What compiling tools needs, and nothing else: no keys, no credentials.
    """

    folder: str
    builds: tuple[tuple[Mapping[str, bytes], tuple[str, ...]], ...]
    tools: tuple[ToolToLoad, ...]
    lifespans: Mapping[str, Mapping[str, Any]] | None
    settings: Settings
    encoder: ResultEncoder
    log_level: str


class CallToRun(NamedTuple):
    """One call; pickled.

    Attributes:
        principal: None: anonymous.
        log_level: Index of the mildest level that the client wants; None: no log messages.
        wants_progress: Whether the client sent a progress token.
        is_draft: Whether its result goes through hooks.
        trace: Where the request hangs in its caller's trace.
        current: Headers that stand for the span that is current in the server; empty: none is.
    """

    tool: int
    arguments: dict[str, Any]
    request_id: RequestId
    protocol_version: str
    client: Implementation | None
    meta: Mapping[str, Any]
    principal: Mapping[str, Any] | None
    remaining_s: float
    log_level: int | None
    wants_progress: bool
    is_draft: bool
    trace: TraceContext | None
    current: Mapping[str, str]


# Not `found`, which is the registry's; a principal has no credential to leave out.
PRINCIPAL_FIELDS: Final = (
    "issuer",
    "subject",
    "scopes",
    "tenant",
    "roles",
    "clearance",
    "approvals",
    "credential_id",
    "expires_at",
)


def principal_fields(principal: Principal) -> Mapping[str, Any] | None:
    """A caller in a form that can be pickled: plain JSON and sets of texts; None: anonymous."""
    if principal.issuer is None and principal.subject is None:
        return None
    fields = {name: getattr(principal, name) for name in PRINCIPAL_FIELDS}
    return {**fields, "claims": _plain(principal.claims)}


def principal_of(fields: Mapping[str, Any] | None) -> Principal:
    """The caller again, with claims that nobody can change."""
    if fields is None:
        return ANONYMOUS
    return Principal(**{**fields, "claims": read_only(fields["claims"])})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
