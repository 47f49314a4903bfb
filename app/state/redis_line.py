"""One connection to Redis, written to in batches and read at the same time; and its upkeep."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog
from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from app.state.redis_target import CannotConnect, Connect, let_go, reason

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between attempts to connect; each is drawn from half of it to the whole, so that not all
servers of a fleet come back at once."""

STEADY_S: Final = 1.0
"""A connection that lasted so long is made anew at once when it breaks, and quietly."""

Command = tuple[bytes | str | int, ...]
_pack: Final[Callable[[Command], bytes]] = pack_command  # type: ignore[assignment]  # its stub takes a tuple of one

log = structlog.get_logger()


class Line:
    """A connection, until it breaks.

    Args:
        hear: Gets each answer; an answer that is an error as the exception.

    Attributes:
        is_silent: Whether it was lost because nobody answered.
    """

    def __init__(
        self, connection: AbstractConnection, hear: Callable[[Any], None], timeout_s: float
    ) -> None:
        self._connection = connection
        self._hear = hear
        self._timeout_s = timeout_s
        self.is_silent = False
        self._waiting: list[Command] = []
        self._has_more = asyncio.Event()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def send(self, command: Command) -> None:
        """Write a command, together with all others of this turn of the event loop."""
        self._waiting.append(command)
        self._has_more.set()

    def lose(self, why: str) -> None:
        """It is of no use any more."""
        if not self._lost.done():
            self._lost.set_result(why)

    def lose_silent(self) -> str:
        """Nobody answers. Returns that in words."""
        self.is_silent = True
        why = f"no answer within {self._timeout_s:g} s"
        self.lose(why)
        return why

    async def run(self) -> str:
        """Read and write until it breaks; says why it did."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            return await self._lost
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await let_go(self._connection)

    async def _read(self) -> None:
        read, hear = self._connection.read_response, self._hear
        try:
            while True:
                try:
                    answer = await read(disable_decoding=True)
                except ResponseError as error:  # of one command
                    answer = error
                if self._lost.done():  # nobody waits for answers of this line any more
                    return
                hear(answer)
        except (RedisError, OSError) as error:
            self.lose(reason(error, self._timeout_s))
        except Exception as error:
            log.exception("state_failed")  # a bug of ours; the next connection may do better
            self.lose(type(error).__name__)

    async def _write(self) -> None:
        connection = self._connection
        try:
            while True:
                await self._has_more.wait()
                self._has_more.clear()
                batch, self._waiting = self._waiting, []
                packed = b"".join(map(_pack, batch))
                await connection.send_packed_command(packed, check_health=False)
        except (RedisError, OSError) as error:
            self.lose(reason(error, self._timeout_s))


class User(Protocol):
    """Who uses a line that is kept."""

    async def greet(self, connection: AbstractConnection) -> None:
        """Look whether a new connection is of use.

        Raises:
            CannotConnect: It is not.
        """

    def joined(self, connection: AbstractConnection) -> Line:
        """There is a connection: the line to run on it."""

    def left(self, why: str) -> None:
        """The line is lost; another attempt is under way."""

    def failed(self, why: str) -> None:
        """That attempt has failed, and others go on until one succeeds."""


class Upkeep:
    """Keeps one connection: makes it, and makes it anew whenever it breaks.

    Args:
        part: What it is for, in the log.
        name: Where it leads, in the log.
    """

    def __init__(self, part: str, name: str, connect: Connect, user: User) -> None:
        self._part = part
        self._name = name
        self._connect = connect
        self._user = user
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._is_told = False

    async def start(self) -> None:
        """Make the connection; where that is not possible now, go on trying."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"keep {self._part}")
        await self._tried.wait()

    async def close(self) -> None:
        """Let go of it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _keep(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection = await self._connected()
            except CannotConnect as error:
                failures += 1
                self._tell_lost(str(error))
                self._user.failed(f"{self._name}: {error}")
                self._tried.set()
                await asyncio.sleep(_pause(failures))
                continue
            since = loop.time()
            line = self._user.joined(connection)
            self._tell_back()
            self._tried.set()
            why = "the server ends"
            try:
                why = await line.run()
            finally:
                self._user.left(f"{self._name}: {why}")
            if loop.time() - since >= STEADY_S and not line.is_silent:
                failures = 0
                continue
            # It breaks at once, or whoever is there answers nothing: not again in a circle.
            failures += 1
            self._tell_lost(why)
            self._user.failed(f"{self._name}: {why}")
            await asyncio.sleep(_pause(failures))

    async def _connected(self) -> AbstractConnection:
        try:
            connection = await self._connect()
        except (RedisError, OSError, ValueError) as error:
            raise CannotConnect(reason(error, 0.0)) from error
        try:
            await self._user.greet(connection)
        except BaseException:
            await let_go(connection)
            raise
        return connection

    def _tell_lost(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            log.error("state_lost", part=self._part, at=self._name, problem=why)

    def _tell_back(self) -> None:
        if self._is_told:
            self._is_told = False
            log.info("state_back", part=self._part, at=self._name)


def _pause(failures: int) -> float:
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 10))
    return random.uniform(longest / 2, longest)  # noqa: S311  # spreads load, guards nothing
