"""uvicorn's HTTP/1.1 connection with the bounds that it lacks, and a word when a client goes.

uvicorn alone takes heads of megabytes and waits for ever for the rest of one.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.http.disconnect import CONNECTION_EXTENSION
from app.http.record import RequestRecord
from app.observability.logs import EventLog
from app.protocol.errors import HeadersTooLarge, InvalidRequest, ProtocolError, RequestTimeout
from app.protocol.jsonrpc import error_response

SWEEP_S: Final = 1.0
_OFFER: Final = frozenset({b"upgrade", b"connection", b"http2-settings"})


class Connection(HttpToolsProtocol):
    """One client connection. ``bounded`` makes a class with limits."""

    max_header_bytes: int
    request_timeout_s: float
    requests: EventLog

    _head_bytes = 0
    _unparsed_bytes = 0
    _received = b""
    _in_head = True
    refused = False
    _arriving_since: float | None = None
    _on_disconnect: Callable[[], None] | None = None
    _joiner: "_HeadJoiner | None" = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arriving_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        self._received = data
        super().data_received(data)
        # The parser tells of whole lines only; a line without end is counted as it comes in.
        if self._in_head:
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self.max_header_bytes and not self.refused:
                self._refuse(self._head_is_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._arriving_since = self.loop.time()
        extensions: dict[str, Any] = {CONNECTION_EXTENSION: self}
        self.scope["extensions"] = extensions

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the parser stops here; see below
        self._in_head = False
        self._unparsed_bytes = 0
        if self._head_bytes > self.max_header_bytes and not self.refused:
            self._refuse(self._head_is_too_large())
        if not self.refused:
            super().on_headers_complete()
            self._joiner = _HeadJoiner(self.transport)
            self.cycle.transport = self._joiner  # type: ignore[assignment]  # the part that is used

    def on_body(self, body: bytes) -> None:
        if not self.refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._arriving_since = None
        if not self.refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._on_disconnect = None
        if self._joiner is not None:
            self._joiner.flush()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arriving_since = None
        callback, self._on_disconnect = self._on_disconnect, None
        super().connection_lost(exc)
        if callback is not None:
            callback()

    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn when a client offers another protocol (RFC 9110, section 7.8).

        Some HTTP clients offer HTTP/2 with every request in the clear. The offer is declined by
        answering as if it had not been made; but the parser has taken the body for the other
        protocol, so the head is parsed again without the offer.
        """
        stop = sys.exc_info()[1]
        offset = stop.args[0] if stop is not None and stop.args else len(self._received)
        head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        head += [b"%b: %b" % pair for pair in self.headers if pair[0] not in _OFFER]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(head) + b"\r\n\r\n" + self._received[offset:])

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's signature
        """Called by uvicorn for what its parser refuses."""
        if not self.refused:
            self._refuse(InvalidRequest("This is not an HTTP/1.1 request."))

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """See ``ClientConnection``."""
        self._on_disconnect = callback

    def abort(self) -> None:
        """See ``ClientConnection``."""
        self.transport.abort()

    def check_deadline(self, now: float) -> None:
        """Refuse a request whose head or body takes too long to arrive."""
        since = self._arriving_since
        if since is not None and now - since > self.request_timeout_s:
            self._arriving_since = None
            if self._has_begun():
                self._refuse(
                    RequestTimeout(
                        f"The request did not arrive within {self.request_timeout_s:g} s."
                    )
                )
            else:
                self.transport.close()

    def _has_begun(self) -> bool:
        answered = self.cycle is not None and self.cycle.response_started  # type: ignore[redundant-expr]  # uvicorn starts it as None
        return self._head_bytes + self._unparsed_bytes > 0 and not answered

    def _head_is_too_large(self) -> ProtocolError:
        return HeadersTooLarge(f"The request head is larger than {self.max_header_bytes} bytes.")

    def _refuse(self, error: ProtocolError) -> None:
        """Answer without the application and close."""
        self.refused = True
        record = RequestRecord()
        record.address = self.client[0] if self.client else None
        record.refused(error)
        record.write(self.requests, error.http_status)
        body = error_response(None, error)
        self.transport.write(
            STATUS_LINE[error.http_status]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()


class _HeadJoiner:
    """Writes the head of a response together with the first bytes of its body.

    uvicorn writes them one after the other: two system calls and two packets for each answer.
    """

    __slots__ = ("_head", "_transport", "_waits")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._waits = True

    def write(self, data: bytes) -> None:
        if not self._waits or data.startswith(b"HTTP/1.1 1"):  # "100 Continue" is no head
            self._transport.write(data)
        elif self._head:
            self._waits = False
            self._transport.write(self._head + data)
        else:
            self._head = data

    def flush(self) -> None:
        """Write a head that no body followed (HEAD requests)."""
        if self._waits and self._head:
            self._waits = False
            self._transport.write(self._head)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


def bounded(*, max_header_bytes: int, request_timeout_s: float) -> type[Connection]:
    """A connection class with these limits."""
    limits: dict[str, Any] = {
        "max_header_bytes": max_header_bytes,
        "request_timeout_s": request_timeout_s,
        "requests": EventLog("request"),
    }
    return type("BoundedConnection", (Connection,), limits)
