"""Errors of the client program. Each class knows its JSON-RPC code and its HTTP status.

A failing *tool* is not here: it is a result with ``isError`` (see ``app.toolkit.ToolError``).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

REFUSAL_BASE = 31000
"""Refusals without a standard code carry ``-(REFUSAL_BASE + HTTP status)``.

That lies outside -32768..-32000, which JSON-RPC reserves and MCP partitions (Overview, "Error
Codes").
"""


class ProtocolError(Exception):
    """A request that this server answers with a JSON-RPC error.

    Attributes:
        message: One sentence for the person who debugs the client.
        data: JSON value for programs, or None.
        headers: HTTP response headers that belong to the refusal, names in lower case.
        setting: The configuration key that decided, for the operator's log.
        is_observed: Whether those who observe calls know of it already.
        credential: What was found of the caller's credential, in one word for the metrics; None:
            it was not the credential.
    """

    code: ClassVar[int]
    http_status: ClassVar[int]
    credential: str | None = None

    def __init__(
        self,
        message: str,
        *,
        data: Any = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        setting: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.headers = tuple(headers)
        self.setting = setting
        self.is_observed = False

    def as_json(self) -> dict[str, Any]:
        """The ``error`` member of a JSON-RPC error response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class ParseError(ProtocolError):
    code, http_status = -32700, 400


class InvalidRequest(ProtocolError):
    code, http_status = -32600, 400


class MethodNotFound(ProtocolError):
    code, http_status = -32601, 404


class InvalidParams(ProtocolError):
    code, http_status = -32602, 400


class InternalError(ProtocolError):
    code, http_status = -32603, 500


class HeaderMismatch(ProtocolError):
    """Headers and body disagree (Streamable HTTP, "Server Validation")."""

    code, http_status = -32020, 400


class MissingRequiredClientCapability(ProtocolError):
    """The request needs something of the client that it did not say it has.

    Args:
        required: A ``ClientCapabilities`` object: all that the request needs.
    """

    code, http_status = -32021, 400

    def __init__(self, message: str, *, required: Mapping[str, Any]) -> None:
        super().__init__(message, data={"requiredCapabilities": dict(required)})


class UnsupportedProtocolVersion(ProtocolError):
    code, http_status = -32022, 400

    def __init__(self, message: str, *, requested: str, supported: Sequence[str]) -> None:
        super().__init__(message, data={"supported": list(supported), "requested": requested})


class Refusal(ProtocolError):
    """A refusal of HTTP, told in a JSON-RPC error so that MCP clients can show it."""

    def __init_subclass__(cls) -> None:
        cls.code = -(REFUSAL_BASE + cls.http_status)


class Unauthorized(Refusal):
    """Who calls is not known: the header ``WWW-Authenticate`` says how to become known."""

    http_status = 401


class Forbidden(Refusal):
    http_status = 403


class NotFound(Refusal):
    http_status = 404


class MethodNotAllowed(Refusal):
    http_status = 405

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message, headers=[(b"allow", allow.encode("ascii"))])


class NotAcceptable(Refusal):
    http_status = 406


class RequestTimeout(Refusal):
    http_status = 408


class PayloadTooLarge(Refusal):
    http_status = 413


class UnsupportedMediaType(Refusal):
    http_status = 415


class MisdirectedRequest(Refusal):
    http_status = 421


class TooManyRequests(Refusal):
    """More than a rate limit lets through: the wait stands where ``Unavailable`` has it.

    Args:
        wait_s: Seconds until the next one could be let through.
    """

    http_status = 429

    def __init__(self, message: str, *, wait_s: float, setting: str) -> None:
        # Rounded up: whoever waits as long as it says must not come too early.
        whole_s = max(1, math.ceil(wait_s))
        super().__init__(
            f"{message} Try again in {whole_s} s.",
            data={"retryAfterMs": max(1, math.ceil(wait_s * 1000))},
            headers=[(b"retry-after", str(whole_s).encode("ascii"))],
            setting=setting,
        )


class HeadersTooLarge(Refusal):
    http_status = 431


class Unavailable(Refusal):
    """Come back later: the wait stands in the header, in ``data`` and in the sentence."""

    http_status = 503

    def __init__(self, message: str, *, retry_after_s: int, setting: str | None = None) -> None:
        super().__init__(
            f"{message} Try again in {retry_after_s} s.",
            data={"retryAfterMs": retry_after_s * 1000},
            headers=[(b"retry-after", str(retry_after_s).encode("ascii"))],
            setting=setting,
        )
