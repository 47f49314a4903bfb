"""Whose trace work belongs to: between the W3C headers and the context of OpenTelemetry.

Knows the API of OpenTelemetry alone, which does nothing by itself and is always there.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from opentelemetry import context, trace
from opentelemetry.baggage import get_all, set_baggage
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.protocol.trace_context import TraceContext, read_baggage

_trace: Final = TraceContextTextMapPropagator()


def remote_context(parent: TraceContext | None, baggage: Mapping[str, str]) -> context.Context:
    """A context in which the caller's span is the current one."""
    # Read before, since the library's own reader writes into the log what it cannot read.
    remote = (
        context.Context() if parent is None else _trace.extract(parent.headers, context.Context())
    )
    for name, value in baggage.items():
        remote = set_baggage(name, value, remote)
    return remote


def context_headers(within: context.Context | None = None) -> dict[str, str]:
    """``traceparent``, ``tracestate`` and ``baggage`` that go on from here; empty: no trace.

    Args:
        within: Default: the current context.
    """
    headers: dict[str, str] = {}
    _trace.inject(headers, within)
    if headers and (baggage := get_all(within)):
        # Not the library's writer, whose blanks are those of forms: W3C Baggage has %20.
        headers["baggage"] = ",".join(f"{key}={quote(str(baggage[key]))}" for key in baggage)
    return headers


def outgoing_headers(caller: TraceContext | None) -> dict[str, str]:
    """What puts an outgoing request into the trace of this one.

    Args:
        caller: Where the request hangs if no span is current, because none are made.
    """
    return context_headers() or ({} if caller is None else caller.headers)


@contextlib.contextmanager
def carried_on(headers: Mapping[str, str]) -> Iterator[None]:
    """Work in the trace that ``context_headers`` of another process tells of."""
    parent = headers.get("traceparent")
    if parent is None:
        yield
        return
    baggage = headers.get("baggage", "")
    keys = (member.partition("=")[0] for member in baggage.split(","))
    caller = TraceContext(parent, headers.get("tracestate"))
    token = context.attach(remote_context(caller, read_baggage(baggage, keys)))
    try:
        yield
    finally:
        context.detach(token)


def trace_id_of(span: trace.Span) -> str:
    """Its trace, as 32 hexadecimal digits."""
    return trace.format_trace_id(span.get_span_context().trace_id)
