"""Errors in the codes of older revisions, and whether they keep their HTTP status."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.legacy.encoding import decode
from app.protocol.errors import (
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingRequiredClientCapability,
    ProtocolError,
    TooManyRequests,
    Unavailable,
    UnsupportedProtocolVersion,
)
from app.protocol.jsonrpc import dumps
from app.protocol.schema import RequestId

_CODES: Final[Mapping[type[ProtocolError], int]] = {
    # What was sent in the wrong form.
    HeaderMismatch: InvalidRequest.code,
    # What clients answer where a server asks for what they did not declare (Elicitation, "Error
    # Handling").
    MissingRequiredClientCapability: InvalidParams.code,
    # Lifecycle, "Error Handling": -32602 with the same two members in `data`.
    UnsupportedProtocolVersion: InvalidParams.code,
}
"""Errors that 2026-07-28 has a code of its own for."""

_IN_BAND: Final = (
    MethodNotFound,
    InvalidParams,
    InternalError,
    MissingRequiredClientCapability,
    TooManyRequests,
    Unavailable,
)
"""Ours: answers to a request that was understood come with 200.

The libraries of that time take a 4xx or 5xx for a broken connection and give up the session. What
the transport itself refuses keeps its status, as do 401 and 403, which clients act on.
"""


class LegacyError(NamedTuple):
    """What a client of an older revision is told.

    Attributes:
        error: The ``error`` member of a JSON-RPC error response.
        headers: HTTP response headers that belong to it.
    """

    error: dict[str, Any]
    http_status: int
    headers: Sequence[tuple[bytes, bytes]]

    def response(self, id: RequestId | None) -> bytes:
        """The JSON-RPC error response; without an id where none could be read."""
        member = {} if id is None else {"id": id}
        return dumps({"jsonrpc": "2.0", "error": self.error, **member})


def told(error: ProtocolError) -> LegacyError:
    """An error in the words of the ``initialize`` era; they are the same in each revision."""
    as_json = error.as_json()
    as_json["code"] = _CODES.get(type(error), error.code)
    status = 200 if isinstance(error, _IN_BAND) else error.http_status
    return LegacyError(as_json, status, error.headers)


def argument_error(result: bytes) -> InvalidParams:
    """The protocol error that bad arguments were until 2025-06-18 (Tools, "Error Handling").

    Args:
        result: The ``CallToolResult`` that names what is wrong. That it is one, the caller knows;
            see ``Revision.argument_errors_as_results``.
    """
    return InvalidParams(decode(result)["content"][0]["text"])
