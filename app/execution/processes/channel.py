"""The worker's end of the socket, and what a running call offers to its Context there."""

import math
import os
import socket
import threading
import time
from typing import Any, Final, NoReturn

from app.execution.execution import BURST, INTERVAL_S, MAX_PENDING, finite_number
from app.execution.processes.wire import MAX_OTHER_BYTES, Kind, encode
from app.protocol.jsonrpc import dumps
from app.protocol.messages import log_message, progress
from app.protocol.schema import LOG_LEVELS

MAX_LINE_BYTES: Final = 16 * 1024
_CHUNK: Final = 256 * 1024


class ServerGone(Exception):
    """The other end has closed: nobody waits for this process."""


class Socket:
    """Sends whole frames, from any thread; receives in one."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._process = os.getpid()

    def send(self, kind: int, payload: bytes = b"", reason: int = 0) -> None:
        # A process that the tool has forked has no business here.
        if os.getpid() == self._process:
            with self._lock:
                self._end.sendall(encode(kind, payload, reason))

    def receive(self) -> bytes:
        """Some bytes.

        Raises:
            ServerGone: There will be none.
        """
        try:
            data = self._end.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            raise ServerGone
        return data

    def close_in_child(self) -> None:
        """A child must not keep the connection open, nor use a lock that was held at the fork."""
        self._lock = threading.Lock()
        self._end.close()


class LineStream:
    """The text stream that log lines are written to: its bytes are frames to the server."""

    def __init__(self, end: Socket) -> None:
        self._send = end.send
        self.buffer = self

    def isatty(self) -> bool:
        return False

    def write(self, line: bytes) -> int:
        if len(line) <= MAX_LINE_BYTES:
            self._send(Kind.LINE, line)
        return len(line)

    def flush(self) -> None:
        """Every line is sent at once."""


class WorkerChannel:
    """What a call offers to its Context in a worker: progress, log messages, time.

    Both are thinned out here, so that a tool that reports a million times does not keep the
    server busy with them.
    """

    def __init__(
        self, end: Socket, *, remaining_s: float, wants_progress: bool, log_level: int | None
    ) -> None:
        self._end = end
        self._deadline = time.monotonic() + remaining_s
        self._wants_progress = wants_progress
        self._log_level = log_level
        self._lock = threading.RLock()
        self._ended = False
        self._last: float = -math.inf
        self._sent = 0
        self._next_at = 0.0
        self._newest: bytes | None = None
        self._flusher: threading.Timer | None = None
        self._logs = 0
        self._logs_since = 0.0

    @property
    def is_over(self) -> bool:
        return self._ended or self.remaining_s == 0

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        done = finite_number("done", done)
        total = None if total is None else finite_number("total", total)
        if message is not None and not isinstance(message, str):
            raise TypeError("message must be text")
        if not self._wants_progress:
            return
        progress(0, done, total, message)  # a text that cannot be sent is the caller's mistake
        payload = dumps([done, total, message])
        with self._lock:
            if done <= self._last or self._ended or len(payload) > MAX_OTHER_BYTES:
                return
            self._last = done
            now = time.monotonic()
            if self._sent < BURST or now >= self._next_at:
                self._send_progress(payload, now)
                return
            self._newest = payload
            if self._flusher is None:
                self._flusher = threading.Timer(self._next_at - now, self._flush)
                self._flusher.daemon = True
                self._flusher.start()

    def log(self, level: str, data: Any, logger: str | None) -> None:
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        # Before anything else: whether a client listens must not decide whether the tool fails.
        log_message(level, data, logger)
        if self._log_level is None or LOG_LEVELS.index(level) < self._log_level:
            return
        payload = dumps([level, data, logger])
        with self._lock:
            now = time.monotonic()
            if now - self._logs_since > INTERVAL_S:
                self._logs, self._logs_since = 0, now
            self._logs += 1
            if self._logs <= MAX_PENDING and not self._ended and len(payload) <= MAX_OTHER_BYTES:
                self._end.send(Kind.MESSAGE, payload)

    def asker(self) -> NoReturn:
        raise _not_here("asking the client")

    def handles(self) -> NoReturn:
        raise _not_here("ctx.handles")

    def end(self) -> None:
        """The call has ended: what a thread of it says later goes nowhere."""
        with self._lock:
            if self._flusher is not None:
                self._flusher.cancel()
            self._flush()
            self._ended = True

    def _flush(self) -> None:
        with self._lock:
            newest, self._newest, self._flusher = self._newest, None, None
            if newest is not None and not self._ended:
                self._send_progress(newest, time.monotonic())

    def _send_progress(self, payload: bytes, now: float) -> None:
        self._newest = None
        self._sent += 1
        self._next_at = now + INTERVAL_S
        self._end.send(Kind.PROGRESS, payload)


def _not_here(what: str) -> RuntimeError:
    return RuntimeError(
        f'{what} is not available to a tool with isolation="process": it needs the server itself. '
        "Leave out isolation, and make it `async def`."
    )
