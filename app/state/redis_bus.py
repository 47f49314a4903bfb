"""A bus over the channels of Redis or Valkey."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from app.state.redis_line import Line, Upkeep
from app.state.redis_link import Link
from app.state.redis_target import NONSENSE, CannotConnect, Connect, reason

PING_S: Final = 1.0
"""How often a server is asked whether it is there, of which nothing else is heard."""

GREETING: Final = "greeting"
"""Nothing is told on this channel: it is subscribed to see whether that can be done."""

log = structlog.get_logger()


class RedisBus:
    """Implements ``app.state.interface.Bus``.

    One connection of the process listens, whatever the number of topics. What is published goes
    the way of the store's commands.

    Args:
        connect: Makes a connection for listening.
        name: Where it leads, for people.
        prefix: Of every channel.
    """

    def __init__(
        self, link: Link, connect: Connect, *, name: str, prefix: str, timeout_s: float
    ) -> None:
        self._link = link
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._problem: str | None = None
        self._hearers: dict[str, list[Callable[[bytes], None]]] = {}
        self._returned: list[Callable[[], None]] = []
        self._line: Line | None = None
        self._unconfirmed: set[bytes] = set()
        self._has_missed = False
        self._heard_at = 0.0
        self._pinging: asyncio.TimerHandle | None = None
        self._upkeep = Upkeep("bus", name, connect, self)

    @property
    def problem(self) -> str | None:
        """Why nothing is heard now; None: it is."""
        return self._problem

    async def start(self) -> None:
        """Begin to listen, as far as that is possible now."""
        await self._upkeep.start()

    async def close(self) -> None:
        """Hear no more."""
        await self._upkeep.close()

    def subscribe(self, topic: str, hear: Callable[[bytes], None]) -> Callable[[], None]:
        channel = self._prefix + topic
        hearers = self._hearers.get(channel)
        if hearers is None:
            hearers = self._hearers[channel] = []
            if self._line is not None:
                self._line.send(("SUBSCRIBE", channel))
        hearers.append(hear)

        def end() -> None:
            if hear in hearers:
                hearers.remove(hear)
            if not hearers and self._hearers.get(channel) is hearers:
                del self._hearers[channel]
                if self._line is not None:
                    self._line.send(("UNSUBSCRIBE", channel))

        return end

    def on_return(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._returned.append(callback)

        def end() -> None:
            if callback in self._returned:
                self._returned.remove(callback)

        return end

    async def publish(self, topic: str, message: bytes) -> None:
        channel = self._prefix + topic
        await self._link.command(channel, "PUBLISH", channel, message)

    # The line; implements ``app.state.redis_line.User``.

    async def greet(self, connection: AbstractConnection) -> None:
        channel = f"{self._prefix}{GREETING}"
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.send_command("SUBSCRIBE", channel, check_health=False)
                answer = await connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            raise CannotConnect(reason(error, self._timeout_s)) from error
        if answer != [b"subscribe", channel.encode(), 1]:
            raise CannotConnect(NONSENSE)

    def joined(self, connection: AbstractConnection) -> Line:
        self._line = line = Line(connection, self._hear, self._timeout_s)
        self._problem = None
        self._unconfirmed = {channel.encode() for channel in self._hearers}
        if self._unconfirmed:
            line.send(("SUBSCRIBE", *self._hearers))
        else:
            self._confirmed()
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._pinging = loop.call_later(PING_S, self._ping)
        return line

    def left(self, why: str) -> None:  # noqa: ARG002  # `failed` follows where it matters
        self._line = None
        self._has_missed = True
        if self._pinging is not None:
            self._pinging.cancel()
            self._pinging = None

    def failed(self, why: str) -> None:
        self._problem = why
        self._has_missed = True

    def _ping(self) -> None:
        line, loop = self._line, asyncio.get_running_loop()
        if line is None:
            return
        if loop.time() - self._heard_at >= PING_S + self._timeout_s:
            line.lose_silent()
            return
        line.send(("PING",))
        self._pinging = loop.call_later(min(PING_S, self._timeout_s), self._ping)

    def _hear(self, answer: Any) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        match answer:
            case [b"message", bytes(channel), bytes(message)]:
                for hear in tuple(self._hearers.get(channel.decode(), ())):
                    try:
                        hear(message)
                    except Exception:
                        log.exception("hearing_failed")  # a bug of ours; others hear on
            case [b"subscribe", bytes(channel), int()]:
                if channel in self._unconfirmed:
                    self._unconfirmed.discard(channel)
                    if not self._unconfirmed:
                        self._confirmed()
            case [b"unsubscribe" | b"pong", *_] | b"PONG":
                pass
            case Exception():
                raise answer
            case _:
                if self._line is not None:
                    self._line.lose(NONSENSE)

    def _confirmed(self) -> None:
        """From now on everything is heard."""
        has_missed, self._has_missed = self._has_missed, False
        if has_missed:
            for callback in tuple(self._returned):
                try:
                    callback()
                except Exception:
                    log.exception("hearing_failed")  # likewise
