"""The one log line of a request: what was asked and how it ended, never what was said."""

import time
from typing import Final

from app.observability.logs import EventLog, printable
from app.observability.spans import RequestSpan
from app.principal import ANONYMOUS
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call, trace_parent
from app.protocol.jsonrpc import Message
from app.protocol.schema import Implementation, RequestId

_OUTCOMES: Final = {401: "denied", 403: "denied", 429: "limited", 503: "limited"}


def outcome_of(error: ProtocolError) -> str:
    """How a request that was refused has ended."""
    by_default = "protocol_error" if error.http_status < 500 else "internal_error"
    return _OUTCOMES.get(error.http_status, by_default)


class RequestRecord:
    """Collects what the log line says.

    Attributes:
        address: Of the client, where it is known.
        principal: Who calls, once that is known.
        tool: The name of a tool that the client wants to call, short and printable.
        is_written: Whether somebody else has written the line of this request.
        span: Of this request, ended with its line; None: there is none.
    """

    __slots__ = (
        "_client",
        "_code",
        "_reason",
        "_setting",
        "_start",
        "_trace",
        "address",
        "error_id",
        "id",
        "is_written",
        "method",
        "outcome",
        "principal",
        "span",
        "tool",
    )

    def __init__(self) -> None:
        self.address: str | None = None
        self.principal = ANONYMOUS
        self._start = time.perf_counter()
        self.tool: str | None = None
        self._trace: str | None = None
        self._client: str | None = None
        self._code: int | None = None
        self._setting: str | None = None
        self._reason: str | None = None
        self.id: RequestId | None = None
        self.method: str | None = None
        self.outcome = "ok"
        self.is_written = False
        self.error_id: str | None = None
        self.span: RequestSpan | None = None

    @property
    def began(self) -> float:
        """When the request arrived, as ``time.perf_counter()`` has it."""
        return self._start

    def call(self, call: Call) -> None:
        """The request passed the checks of its envelope and headers."""
        # Not the call itself: a stream may live for days, and its request may be large.
        self.id = call.id
        self.method = call.method
        name = call.params.get("name") if call.method == "tools/call" else None
        self.tool = printable(name, 128) if isinstance(name, str) else None
        trace, client = call.meta.trace_parent, call.meta.client_info
        self._trace = None if trace is None else trace[3:35]
        self._client = None if client is None else printable(client.name)

    def of_legacy(self, message: Message) -> None:
        """The request is of a revision before 2026-07-28."""
        self.id, self.method = message.id, message.method
        meta = (message.params or {}).get("_meta")
        trace = trace_parent(meta) if isinstance(meta, dict) else None
        self._trace = None if trace is None else trace[3:35]
        name = (message.params or {}).get("name") if message.method == "tools/call" else None
        self.tool = printable(name, 128) if isinstance(name, str) else None

    def of_client(self, client: Implementation) -> None:
        """The client has said who it is when it opened its session."""
        self._client = printable(client.name)

    def refused(self, error: ProtocolError) -> None:
        """The request was refused."""
        self.outcome = outcome_of(error)
        # Not the error itself: by its traceback it holds whatever holds it.
        self._code, self._setting = error.code, error.setting
        if self.outcome == "denied":
            self._reason = error.message  # a sentence of ours, which quotes no credential
        if self.span is not None:
            self.span.refused(error)

    def write(self, log: EventLog, status: int | None = None) -> None:
        """Write the line, unless it is written already.

        Args:
            status: Of HTTP.
        """
        if self.is_written:
            return
        id = self.id
        fields: dict[str, object] = {
            "method": None if self.method is None else printable(self.method),
            "outcome": self.outcome,
            "duration_ms": int((time.perf_counter() - self._start) * 1_000_000) / 1000,
            "request_id": id if type(id) is int and id.bit_length() < 64 else _text(id),
        }
        if status is not None:
            fields["status"] = status
        if self.address is not None:
            fields["address"] = self.address
        principal = self.principal
        if principal.issuer is not None and principal.subject is not None:
            fields["issuer"] = printable(principal.issuer, 128)
            fields["subject"] = printable(principal.subject)
        if self._code is not None:
            fields["code"] = self._code
        if self._reason is not None:
            fields["reason"] = printable(self._reason, 200)
        if self._setting is not None:
            fields["setting"] = self._setting
        if self.error_id is not None:
            fields["error_id"] = self.error_id
        if self.tool is not None:
            fields["tool"] = self.tool
        trace = self._end_span()
        if trace is not None:
            fields["trace_id"] = trace
        if self._client is not None:
            fields["client"] = self._client
        log.info(fields)

    def _end_span(self) -> str | None:
        """Returns the trace that the request belongs to."""
        if self.span is None:
            return self._trace
        self.span.end(self.outcome, self.error_id)
        return self.span.trace_id


def _text(id: RequestId | None) -> str | None:
    return None if id is None else printable(str(id))
