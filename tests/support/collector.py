"""A collector of traces: takes OTLP over HTTP as the exporter sends it, or fails to on purpose."""

import gzip
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.waiting import Deadline

KINDS: Final = {
    number: name.removeprefix("SPAN_KIND_") for name, number in SpanMessage.SpanKind.items()
}
STATUSES: Final = {
    number: name.removeprefix("STATUS_CODE_") for name, number in Status.StatusCode.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span as it arrived; ids are hexadecimal, `parent` is empty for a root."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    state: str
    attributes: Mapping[str, Any]
    status: str
    description: str
    links: Sequence[tuple[str, str]]
    events: Sequence[str]
    began_ns: int
    ended_ns: int
    resource: Mapping[str, Any]
    scope: str

    @property
    def error(self) -> str | None:
        """`error.type`."""
        return self.attributes.get("error.type")


class Collector:
    """The server, from `with` to its end.

    Attributes:
        fault: Called before each answer; gives a status in place of 200, or waits.
        paths: Of all requests so far.
    """

    def __init__(self, port: int = 0) -> None:
        self.fault: Callable[[], int | None] = lambda: None
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.ended = threading.Event()
        self.received = bytearray()
        self._spans: list[Span] = []
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """Base of what it takes."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For a server whose spans come here, and soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "NO_PROXY": "*",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self, trace: str | None = None) -> list[Span]:
        """All that have arrived, or those of one trace."""
        with self._news:
            return [span for span in self._spans if trace in (None, span.trace)]

    def wait(self, trace: str, *names: str, timeout_s: float = 10.0) -> dict[str, Span]:
        """Spans of one trace by name, once there are those with these names.

        Raises:
            AssertionError: They do not come.
        """
        deadline = Deadline(timeout_s)
        with self._news:
            while True:
                found = {span.name: span for span in self._spans if span.trace == trace}
                if set(names) <= found.keys():
                    return found
                if deadline.expired:
                    raise AssertionError(f"no spans {set(names) - found.keys()} in {list(found)}")
                self._news.wait(deadline.remaining_s)

    def wait_for(
        self, predicate: Callable[[Span], bool], count: int = 1, timeout_s: float = 10.0
    ) -> list[Span]:
        """So many spans that `predicate` accepts.

        Raises:
            AssertionError: They do not come.
        """
        deadline = Deadline(timeout_s)
        with self._news:
            while True:
                found = [span for span in self._spans if predicate(span)]
                if len(found) >= count:
                    return found
                if deadline.expired:
                    names = [span.name for span in self._spans]
                    raise AssertionError(f"{len(found)} of {count} such spans in {names[-40:]}")
                self._news.wait(deadline.remaining_s)

    def take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """One request of an exporter."""
        self.paths.append(handler.path)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        status = self.fault() or 200
        if status == 200:
            if handler.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            with self._news:
                self.received += body
                self._spans += _spans_of(ExportTraceServiceRequest.FromString(body))
                self._news.notify_all()
        answer = ExportTraceServiceResponse().SerializeToString()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/x-protobuf")
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)


def _spans_of(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            name=span.name,
            kind=KINDS[span.kind],
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            state=span.trace_state,
            attributes=_attributes(span.attributes),
            status=STATUSES[span.status.code],
            description=span.status.message,
            links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            events=[event.name for event in span.events],
            began_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
            resource=_attributes(resource.resource.attributes),
            scope=scope.scope.name,
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


def _handler_of(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                collector.take(self, body)
            except ConnectionError:  # the exporter has given up
                self.close_connection = True

        def log_message(self, *args: Any) -> None: ...

    return Handler
