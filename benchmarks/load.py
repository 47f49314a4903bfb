"""The load generator for CPU figures: a fixed number of requests over keep-alive connections.

Plain sockets and `poll`, no framework: it has to cost less than the cheapest server it drives.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import Self

from benchmarks.wire import Answer, Reader, parse

_RECEIVE_BYTES = 262_144
_STALL_MS = 30_000


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took: requests, wall time in seconds."""

    count: int
    wall_s: float


class Pool:
    """Connections to one server, each with at most one request under way."""

    def __init__(self, port: int, connections: int) -> None:
        self._poll = select.poll()
        self._sockets: dict[int, tuple[socket.socket, Reader]] = {}
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(connection.fileno(), select.POLLIN)
            self._sockets[connection.fileno()] = (connection, Reader())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, _ in self._sockets.values():
            connection.close()

    def run(self, request: bytes, count: int, *, status: int = 200) -> Round:
        """Send `request` `count` times, as fast as the answers come.

        Raises:
            RuntimeError: an answer with another status, a closed connection, or silence.
        """
        expected = str(status).encode()
        sockets = self._sockets
        poll = self._poll.poll
        began = time.perf_counter()
        sent = done = 0
        for connection, _ in list(sockets.values())[:count]:
            connection.sendall(request)
            sent += 1
        while done < count:
            events = poll(_STALL_MS)
            if not events:
                raise RuntimeError("the server fell silent")
            for descriptor, _ in events:
                connection, reader = sockets[descriptor]
                data = connection.recv(_RECEIVE_BYTES)
                if not data:
                    raise RuntimeError("the server closed a connection")
                if reader.feed(data, expected):
                    done += 1
                    if sent < count:
                        connection.send(request)
                        sent += 1
        return Round(count, time.perf_counter() - began)


def ask(port: int, request: bytes, *, timeout_s: float = 30.0) -> Answer:
    """One request on a connection of its own, decoded."""
    return parse(_raw(port, request, timeout_s))


def session_of(port: int, request: bytes) -> str:
    """The session that a request opens.

    Raises:
        RuntimeError: it opens none.
    """
    head, _, _ = _raw(port, request, 30.0).partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"mcp-session-id":
            return value.strip().decode("ascii")
    raise RuntimeError(f"no session was opened: {head[:400]!r}")


def _raw(port: int, request: bytes, timeout_s: float) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(request)
        reader, raw = Reader(), b""
        while True:
            data = connection.recv(_RECEIVE_BYTES)
            if not data:
                raise RuntimeError(f"the server closed the connection after {raw[:400]!r}")
            raw += data
            if reader.feed(data, raw[9:12]):
                return raw
