"""The span of a request over HTTP: what the exchange says about it."""

import time
from typing import Any

from app.http.exchange import Exchange
from app.observability.spans import RequestSpan, Spans
from app.protocol.inbound import Call, Legacy, Notification, Rejected
from app.protocol.jsonrpc import Message
from app.protocol.schema import RequestId


def span_of(
    spans: Spans, inbound: Call | Legacy | Notification | Rejected, exchange: Exchange
) -> RequestSpan | None:
    """The span of what has arrived; None: it is neither a request nor a notification."""
    match inbound:
        case Call(id, method, _, meta):
            return begin_span(
                spans, exchange, method, id, meta=meta.raw, version=meta.protocol_version
            )
        case Legacy(message, _):
            return begin_span(spans, exchange, message.method, message.id, meta=meta_of(message))
        case Notification(method, params):
            meta = None if params is None else params.get("_meta")
            return begin_span(spans, exchange, method, None, meta=meta)
        case Rejected(_, id, method, meta):
            return None if method is None else begin_span(spans, exchange, method, id, meta=meta)


def begin_span(
    spans: Spans,
    exchange: Exchange,
    method: str,
    id: RequestId | None,
    *,
    meta: Any,
    version: str | None = None,
) -> RequestSpan:
    """The span of one request or notification, which is the current one until it is left.

    Args:
        id: None: a notification.
        meta: Its ``_meta``, whatever that is.
        version: Its revision; None: not known yet, or none.
    """
    # Of one reading of both clocks, so that what follows each other does so in the trace too.
    zero_ns = time.time_ns() - time.perf_counter_ns()
    scope, address = exchange.scope, exchange.record.address
    transport: dict[str, str | int] = {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    if address is not None:
        transport["client.address"] = address
        peer = scope.get("client")
        if peer is not None and peer[0] == address:  # else the port is that of a proxy
            transport["client.port"] = peer[1]
    span = spans.request(
        method,
        id,
        meta,
        exchange.headers,
        transport=transport,
        began_ns=zero_ns + int(exchange.record.began * 1e9),
        version=version,
    )
    if exchange.asked is not None:
        since, until = exchange.asked
        span.waited("authenticate", zero_ns + int(since * 1e9), zero_ns + int(until * 1e9))
    return span


def meta_of(message: Message) -> Any:
    """``_meta`` of a message that nobody has looked at."""
    return message.params.get("_meta") if message.params is not None else None
