"""The two pipes to the client: lines come in, messages go out, and neither holds up the loop.

Both ends are read and written by threads. That works for whatever a client may hand over (pipes,
sockets, terminals, files), and leaves their mode alone, which others may share.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.stdio.lines import Line, Lines

SLOW_READER_S: Final = 20.0
"""A client that has taken nothing for this long, while something waits for it, is given up."""

MAX_BACKLOG_BYTES: Final = 16 * 1024 * 1024
"""What may wait for the client; then nothing more of it is read, and calls wait to speak."""

READ_BYTES: Final = 64 * 1024
WRITE_BYTES: Final = 64 * 1024

CLOSED: Final = "closed"
STUCK: Final = "stuck"


class Channel:
    """Reads lines of the client and writes messages to it.

    Args:
        source: File descriptor to read.
        sink: File descriptor to write.
        max_line_bytes: Of a line that comes in.
        patience_s: How long the client may take nothing.

    Attributes:
        lost: Done when nothing more reaches the client: ``CLOSED`` or ``STUCK``.
    """

    def __init__(
        self,
        source: int,
        sink: int,
        *,
        max_line_bytes: int,
        patience_s: float = SLOW_READER_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._max_line_bytes = max_line_bytes
        self.patience_s = patience_s
        self._reader = ThreadPoolExecutor(1, "stdin")
        self._writer = ThreadPoolExecutor(1, "stdout")
        self._waiting: list[bytes] = []
        self._backlog = 0
        self._is_writing = False
        self._moved_at = 0.0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._watch: asyncio.TimerHandle | None = None
        self.lost: asyncio.Future[str] = self._loop.create_future()

    # In

    async def lines(self) -> AsyncIterator[Line]:
        """The client's lines, until its end of the pipe is closed."""
        lines = Lines(self._max_line_bytes)
        while True:
            try:
                data = await self._loop.run_in_executor(
                    self._reader, os.read, self._source, READ_BYTES
                )
            except OSError:  # a terminal that has gone
                data = b""
            for line in lines.feed(data) if data else lines.end():
                yield line
                await self.room()
            if not data:
                return

    # Out

    def put(self, message: bytes) -> None:
        """Write a message, as one line, as soon as the client takes it."""
        assert b"\n" not in message
        if self.lost.done():
            return
        self._waiting += (message, b"\n")
        self._backlog += len(message) + 1
        if self._backlog > MAX_BACKLOG_BYTES:
            self._has_room.clear()
        if not self._is_writing:
            self._is_idle.clear()
            self._write()

    async def room(self) -> None:
        """Return when there is room for what is still to be said, or nobody to say it to."""
        while not self._has_room.is_set():
            await self._has_room.wait()

    async def flush(self, patience_s: float) -> None:
        """Wait until the client has taken everything, or has taken nothing for a while."""
        while not self._is_idle.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._is_idle.wait()
            if time.monotonic() - self._moved_at >= patience_s:
                return

    def _write(self) -> None:
        data, self._waiting = b"".join(self._waiting), []
        self._is_writing = True
        self._moved_at = time.monotonic()
        if self._watch is None:
            self._watch = self._loop.call_later(self.patience_s / 4, self._look)
        writing = self._loop.run_in_executor(self._writer, self._write_all, data)
        writing.add_done_callback(self._written)

    def _write_all(self, data: bytes) -> int:
        """In the writer's thread: a client that reads slowly is seen to read."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._sink, rest[:WRITE_BYTES]) :]
            self._moved_at = time.monotonic()
        return len(data)

    def _written(self, writing: "asyncio.Future[int]") -> None:
        self._is_writing = False
        if writing.cancelled() or writing.exception() is not None:
            self._lose(CLOSED)
            return
        self._backlog -= writing.result()
        if self._backlog <= MAX_BACKLOG_BYTES:
            self._has_room.set()
        if self._waiting:
            self._write()
        else:
            self._is_idle.set()

    def _look(self) -> None:
        """Is the client still reading?"""
        self._watch = None
        if not self._is_writing:
            return
        if time.monotonic() - self._moved_at > self.patience_s:
            self._lose(STUCK)
        else:
            self._watch = self._loop.call_later(self.patience_s / 4, self._look)

    def _lose(self, reason: str) -> None:
        self._waiting.clear()
        self._has_room.set()
        self._is_idle.set()
        if not self.lost.done():
            self.lost.set_result(reason)
