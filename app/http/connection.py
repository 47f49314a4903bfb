"""uvicorn's HTTP/1.1 connection with the bounds that it lacks, and a short way out.

uvicorn alone takes heads of megabytes, waits for ever for the rest of one, keeps clients that do
not read, and writes each answer in two pieces.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from app.http.responses import CONNECTION_EXTENSION
from app.methods.record import RequestRecord
from app.observability.logs import EventLog
from app.protocol.errors import (
    HeadersTooLarge,
    InvalidRequest,
    MethodNotAllowed,
    ProtocolError,
    RequestTimeout,
)
from app.protocol.jsonrpc import error_response

SWEEP_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 20.0
"""A client that has not taken what was written for it by then is dropped."""

MAX_OFFERS: Final = 20
"""Offers of another protocol that a connection may make between two sweeps."""

LARGE_BYTES: Final = 16 * 1024
"""From here on it is cheaper to hand the system two pieces than to join them."""

_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})


class Connection(HttpToolsProtocol):
    """One client connection. ``bounded`` makes a class with limits.

    Instants are those of ``loop.time()``.

    Attributes:
        refused: A request was refused without the application, and the connection is closing.
        watching: Called when the client goes while a request is served.
        ends_with_answer: Whether each answer is the last of its connection: the server is about
            to close all of them.
    """

    max_header_bytes: int
    request_timeout_s: float
    requests: EventLog
    ends_with_answer: ClassVar[bool] = False

    _defaults: ClassVar[list[tuple[bytes, bytes]] | None] = None
    _starts: ClassVar[dict[int, bytes]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        # Not as defaults of the class, which are slow to read.
        self.refused = False
        self.watching: Callable[[], None] | None = None
        self._in_head = True
        self._arrived_bytes = 0
        self._first_piece_bytes = 0
        self._has_begun = False
        self._trailer_bytes = 0
        self._offers = 0
        self._running: RequestResponseCycle | None = None
        self._received = b""
        self._unread_since: float | None = None
        self._idle_since: float | None = None
        self._closing_since: float | None = None
        self._arriving_since: float | None = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        self._received = data
        self._arrived_bytes += len(data)
        HttpToolsProtocol.data_received(self, data)
        self._received = b""
        # The parser tells of whole lines only; one without end must not grow for ever.
        if self._in_head and self._arrived_bytes > self.max_header_bytes and not self.refused:
            self._refuse(self._head_is_too_large())

    def on_message_begin(self) -> None:
        HttpToolsProtocol.on_message_begin(self)
        self._in_head = self._has_begun = True
        self._arrived_bytes = 0  # beyond the piece in which it begins, after another one's end
        self._first_piece_bytes = len(self._received)
        self._trailer_bytes = 0
        self._idle_since = None
        self._arriving_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # as uvicorn does, in one call less for each header
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))
            return
        # A trailer is no header (RFC 9110, section 6.5.1): what comes after the body has passed
        # by every proxy, and must not decide anything here.
        self._trailer_bytes += len(name) + len(value)
        if self._trailer_bytes > self.max_header_bytes and not self.refused:
            self._refuse(self._head_is_too_large())

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the parser stops here; see below
        if self._first_piece_bytes + self._arrived_bytes > self.max_header_bytes:
            # A large body or another request may have come along, so count.
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.max_header_bytes and not self.refused:
                self._refuse(self._head_is_too_large())
        if not self.refused:
            extensions: dict[str, Any] = {}
            self.scope["extensions"] = extensions
            HttpToolsProtocol.on_headers_complete(self)
            extensions[CONNECTION_EXTENSION] = RequestConnection(self, self.cycle)
            if self.ends_with_answer:
                self.cycle.keep_alive = False
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        if not self.refused:
            HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._arriving_since = None
        self._has_begun = False
        if not self.refused:
            HttpToolsProtocol.on_message_complete(self)
            if not self.pipeline:
                # A large body has paused it; the end of the connection must still be read.
                self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # As uvicorn does, but without a callback for each task: one more turn of the loop.
        self._running = cycle
        # The task is kept where it is served: to ask for the current one takes a system call.
        task = cycle.task = self.loop.create_task(self._serve(cycle, app))  # type: ignore[attr-defined]
        self.tasks.add(task)

    async def _serve(self, cycle: RequestResponseCycle, app: Any) -> None:
        try:
            await cycle.run_asgi(app)
        finally:
            self.tasks.discard(cycle.task)  # type: ignore[attr-defined]
            del cycle.task  # type: ignore[attr-defined]
            # It leads back to the cycle, and only the garbage collector would find the ring.
            cycle.scope["extensions"].clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since = None

    def on_response_complete(self) -> None:
        # As uvicorn does, but without a timer for each response: the sweep looks at idle ones.
        self.watching = None
        self._running = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._idle_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arriving_since = None
        # uvicorn tells the newest request alone that the client has gone.
        for cycle in (self._running, *(queued for queued, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self.tell_gone()

    def tell_gone(self) -> None:
        """The client has gone: tell whoever still watches."""
        callback, self.watching = self.watching, None
        if callback is not None:
            callback()

    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn when a client offers another protocol (RFC 9110, section 7.8).

        Some HTTP clients offer HTTP/2 with every request in the clear. The offer is declined by
        answering as if it had not been made; but the parser has taken the body for the other
        protocol, so the head is parsed again without the offer.
        """
        self._offers += 1
        method = self.parser.get_method()
        if self._offers > MAX_OFFERS:
            self._refuse(InvalidRequest("Too many offers of another protocol."))
            return
        if method == b"CONNECT":
            self._refuse(MethodNotAllowed("This is no proxy.", allow="GET, POST"))
            return
        stop = sys.exc_info()[1]
        offset = stop.args[0] if stop is not None and stop.args else len(self._received)
        head = [b"%b %b HTTP/1.1" % (method, self.url)]
        for name, value in self.headers:
            if name == b"connection":
                options = [part.strip() for part in value.split(b",")]
                kept = [part for part in options if part.lower() not in _OFFER]
                head.append(b"connection: " + b", ".join(kept))
            elif name not in _OFFER:
                head.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.data_received(b"\r\n".join(head) + b"\r\n\r\n" + self._received[offset:])

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's signature
        """Called by uvicorn for what its parser refuses."""
        if not self.refused:
            self._refuse(InvalidRequest("This is not an HTTP/1.1 request."))

    def head_start(self, status: int) -> bytes:
        """Status line and the headers of every response, joined once a second."""
        defaults = self.server_state.default_headers
        if Connection._defaults is not defaults:
            Connection._defaults, Connection._starts = defaults, {}
        start = Connection._starts.get(status)
        if start is None:
            lines = [b"%b: %b\r\n" % pair for pair in defaults]
            start = Connection._starts[status] = STATUS_LINE[status] + b"".join(lines)
        return start

    def end_with_answer(self) -> None:
        """Close after the answer that is under way, which says so if it has not begun.

        An idle connection stays: its next request may be under way. A stream that has begun cannot
        say it, but who comes back when it has ended is better off with another connection, too.
        """
        for cycle in (self._running, *(queued for queued, _ in self.pipeline)):
            if cycle is not None:
                cycle.keep_alive = False

    # Time.

    def check_deadlines(self, now: float) -> None:
        """Called every ``SWEEP_S`` for each connection."""
        self._offers = 0
        if self._unread_since is not None and now - self._unread_since > CLOSE_TIMEOUT_S:
            self.transport.abort()
        elif self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > CLOSE_TIMEOUT_S:
                self.transport.abort()
        elif self._idle_since is not None:
            if now - self._idle_since > self.timeout_keep_alive:
                self.transport.close()
        elif self.flow.read_paused:
            if self._arriving_since is not None:  # it is we who do not let it arrive
                self._arriving_since = now
        elif (
            self._arriving_since is not None and now - self._arriving_since > self.request_timeout_s
        ):
            self._arriving_since = None
            if self._has_begun or self._arrived_bytes:
                limit = f"{self.request_timeout_s:g} s"
                self._refuse(RequestTimeout(f"The request did not arrive within {limit}."))
            else:
                self.transport.close()  # it never sent anything

    def _head_is_too_large(self) -> ProtocolError:
        return HeadersTooLarge(f"The request head is larger than {self.max_header_bytes} bytes.")

    def _refuse(self, error: ProtocolError) -> None:
        """Answer what is coming in without the application, and close.

        Where an earlier request is still to be answered there is no place for this answer: the
        connection closes after the earlier one's, and the client will ask again.
        """
        self.refused = True
        own: Any = None if self._in_head else self.cycle
        if self.pipeline and self.pipeline[0][0] is own:
            self.pipeline.popleft()  # the newest stands on the left
        waiting = [cycle for cycle, _ in self.pipeline]
        running = self._running
        if running is not None and running is not own and not running.response_complete:
            waiting.append(running)
        if waiting:
            waiting[0].keep_alive = False
            return
        if own is None or not own.response_started:
            record = RequestRecord()
            record.address = self.client[0] if self.client else None
            record.refused(error)
            record.write(self.requests, error.http_status)
            body = error_response(None, error)
            head = [STATUS_LINE[error.http_status], b"content-type: application/json\r\n"]
            head += [b"%b: %b\r\n" % pair for pair in error.headers]
            head.append(b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
            self.transport.write(b"".join(head) + body)
        self.transport.close()


class RequestConnection:
    """What one request may do with its connection; see ``ClientConnection``.

    It holds the cycle of its own request: that of the connection may be the next one already,
    when a client sends several requests without waiting.
    """

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle

    @property
    def refused(self) -> bool:
        return self._connection.refused

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        connection = self._connection
        connection.watching = callback
        if callback is not None and self._cycle.disconnected:
            # It went before anybody watched, and the connection tells that once.
            connection.loop.call_soon(connection.tell_gone)

    def abort(self) -> None:
        self._connection.transport.abort()

    def take_body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def respond(self, status: int, headers: bytes, body: bytes) -> bool:
        connection, cycle = self._connection, self._cycle
        if (
            connection.flow.write_paused
            or cycle.disconnected
            or cycle.response_started
            or cycle.scope["method"] == "HEAD"
        ):
            return False
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        head = connection.head_start(status) + headers + end
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        transport = cycle.transport
        if len(body) < LARGE_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        if not cycle.keep_alive:
            transport.close()
        cycle.on_response()
        return True


def bounded(*, max_header_bytes: int, request_timeout_s: float) -> type[Connection]:
    """A connection class with these limits."""
    limits: dict[str, Any] = {
        "max_header_bytes": max_header_bytes,
        "request_timeout_s": request_timeout_s,
        "requests": EventLog("request"),
    }
    return type("BoundedConnection", (Connection,), limits)
