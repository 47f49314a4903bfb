"""The one log line of a request, and its place in the metrics: what was asked and how it ended,
never what was said.

``docs/schemas/log-line.schema.json`` describes the line.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from app.execution.execution import Execution, Outcome
from app.methods.described import content_types, shown
from app.observability import metrics
from app.observability.logs import EventLog, printable
from app.observability.spans import RequestSpan
from app.principal import ANONYMOUS
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call, trace_parent
from app.protocol.jsonrpc import Message
from app.protocol.schema import METHODS, Implementation, RequestId
from app.registry.tool import Tool

MODERN: Final = "modern"
LEGACY: Final = "initialize"
_OUTCOMES: Final = {401: "denied", 403: "denied", 429: "limited", 503: "limited"}

NEVER_RAN: Final = frozenset({"denied", "limited", "protocol_error"})
"""Outcomes of calls that were refused; how soon says nothing about a tool."""

# Ours, for what has no method of MCP.
LABELS: Final = {
    name: name for name in (*METHODS, "session/listen", "session/end", "batch", "preflight")
}
"""The label of any other method is ``(unknown)``."""

LOOKUPS: Final = ("hit", "miss")
_STATUSES: Final = {status: str(status) for status in range(100, 600)}


def outcome_of(error: ProtocolError) -> str:
    """How a request that was refused has ended."""
    by_default = "protocol_error" if error.http_status < 500 else "internal_error"
    return _OUTCOMES.get(error.http_status, by_default)


class RequestRecord:
    """Collects what the log line and the metrics say.

    Attributes:
        address: Of the client, where it is known.
        principal: Who calls, once that is known.
        tool: The name of a tool that the client wants to call, as it wrote it.
        found: That tool, once it is known that the caller can see it.
        arguments: Those that the line shows; None: it shows none.
        trace_id: Of the trace that the request belongs to.
        cached: As of ``Execution``.
        is_written: Whether somebody else has written the line of this request.
        span: Of this request, ended with its line; None: there is none.
    """

    __slots__ = (
        "_attempt",
        "_client",
        "_code",
        "_content_types",
        "_credential",
        "_era",
        "_is_part",
        "_reason",
        "_result",
        "_revision",
        "_setting",
        "_start",
        "address",
        "arguments",
        "cached",
        "error_id",
        "found",
        "id",
        "is_written",
        "method",
        "outcome",
        "principal",
        "span",
        "tool",
        "trace_id",
    )

    def __init__(self) -> None:
        self.address: str | None = None
        self.principal = ANONYMOUS
        self._is_part = False
        self._start = time.perf_counter()
        self.tool: str | None = None
        self.found: Tool | None = None
        self.arguments: dict[str, Any] | None = None
        self.trace_id: str | None = None
        self._client: str | None = None
        self._revision: str | None = None
        self._era = metrics.NONE
        self._code: int | None = None
        self._setting: str | None = None
        self._credential: str | None = None
        self._reason: str | None = None
        self._result: bytes | None = None
        self._content_types: Sequence[str] | None = None
        self._attempt = 0
        self.cached: str | None = None
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
        id, method, params, meta = call
        self.id = id
        self.method = method
        if method == "tools/call":
            name = params.get("name")
            self.tool = name[:128] if isinstance(name, str) else None
        self._era = MODERN
        self._revision = meta.protocol_version
        trace, client = meta.trace_parent, meta.client_info
        if trace is not None:
            self.trace_id = trace[3:35]
        if client is not None:
            self._client = client.name[:64]

    def of_legacy(self, message: Message) -> None:
        """The request is of a revision before 2026-07-28."""
        self.id, self.method, self._era = message.id, message.method, LEGACY
        params = message.params or {}
        meta = params.get("_meta")
        trace = trace_parent(meta) if isinstance(meta, dict) else None
        if trace is not None:
            self.trace_id = trace[3:35]
        name = params.get("name") if message.method == "tools/call" else None
        self.tool = name[:128] if isinstance(name, str) else None

    def of_client(self, client: Implementation, revision: str) -> None:
        """The client has said who it is when it opened its session."""
        self._client, self._revision, self._era = client.name[:64], revision, LEGACY

    def part(self, message: Message) -> "RequestRecord":
        """That of one request of a batch, whose own record this is."""
        one = RequestRecord()
        one.address, one.principal = self.address, self.principal
        one._is_part = True  # its own class
        one._client, one._revision = self._client, self._revision
        one.of_legacy(message)
        return one

    def refused(self, error: ProtocolError) -> None:
        """The request was refused."""
        self.outcome = outcome_of(error)
        # Not the error itself: by its traceback it holds whatever holds it.
        self._code, self._setting = error.code, error.setting
        self._credential = error.credential
        if self.outcome == "denied":
            self._reason = error.message  # a sentence of ours, which quotes no credential
        if self.span is not None:
            self.span.refused(error)

    def ended(self, execution: Execution) -> None:
        """The call has ended, with a result or without one."""
        self._attempt = execution.attempt
        self.cached = execution.cached
        if execution.refusal is None:
            self.outcome, self.error_id = execution.outcome, execution.error_id
            self._result = execution.result
            if execution.outcome == Outcome.OK:
                self._content_types = execution.content_types

    def answered(self, outcome: str, result: bytes) -> None:
        """It has its answer without a tool having run."""
        self.outcome = outcome
        if self.found is not None:
            self._result = result

    def write(self, log: EventLog, status: int | None = None) -> None:
        """Count the request and write its line, unless that is done already.

        Args:
            status: Of HTTP; 0: none was sent.
        """
        if self.is_written:
            return
        seconds = time.perf_counter() - self._start
        if self.span is not None:
            self.trace_id = self.span.trace_id
            self.span.end(self.outcome, self.error_id)
        self._count(seconds, status)
        if log.is_enabled:
            log.info(self._line(seconds, status))

    def _count(self, seconds: float, status: int | None) -> None:
        method, outcome = self.method, self.outcome
        label = metrics.NONE if method is None else LABELS.get(method, metrics.UNKNOWN)
        metrics.REQUESTS.inc(label, self._era, _STATUSES.get(status or 0, metrics.NONE))
        if method == "tools/call":
            tool = metrics.UNKNOWN if self.found is None else metrics.tools.label(self.found.name)
            metrics.TOOL_CALLS.inc(tool, outcome)
            if outcome not in NEVER_RAN:
                metrics.RESPONSE_TIME.observe(seconds, tool)
            if self.cached in LOOKUPS:
                metrics.CACHE_LOOKUPS.inc(self.cached)
        if self._credential is not None:
            metrics.AUTHENTICATIONS.inc(self._credential)
        elif self.principal.issuer is not None and not self._is_part:
            metrics.AUTHENTICATIONS.inc("ok")
        if outcome == "limited":
            metrics.LIMITED.inc(self._setting or metrics.NONE)

    def _line(self, seconds: float, status: int | None) -> dict[str, Any]:
        id, method = self.id, self.method
        fields: dict[str, Any] = {
            "method": LABELS.get(method) or printable(method) if method is not None else None,
            "outcome": self.outcome,
            "duration_ms": int(seconds * 1_000_000) / 1000,
            "request_id": id if type(id) is int and id.bit_length() < 64 else _text(id),
        }
        if status is not None:
            fields["status"] = status
        self._of_caller(fields)
        if self._code is not None:
            fields["code"] = self._code
            if self._reason is not None:
                fields["reason"] = printable(self._reason, 200)
            if self._setting is not None:
                fields["setting"] = self._setting
        if self.error_id is not None:
            fields["error_id"] = self.error_id
        if self.found is not None:
            self._of_tool(fields, self.found)
        elif self.tool is not None:
            fields["tool"] = printable(self.tool, 128)
        if self.trace_id is not None:
            fields["trace_id"] = self.trace_id
        if self._revision is not None:
            fields["revision"] = self._revision
        return fields

    def _of_caller(self, fields: dict[str, Any]) -> None:
        if self.address is not None:
            fields["address"] = self.address
        principal = self.principal
        if principal.issuer is not None and principal.subject is not None:
            fields["issuer"] = printable(principal.issuer, 128)
            fields["subject"] = printable(principal.subject)
            if principal.tenant is not None:
                fields["tenant"] = printable(principal.tenant, 128)
        if self._client is not None:
            fields["client"] = printable(self._client)

    def _of_tool(self, fields: dict[str, Any], tool: Tool) -> None:
        fields["tool"] = tool.name
        fields["tool_version"] = tool.short_version
        if self._result:
            fields["content_types"] = self._content_types or content_types(self._result)
        if self._attempt:
            fields["attempt"] = self._attempt
        if self.cached is not None:
            fields["cache"] = self.cached
        if self.arguments is not None:
            fields["arguments"] = shown(self.arguments)


def _text(id: RequestId | None) -> str | None:
    return None if id is None else printable(str(id))
