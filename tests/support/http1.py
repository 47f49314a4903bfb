"""HTTP/1.1 by hand: the exact bytes that go out, and the exact bytes that come back.

A library would mend what these tests must send broken, and hide what they must see.
"""

import json
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import Deadline, eventually

Headers = Sequence[tuple[str, str | bytes]]
CRLF = b"\r\n"


class ConnectionEndedError(Exception):
    """The peer closed the connection before what was awaited had come."""


def header_bytes(headers: Headers) -> bytes:
    """Header lines as sent; text goes out as Latin-1, bytes as they are."""
    lines = []
    for name, value in headers:
        raw = value if isinstance(value, bytes) else value.encode("latin-1")
        lines.append(name.encode("latin-1") + b": " + raw + CRLF)
    return b"".join(lines)


def chunked(body: bytes, size: int = 1000) -> bytes:
    """`body` in the chunked transfer coding."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, down to the byte. `content_length=False` leaves that header out."""

    method: str = "POST"
    path: str = "/mcp"
    headers: Headers = ()
    body: bytes = b""
    content_length: bool = True

    def encode(self) -> bytes:
        """The request with its length declared."""
        return self.head() + self.body

    def encode_chunked(self, size: int = 1000) -> bytes:
        """The request with a chunked body."""
        lines = header_bytes([*self.headers, ("Transfer-Encoding", "chunked")])
        return self._line() + lines + CRLF + chunked(self.body, size)

    def head(self) -> bytes:
        """Request line and headers, up to and including the empty line."""
        length: Headers = ()
        if self.content_length and (self.body or self.method not in ("GET", "HEAD", "OPTIONS")):
            length = [("Content-Length", str(len(self.body)))]
        return self._line() + header_bytes([*self.headers, *length]) + CRLF

    def _line(self) -> bytes:
        return f"{self.method} {self.path} HTTP/1.1\r\n".encode("latin-1")


@dataclass(slots=True, kw_only=True)
class Response:
    """A response: status, headers in the order they came (names in lower case), body."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    stream: "BodyStream | None" = field(default=None, repr=False)

    def header(self, name: str) -> str | None:
        """The value of a header that may come once; None where it is absent."""
        values = self.header_values(name)
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    def header_values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name.lower()]

    @property
    def media_type(self) -> str:
        """The media type without parameters, in lower case."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """The body as strict JSON."""
        return strict_json(self.body)


def strict_json(data: bytes) -> Any:
    """Decode as RFC 8259 has it: UTF-8 without BOM, no NaN, no key twice, no lone surrogate.

    Raises:
        AssertionError: it is not that.
    """

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON: {data[:300]!r}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"a key comes twice: {keys}"
        return dict(pairs)

    assert not data.startswith(b"\xef\xbb\xbf"), "a byte order mark leads the body"
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    except ValueError as error:
        raise AssertionError(f"not JSON ({error}): {data[:300]!r}") from None
    # A \ud800 escape decodes in Python, but is no text that anybody can store.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _unread_bytes(port: int, peer_port: int) -> int:
    """What waits in the receive queue of a socket of this machine, from /proc/net/tcp."""
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if int(local[-4:], 16) == port and int(remote[-4:], 16) == peer_port:
            return int(queues.split(":")[1], 16)
    return 0


class Connection:
    """One TCP connection; requests on it follow each other (keep-alive)."""

    def __init__(
        self, host: str, port: int, timeout_s: float = 10.0, source: str | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.socket = socket.create_connection(
            (host, port), timeout=timeout_s, source_address=(source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    # -- out ----------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send all of `data`; a peer that closed meanwhile is seen when reading."""
        self.socket.settimeout(self.timeout_s)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def send_split(self, parts: Iterable[bytes]) -> None:
        """Send each part in a segment of its own."""
        for part in parts:
            self.send(part)

    def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Send each piece when the peer, on this machine, has read the one before."""
        ours, theirs = self.socket.getsockname()[1], self.socket.getpeername()[1]
        for piece in pieces:
            self.send(piece)
            eventually(lambda: _unread_bytes(theirs, ours) == 0, "the peer has read the piece")

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close."""
        self.socket.close()

    def reset(self) -> None:
        """Close with a reset, as a killed client does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # -- in -----------------------------------------------------------------

    def read_some(self, deadline: Deadline) -> bytes:
        """The next bytes, at least one.

        Raises:
            ConnectionEndedError: the peer closed.
            AssertionError: nothing came before the deadline.
        """
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        self.socket.settimeout(max(deadline.remaining_s, 0.001))
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            raise AssertionError(f"not within {deadline.timeout_s} s") from None
        except ConnectionResetError:
            data = b""
        if not data:
            raise ConnectionEndedError
        return data

    def unread(self, data: bytes) -> None:
        """Put bytes back that belong to what comes next."""
        self._buffer = data + self._buffer

    def read_until(self, mark: bytes, deadline: Deadline) -> bytes:
        """Everything up to and including `mark`."""
        data = b""
        while mark not in data:
            data += self.read_some(deadline)
        end = data.index(mark) + len(mark)
        self.unread(data[end:])
        return data[:end]

    def read_exactly(self, count: int, deadline: Deadline) -> bytes:
        """Exactly `count` bytes."""
        parts: list[bytes] = []
        while count:
            data = self.read_some(deadline)
            parts.append(data[:count])
            self.unread(data[count:])
            count -= len(parts[-1])
        return b"".join(parts)

    def read_head(self, deadline: Deadline) -> Response:
        """Status line and headers of the next response."""
        raw = self.read_until(CRLF + CRLF, deadline)
        line, *rest = raw[:-4].decode("latin-1").split("\r\n")
        version, status, *reason = line.split(" ", 2)
        assert version == "HTTP/1.1", line
        headers = []
        for each in rest:
            name, colon, value = each.partition(":")
            assert colon and name == name.strip(), f"not a header line: {each!r}"
            headers.append((name.lower(), value.strip(" \t")))
        return Response(status=int(status), reason="".join(reason), headers=headers)

    def read_response(self, *, to: str = "POST", timeout_s: float | None = None) -> Response:
        """The next response with its whole body; `to` is the method it answers."""
        deadline = Deadline(self.timeout_s if timeout_s is None else timeout_s)
        response = self.open_response(to=to, deadline=deadline)
        if response.stream is not None:
            response.body = response.stream.read_all(deadline)
        return response

    def open_response(self, *, to: str = "POST", deadline: Deadline | None = None) -> Response:
        """The head of the next response, and its body as a stream."""
        response = self.read_head(deadline or Deadline(self.timeout_s))
        if to != "HEAD" and response.status not in (204, 304):
            response.stream = BodyStream(self, response)
        return response

    def exchange(self, request: Request) -> Response:
        """Send a request and read its response."""
        self.send(request.encode())
        return self.read_response(to=request.method)

    def expect_end(self, timeout_s: float = 10.0) -> bytes:
        """Read until the peer closes; whatever still came."""
        deadline, parts = Deadline(timeout_s), []
        try:
            while True:
                parts.append(self.read_some(deadline))
        except ConnectionEndedError:
            return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BodyStream:
    """The body of one response as it comes, with its framing taken off."""

    def __init__(self, connection: Connection, response: Response) -> None:
        self._connection = connection
        self._chunked = (response.header("transfer-encoding") or "").lower() == "chunked"
        length = response.header("content-length")
        assert not (self._chunked and length), "a body with two lengths"
        self._left = None if length is None else int(length)
        self.ended = self._left == 0 and not self._chunked

    def read(self, deadline: Deadline) -> bytes:
        """The next bytes; empty at the end of the body."""
        if self.ended:
            return b""
        if self._chunked:
            return self._read_chunk(deadline)
        try:
            data = self._connection.read_some(deadline)
        except ConnectionEndedError:
            if self._left is not None:
                raise
            self.ended = True
            return b""
        if self._left is not None:
            self._connection.unread(data[self._left :])
            data = data[: self._left]
            self._left -= len(data)
            self.ended = self._left == 0
        return data

    def _read_chunk(self, deadline: Deadline) -> bytes:
        size = int(self._connection.read_until(CRLF, deadline), 16)
        data = self._connection.read_exactly(size, deadline) if size else b""
        assert self._connection.read_exactly(2, deadline) == CRLF
        self.ended = size == 0
        return data

    def read_all(self, deadline: Deadline) -> bytes:
        """All that is left of the body."""
        parts = []
        while not self.ended:
            parts.append(self.read(deadline))
        return b"".join(parts)
