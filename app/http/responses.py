"""Writes HTTP responses: a JSON object, nothing, or a stream of server-sent events."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol

from sse_starlette import ServerSentEvent

from app.protocol.errors import ProtocolError
from app.protocol.jsonrpc import error_response
from app.protocol.schema import RequestId
from app.protocol.stream import Event, State, advance

Headers = Sequence[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CONNECTION_EXTENSION: Final = "mcp-tool-server.connection"
"""ASGI extension of our own server: the ``ClientConnection`` of the request."""

KEEP_ALIVE: Final = ServerSentEvent(comment="").encode()
_JSON: Final = (b"content-type", b"application/json")
_JSON_LINES: Final = b"content-type: application/json\r\ncontent-length: %d\r\n"
# Looking up a member of an Enum costs as much as a call.
_OPENED: Final = State.OPENED
_RESPONSE: Final = Event.RESPONSE
_STREAM: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Streamable HTTP, "Receiving Messages": keeps proxies from holding events back.
    (b"x-accel-buffering", b"no"),
)


class Client(Protocol):
    """Who has sent a request, and may go away."""

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call back once when the client goes; None takes the callback away."""

    def abort(self) -> None:
        """Drop the client without a word; what waits to be written is thrown away."""


class ClientConnection(Client, Protocol):
    """What our own server offers the application beyond ASGI."""

    refused: bool
    """Whether the request was refused without the application."""

    def take_body(self) -> bytes | None:
        """The whole body if it has come in already; None: receive it in ASGI's way."""

    def respond(self, status: int, headers: bytes, body: bytes) -> bool:
        """Write a whole response at once. False: not now, send it in ASGI's way.

        Args:
            headers: Encoded lines, each with its end.
        """


class Response:
    """The one response to one request.

    Attributes:
        status: HTTP status that was sent; 0 before.
    """

    __slots__ = ("_connection", "_headers", "_send", "_state", "status")

    def __init__(self, connection: ClientConnection | None, send: Send) -> None:
        self._connection = connection
        self._send = send
        self._headers: list[tuple[bytes, bytes]] = []
        self._state = _OPENED
        self.status = 0

    def add_headers(self, headers: Headers) -> None:
        """Headers for the response head, before it is sent."""
        self._headers += headers

    @property
    def is_streaming(self) -> bool:
        return self._state is State.STREAMING

    def json_at_once(self, body: bytes) -> bool:
        """The whole response as one JSON object, without waiting; False: use ``json``."""
        if self._connection is None or self._state is not _OPENED:
            return False
        headers = _JSON_LINES % len(body)
        if self._headers:
            headers += _lines(self._headers)
        if not self._connection.respond(200, headers, body):
            return False
        self._state = advance(self._state, _RESPONSE)
        self.status = 200
        return True

    async def json(self, body: bytes, status: int = 200) -> None:
        """The whole response as one JSON object."""
        self._state = advance(self._state, _RESPONSE)
        await self._whole(status, body, [_JSON, (b"content-length", b"%d" % len(body))])

    async def error(self, error: ProtocolError, id: RequestId | None = None) -> None:
        """A refusal: a JSON-RPC error with its HTTP status."""
        self.add_headers(error.headers)
        await self.json(error_response(id, error), error.http_status)

    async def empty(self, status: int, headers: Headers = ()) -> None:
        """A response without a body."""
        self._state = advance(self._state, _RESPONSE)
        length = [] if status == 204 else [(b"content-length", b"0")]
        await self._whole(status, b"", [*headers, *length])

    async def open_stream(self, first: bytes = KEEP_ALIVE) -> None:
        """Begin an event stream. The first bytes leave together with the head: some proxies
        forward nothing until a body has begun.
        """
        self._state = advance(self._state, Event.STREAM)
        self.status = 200
        await self._send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [*_STREAM, *self._headers],
            }
        )
        await self._write(first)

    async def notify(self, frames: bytes) -> None:
        """Send encoded events with notifications; begins the stream if it has not begun."""
        if self._state is State.OPENED:
            await self.open_stream(frames)
            return
        self._state = advance(self._state, Event.NOTIFICATION)
        await self._write(frames)

    async def keep_alive(self) -> None:
        """A comment, so that nobody takes a quiet stream for a dead one."""
        self._state = advance(self._state, Event.STREAM)
        await self._write(KEEP_ALIVE)

    async def finish(self, message: bytes) -> None:
        """The response message as the last event of the stream."""
        if self._state is State.OPENED:
            await self.open_stream(b"")
        self._state = advance(self._state, _RESPONSE)
        await self._send({"type": "http.response.body", "body": event(message)})

    async def end(self, last: bytes = b"") -> None:
        """End a stream without a response message: of revisions before 2026-07-28 alone."""
        self._state = advance(self._state, Event.END)
        await self._send({"type": "http.response.body", "body": last})

    def disconnected(self) -> None:
        """The client has gone: nothing more may be written."""
        self._state = advance(self._state, Event.DISCONNECT)

    async def _write(self, data: bytes) -> None:
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _whole(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        headers += self._headers
        # One write where our own server can do it; ASGI's two messages make two packets.
        if self._connection is not None and self._connection.respond(status, _lines(headers), body):
            return
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def event(message: bytes, id: str | None = None) -> bytes:
    """One server-sent event with one message on one ``data`` line; no retry."""
    return ServerSentEvent(message.decode(), id=id).encode()


def priming_event(id: str, retry_ms: int) -> bytes:
    """An event that says where a client may come back to, and when (2025-11-25)."""
    return ServerSentEvent("", id=id, retry=retry_ms).encode()
