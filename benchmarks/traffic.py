"""A client that holds many open streams and keeps calling, in one thread, and times both."""

from __future__ import annotations

import heapq
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

from benchmarks.wire import Reader

_RECEIVE_BYTES = 262_144
# Streams served before the callers are looked at again, so that a burst of notifications does not
# count as a slow answer.
_STREAMS_AT_A_TIME = 32
_OPENING_AT_A_TIME = 100


@dataclass(slots=True)
class Caller:
    """One connection that sends a request, waits for the answer, pauses, and begins again."""

    request: bytes
    pause_s: float
    connection: socket.socket
    keep: bool
    reader: Reader = field(default_factory=Reader)
    sent_at: float = 0.0
    body: bytes = b""
    pieces: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Answers that ended in one window, in seconds, sorted."""

    seconds: list[float]

    @property
    def worst_ms(self) -> float:
        return self.seconds[-1] * 1e3 if self.seconds else 0.0

    def quantile_ms(self, share: float) -> float:
        """The latency that `share` of the answers stayed within."""
        if not self.seconds:
            return 0.0
        return self.seconds[min(len(self.seconds) - 1, int(len(self.seconds) * share))] * 1e3


class Traffic:
    """Streams and callers of one server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: dict[int, socket.socket] = {}
        self._callers: dict[int, Caller] = {}
        self._stream_events = selectors.DefaultSelector()
        self._caller_events = selectors.DefaultSelector()
        self._paused: list[tuple[float, int]] = []
        self._taken: list[float] = []
        self.heard: dict[int, float] = {}
        self.lost = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._streams.values():
            connection.close()
        for caller in self._callers.values():
            caller.connection.close()
        self._stream_events.close()
        self._caller_events.close()

    def open_streams(self, request: bytes, count: int) -> None:
        """Open `count` streams and wait until each has been acknowledged.

        Raises:
            RuntimeError: a stream is refused, or nothing arrives for ten seconds.
        """
        opening: dict[int, bytes] = {}
        started = len(self._streams)
        while len(self._streams) < started + count or opening:
            while len(opening) < _OPENING_AT_A_TIME and len(self._streams) < started + count:
                connection = self._connect(request)
                self._streams[connection.fileno()] = connection
                self._stream_events.register(connection, selectors.EVENT_READ)
                opening[connection.fileno()] = b""
            ready = self._stream_events.select(10)
            if not ready:
                raise RuntimeError(f"{len(opening)} streams were not acknowledged")
            for key, _ in ready:
                data = self._streams[key.fd].recv(_RECEIVE_BYTES)
                if key.fd not in opening:
                    continue
                opening[key.fd] += data
                if b"acknowledged" in opening[key.fd]:
                    del opening[key.fd]
                elif not data or opening[key.fd][9:12] not in {b"", b"200"}:
                    raise RuntimeError(f"a stream was refused: {opening[key.fd][:600]!r}")

    def add_caller(self, request: bytes, *, pause_s: float = 0.0, keep: bool = False) -> Caller:
        """Add a connection that calls; with `keep` its last answer stays readable in `body`."""
        connection = self._connect(None)
        caller = Caller(request, pause_s, connection, keep)
        self._callers[connection.fileno()] = caller
        self._caller_events.register(connection, selectors.EVENT_READ, caller)
        heapq.heappush(self._paused, (0.0, connection.fileno()))
        return caller

    def _connect(self, request: bytes | None) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if request is not None:
            connection.sendall(request)
        return connection

    def run(
        self,
        until: Callable[[], bool],
        *,
        deadline_s: float,
        work: Iterator[object] | None = None,
    ) -> Latencies:
        """Serve streams and callers until `until()`; `work` is advanced one step a turn.

        Raises:
            RuntimeError: the deadline passed first, or an answer was not 200.
        """
        self._taken = []
        both = select.poll()
        both.register(self._stream_events.fileno(), select.POLLIN)
        both.register(self._caller_events.fileno(), select.POLLIN)
        end = time.perf_counter() + deadline_s
        while not until():
            now = time.perf_counter()
            if now > end:
                raise RuntimeError(
                    f"not reached within {deadline_s} s: {len(self.heard)} streams heard"
                )
            if work is not None and next(work, None) is None:
                work = None
            wait_s = min(end - now, 0.05)
            if self._paused:
                wait_s = min(wait_s, max(0.0, self._paused[0][0] - now))
            both.poll(0 if work is not None else wait_s * 1e3)
            self._serve_callers()
            self._serve_streams()
        return Latencies(sorted(self._taken))

    def run_for(self, seconds: float) -> Latencies:
        """Go on for a while."""
        end = time.perf_counter() + seconds
        return self.run(lambda: time.perf_counter() >= end, deadline_s=seconds + 10)

    def _serve_callers(self) -> None:
        now = time.perf_counter()
        while self._paused and self._paused[0][0] <= now:
            caller = self._callers[heapq.heappop(self._paused)[1]]
            caller.sent_at = time.perf_counter()
            caller.connection.sendall(caller.request)
        for key, _ in self._caller_events.select(0):
            caller = key.data
            data = caller.connection.recv(_RECEIVE_BYTES)
            if not data:
                raise RuntimeError("the server closed a caller's connection")
            if caller.keep:
                caller.pieces.append(data)
            if caller.reader.feed(data, b"200"):
                now = time.perf_counter()
                self._taken.append(now - caller.sent_at)
                if caller.keep:
                    caller.body = b"".join(caller.pieces)
                    caller.pieces.clear()
                heapq.heappush(self._paused, (now + caller.pause_s, key.fd))

    def _serve_streams(self) -> None:
        ready = self._stream_events.select(0)
        for index, (key, _) in enumerate(ready, 1):
            data = self._streams[key.fd].recv(_RECEIVE_BYTES)
            if b"tools/list_changed" in data:
                self.heard.setdefault(key.fd, time.perf_counter())
            elif not data:
                self.lost += 1
                self._stream_events.unregister(key.fd)
            if index % _STREAMS_AT_A_TIME == 0:
                self._serve_callers()

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return len(self._streams) - self.lost
