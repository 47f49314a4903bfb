"""One request and its response, as the parts of the HTTP door hand it to each other."""

from app.http.gate import NO_MEDIA
from app.http.responses import (
    CONNECTION_EXTENSION,
    ClientConnection,
    Receive,
    Response,
    Scope,
    Send,
)
from app.methods.record import RequestRecord
from app.principal import ANONYMOUS
from app.protocol.headers import HeaderMap


class Exchange:
    """A request and its response.

    Attributes:
        headers: Of the request.
        response: Written by whoever answers.
        record: What the log line will say.
        accepts: What the client takes; ``NO_MEDIA`` until the gate has looked.
        principal: Who calls; set once that is known.
        asked: From when to when finding that out had to wait, as ``time.perf_counter()`` has it;
            None: it did not.
        connection: What our own server offers beyond ASGI; None under any other.
    """

    __slots__ = (
        "accepts",
        "asked",
        "connection",
        "headers",
        "principal",
        "receive",
        "record",
        "response",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.headers = HeaderMap(scope["headers"])
        extensions = scope.get("extensions")
        self.connection: ClientConnection | None = (
            extensions.get(CONNECTION_EXTENSION) if extensions else None
        )
        self.response = Response(self.connection, send)
        self.record = RequestRecord()
        self.accepts = NO_MEDIA
        self.principal = ANONYMOUS
        self.asked: tuple[float, float] | None = None

    @property
    def was_refused(self) -> bool:
        """Whether the connection has answered in our place, because the request came too slowly."""
        return self.connection is not None and self.connection.refused

    async def read_body(self, limit: int) -> bytes | None:
        """The whole body; None if it is over the limit. Never holds much more than that.

        Raises:
            Disconnected: The client left in the middle.
        """
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            parts, size = [body], len(body)
            while message.get("more_body", False):
                if size > limit:
                    return None
                message = await self.receive()
                parts.append(message.get("body", b""))
                size += len(parts[-1])
            body = b"".join(parts)
        if message["type"] == "http.disconnect":
            raise Disconnected
        return body if len(body) <= limit else None


class Disconnected(Exception):
    """The client went before its request was complete."""
