"""Spans to a collector: the one place that knows the SDK of OpenTelemetry and its exporter.

Both are the extra ``telemetry``. Nothing here is imported before tracing is turned on.
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog
from opentelemetry import trace

from app.observability.logs import printable
from app.observability.spans import Spans
from app.settings import TracingSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

FLUSH_S: Final = 3.0
"""How long the end of the process waits for the collector to take the last spans."""

INSTALL: Final = 'pip install "mcp-tool-server[telemetry]"'
_PATH: Final = "/v1/traces"
_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

log = structlog.get_logger()


class TelemetryMissing(Exception):
    """Tracing is turned on, and what it needs is not installed."""

    def __init__(self) -> None:
        super().__init__(
            f"tracing needs the OpenTelemetry SDK and its exporter, which are not installed: "
            f"{INSTALL}, or set [tracing] enabled = false"
        )


class Tracing:
    """What makes the spans of a process, and sends them.

    Attributes:
        spans: Makes them.
    """

    def __init__(self, provider: "TracerProvider", spans: Spans) -> None:
        self.spans = spans
        self._provider = provider

    async def close(self, timeout_s: float = FLUSH_S) -> None:
        """Send what is left. A collector that does not answer is not waited for longer."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        # A thread of its own that keeps nothing from ending: the exporter may hang for long.
        threading.Thread(target=shut_down, name="flush spans", daemon=True).start()
        try:
            async with asyncio.timeout(timeout_s):
                await done.wait()
        except TimeoutError:
            log.warning("spans_left_behind", after_s=timeout_s)


def check_telemetry() -> None:
    """Whether what tracing needs is installed.

    Raises:
        TelemetryMissing: It is not.
    """
    try:
        is_there = all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # of a package around it
        is_there = False
    if not is_there:
        raise TelemetryMissing


def open_tracing(settings: TracingSettings, *, name: str, version: str) -> Tracing | None:
    """Begin to make spans, as far as that is configured.

    What the settings leave open is for the ``OTEL_*`` variables of the specification ("Environment
    Variable Specification", "OpenTelemetry Protocol Exporter"), as the SDK reads them.

    Args:
        name: Of the server, for want of another one.

    Returns:
        None: Tracing is off.

    Raises:
        TelemetryMissing: It is on, and the extra is not installed.
    """
    if not settings.enabled or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    check_telemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    notes = _Notes()
    endpoint = settings.endpoint
    if endpoint is not None and not endpoint.endswith(_PATH):
        endpoint += _PATH
    ratio = settings.sample_ratio
    provider = TracerProvider(
        sampler=None if ratio is None else ParentBased(TraceIdRatioBased(ratio)),
        resource=_resource(settings, name, version),
        shutdown_on_exit=False,  # `close` does that, in the time that there is
    )
    exporter = _watched(OTLPSpanExporter(endpoint), notes)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        # So that spans which tools make go the same way. Whoever has set one up before is right.
        trace.set_tracer_provider(provider)
    tracer = provider.get_tracer("mcp-tool-server", version)
    return Tracing(provider, Spans(tracer, baggage=frozenset(settings.baggage)))


def _resource(settings: TracingSettings, name: str, version: str) -> "Resource":
    """Who makes the spans: our own words, unless the environment has others."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    ours: dict[str, Any] = {
        "service.name": name,
        "service.version": version,
        "service.instance.id": str(uuid.uuid4()),  # of this process: there may be several
        "process.pid": os.getpid(),
    }
    ours |= OTELResourceDetector().detect().attributes
    if settings.service_name is not None:
        ours["service.name"] = settings.service_name
    return Resource.create(ours)


class _Notes(logging.Handler):
    """Hears what SDK and exporter log, which would be a line for each attempt and each span.

    Attributes:
        reason: Why the last batch was not exported.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reason = ""
        self._told: set[str] = set()
        for name in ("opentelemetry.sdk", "opentelemetry.exporter"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [self]
            logger.propagate = False
            logger.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("opentelemetry.exporter"):
            self.reason = printable(record.getMessage(), 300)
        elif record.msg not in self._told:  # a constant of the SDK, so there are few
            self._told.add(record.msg)
            log.warning("tracing_problem", problem=printable(record.getMessage(), 300))

    def forget(self) -> None:
        """What is over may be told again."""
        self.reason = ""
        self._told.clear()


def _watched(exporter: "SpanExporter", notes: _Notes) -> "SpanExporter":
    """The exporter, saying once when it stops to work and once when it works again."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    class Watched(SpanExporter):
        def __init__(self) -> None:
            self._lost = 0

        def export(self, spans: Sequence["ReadableSpan"]) -> "SpanExportResult":
            notes.reason = ""
            result = exporter.export(spans)
            if result is not SpanExportResult.SUCCESS:
                if not self._lost:
                    log.warning("spans_not_exported", problem=notes.reason)
                self._lost += len(spans)
            elif self._lost:
                log.info("spans_exported_again", lost=self._lost)
                self._lost = 0
                notes.forget()
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Watched()
