"""The spans of a request, by the semantic conventions of OpenTelemetry for MCP.

Source: open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md (status: development). What
this server adds is named ``mcp_tool_server.*``. No argument, result, credential or exception text
is ever put into a span, and of what clients say only what is bounded.
"""

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from app.observability.logs import printable
from app.observability.propagation import context_headers, remote_context, trace_id_of
from app.protocol.errors import InternalError, ProtocolError
from app.protocol.headers import HeaderMap
from app.protocol.schema import METHODS, RequestId
from app.protocol.trace_context import context_in_headers, context_in_meta, read_baggage

OTHER: Final = "_OTHER"
"""In place of a method that a client has made up."""

OUTCOME: Final = "mcp_tool_server.outcome"
_FAILURES: Final = frozenset({"tool_error", "timeout", "internal_error"})


class RequestSpan:
    """The span of one request, from its arrival to its answer.

    Attributes:
        trace_id: 32 hexadecimal digits.
    """

    __slots__ = ("_code", "_message", "_span", "_token", "_tracer", "trace_id")

    def __init__(self, tracer: trace.Tracer, span: Span, within: context.Context) -> None:
        self._tracer = tracer
        self._span = span
        self._code: str | None = None
        self._message: str | None = None
        self.trace_id = trace_id_of(span)
        # Whatever is begun from here on, tasks and threads too, has this span for its parent.
        self._token = context.attach(trace.set_span_in_context(span, within))

    def leave(self) -> None:
        """What this task begins from here on is not the request's."""
        context.detach(self._token)

    def waited(self, name: str, since_ns: int, until_ns: int) -> None:
        """Something kept the request waiting before its span began.

        Args:
            since_ns: Nanoseconds of POSIX time.
        """
        if self._span.is_recording():
            span = self._tracer.start_span(name, start_time=since_ns)
            span.end(until_ns)

    def of_session(self, id: str) -> None:
        """The request belongs to a session of an older revision.

        Args:
            id: Which names it and opens nothing: no token.
        """
        self._span.set_attribute("mcp.session.id", id)

    def of_version(self, version: str) -> None:
        """The revision that the request is of."""
        self._span.set_attribute("mcp.protocol.version", version)

    def event(self, name: str) -> None:
        """Something was said to the client; the SDK keeps the last 128."""
        self._span.add_event(name)

    def refused(self, error: ProtocolError, code: int | None = None) -> None:
        """The answer is an error.

        Args:
            code: Of the answer, where it is another one than the error's.
        """
        self._code = str(error.code if code is None else code)
        # The class, and no message: some quote what the client has sent.
        self._message = type(error).__name__

    def end(self, outcome: str, error_id: str | None = None) -> None:
        """The request was answered, or never will be."""
        span = self._span
        if not span.is_recording():
            return
        attributes = {OUTCOME: outcome}
        if error_id is not None:
            attributes["mcp_tool_server.error_id"] = error_id
        elif self._code is None and outcome == "internal_error":
            self._code, self._message = str(InternalError.code), InternalError.__name__
        if self._code is not None:
            attributes["rpc.response.status_code"] = self._code
        if self._code is not None or outcome in _FAILURES:
            # A result with isError: always this word ("error.type" of the conventions).
            attributes["error.type"] = self._code or "tool_error"
            span.set_status(Status(StatusCode.ERROR, self._message))
        span.set_attributes(attributes)
        span.end()


class RunSpan:
    """The spans of one run of a tool's code: that it waited for its turn, and that it ran.

    Begun wherever the code runs, ended in the event loop; a run that nobody waits for any more
    ends for its caller, whatever its code does.
    """

    __slots__ = (
        "_attributes",
        "_is_over",
        "_lock",
        "_name",
        "_parent",
        "_since_ns",
        "_span",
        "_tracer",
        "waits",
    )

    def __init__(self, tracer: trace.Tracer, tool: str, runs_in: str) -> None:
        self._tracer = tracer
        self._parent = context.get_current()
        self._name = f"run {tool}"
        self._attributes = {"gen_ai.tool.name": tool, "mcp_tool_server.runs_in": runs_in}
        self._lock = threading.Lock()
        self._since_ns = time.time_ns()
        self._span: Span | None = None
        self._is_over = False
        self.waits = False

    def begin(self) -> context.Context:
        """The code is about to run. Returns the context that it is to run in."""
        with self._lock:
            if self._is_over:  # nobody waits any more, and it began all the same
                return self._parent
            now_ns = time.time_ns()
            if self.waits:
                self._tracer.start_span(
                    "queue", self._parent, attributes=self._attributes, start_time=self._since_ns
                ).end(now_ns)
            span = self._span = self._tracer.start_span(
                self._name, self._parent, attributes=self._attributes, start_time=now_ns
            )
        return trace.set_span_in_context(span, self._parent)

    def begin_elsewhere(self) -> dict[str, str]:
        """The same for code in another process: what to tell it."""
        return context_headers(self.begin())

    def enter(self) -> None:
        """The same for the code of this task or thread."""
        context.attach(self.begin())  # for good: the context is the task's or the call's own

    def carry(self, work: Callable[[], Any]) -> Any:
        """Run code in this thread, as part of the run."""
        self.enter()
        return work()

    def end(self, outcome: str) -> None:
        """The run is over for its caller. Later endings are ignored."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            span = self._span
            if span is None:
                if not self.waits:
                    return
                span = self._tracer.start_span(
                    "queue", self._parent, attributes=self._attributes, start_time=self._since_ns
                )
        span.set_attribute(OUTCOME, outcome)
        if outcome in _FAILURES:
            span.set_attribute("error.type", outcome)
            span.set_status(StatusCode.ERROR)
        span.end()


class RoundTripSpan:
    """The span of a question to shared state, as long as it is entered.

    Named as the conventions for databases have it; it is not the current span meanwhile.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        """It was begun when it was made."""

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Spans:
    """Makes the spans of one process.

    Args:
        baggage: Keys of the caller's baggage that are carried on.
    """

    def __init__(self, tracer: trace.Tracer, *, baggage: frozenset[str]) -> None:
        self._tracer = tracer
        self._baggage = baggage

    def request(
        self,
        method: str,
        id: RequestId | None,
        meta: Any,
        headers: HeaderMap | None,
        *,
        transport: Mapping[str, str | int],
        began_ns: int,
        version: str | None = None,
    ) -> RequestSpan:
        """Begin the span of a request or notification, and make it the current one.

        Args:
            id: None: a notification.
            meta: Its ``_meta``, whatever that is.
            headers: Of HTTP; None: there are none.
            transport: Attributes of the connection.
            began_ns: When it arrived, in nanoseconds of POSIX time.
        """
        inner = context_in_meta(meta) if isinstance(meta, dict) and "traceparent" in meta else None
        outer = None if headers is None else context_in_headers(headers)
        within = remote_context(inner or outer, self._baggage_of(meta, headers))
        # "Context propagation" of the conventions: _meta is the parent, HTTP's context a link.
        links = []
        if inner is not None and outer is not None and outer.parent != inner.parent:
            around = trace.get_current_span(remote_context(outer, {})).get_span_context()
            links.append(trace.Link(around))
        name = method if method in METHODS else OTHER
        attributes = {"mcp.method.name": name, **transport}
        if version is not None:
            attributes["mcp.protocol.version"] = version
        if id is not None:
            attributes["jsonrpc.request.id"] = printable(str(id))
        if name == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        span = self._tracer.start_span(
            name,
            within,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=links,
            start_time=began_ns,
        )
        return RequestSpan(self._tracer, span, within)

    def of_tool(self, name: str) -> None:
        """The current request is about this tool, which its caller may see."""
        span = trace.get_current_span()
        if span.is_recording():
            span.update_name(f"tools/call {name}")
            span.set_attribute("gen_ai.tool.name", name)

    def run(self, tool: str, runs_in: str) -> RunSpan | None:
        """A run of a tool's code is about to begin, in the current request.

        Returns:
            None: Nobody records it.
        """
        if trace.get_current_span().is_recording():
            return RunSpan(self._tracer, tool, runs_in)
        return None

    def round_trip(self, store: str, operation: str) -> RoundTripSpan | None:
        """Shared state is about to be asked for the current request.

        Returns:
            None: Nobody records it.
        """
        if not trace.get_current_span().is_recording():
            return None
        attributes = {
            "db.system.name": "redis",
            "db.operation.name": operation,
            "db.collection.name": store,
        }
        name = f"{operation} {store}"
        kind = SpanKind.CLIENT
        return RoundTripSpan(self._tracer.start_span(name, kind=kind, attributes=attributes))

    def _baggage_of(self, meta: Any, headers: HeaderMap | None) -> dict[str, str]:
        if not self._baggage:
            return {}
        if isinstance(meta, dict) and "baggage" in meta:
            return read_baggage(meta["baggage"], self._baggage)
        value = None if headers is None else headers.get(b"baggage")
        return {} if value is None else read_baggage(value.decode("latin-1"), self._baggage)
