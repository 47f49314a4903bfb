"""Commands to one Redis: those of one turn of the event loop are one batch, and none waits long."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

from app.state.interface import StoreFull, StoreUnavailable
from app.state.redis_line import Command, Line, Upkeep
from app.state.redis_scripts import PROBE, Script
from app.state.redis_target import NONSENSE, CannotConnect, Connect, meaning, reason

_DOUBTFUL = frozenset({"READONLY", "LOADING", "MASTERDOWN"})
"""Answers after which another server may be the right one."""


class Link(Protocol):
    """What a store needs of Redis. Every method raises ``StoreUnavailable`` where it is gone."""

    is_cluster: bool

    @property
    def problem(self) -> str | None:
        """Why it cannot be used now; None: it can."""

    async def start(self) -> None:
        """Connect, as far as that is possible now."""

    async def close(self) -> None:
        """Disconnect."""

    async def command(self, key: str, *command: bytes | str | int) -> Any:
        """The answer to a command about a key."""

    async def run(self, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> Any:
        """What a script returns; its keys are of one slot."""

    def distrust(self, key: str) -> StoreUnavailable:
        """An answer makes no sense: connect anew. Returns what to raise."""


class ServerLink:
    """One connection that everybody uses. Implements ``Link``.

    What is sent and not answered within ``timeout_s`` has failed, with all that was sent since.
    While there is no connection, nothing waits: each call fails at once, and attempts to connect
    go on by themselves.

    Args:
        name: Where it leads, for people.
        probe: A key for looking whether the server takes writes; None: it may be any node of a
            cluster, and only has to answer.
    """

    is_cluster = False

    def __init__(self, connect: Connect, *, name: str, timeout_s: float, probe: str | None) -> None:
        self._timeout_s = timeout_s
        self._probe = probe
        self._name = name
        self._problem: str | None = None
        self._line: Line | None = None
        self._early: list[Command] = []
        self._asked: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._upkeep = Upkeep("store", name, connect, self)

    @property
    def problem(self) -> str | None:
        return self._problem

    async def start(self) -> None:
        await self._upkeep.start()

    async def close(self) -> None:
        await self._upkeep.close()
        self._problem = "the server ends"
        self._fail_all(self._problem)

    # Commands.

    def send(self, *command: bytes | str | int) -> "asyncio.Future[Any]":
        """Send a command. The future has the answer, also one that is an error.

        Raises:
            StoreUnavailable: There is no connection.
        """
        if self._problem is not None:
            raise StoreUnavailable(self._problem)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        until = loop.time() + self._timeout_s
        self._asked.append((until, future))
        if self._timer is None:
            self._timer = loop.call_at(until, self._look)
        if self._line is None:  # it is being made anew, which takes a moment
            self._early.append(command)
        else:
            self._line.send(command)
        return future

    async def command(self, key: str, *command: bytes | str | int) -> Any:  # noqa: ARG002  # of a cluster
        return self.checked(await self.send(*command))

    async def run(self, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> Any:
        answer = await self.send("EVALSHA", script.sha, len(keys), *keys, *arguments)
        if isinstance(answer, NoScriptError):
            answer = await self.send("EVAL", script.text, len(keys), *keys, *arguments)
        return self.checked(answer)

    def checked(self, answer: Any) -> Any:
        """An answer that is none of the errors.

        Raises:
            StoreUnavailable, StoreFull: It is one.
        """
        if not isinstance(answer, ResponseError):
            return answer
        code, text = meaning(answer), reason(answer, self._timeout_s)
        if code == "OOM":
            raise StoreFull(f"{self._name}: {text}") from answer
        if code in _DOUBTFUL:
            self._lose(text)
        raise StoreUnavailable(f"{self._name}: {text}") from answer

    def distrust(self, key: str = "") -> StoreUnavailable:  # noqa: ARG002  # of a cluster
        self._lose(NONSENSE)
        return StoreUnavailable(f"{self._name}: {NONSENSE}")

    # The line; implements ``app.state.redis_line.User``.

    async def greet(self, connection: AbstractConnection) -> None:
        probe = (PROBE.text, 0) if self._probe is None else (PROBE.text, 1, self._probe)
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.send_command("EVAL", *probe, check_health=False)
                answer = await connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            # What is full can still be read, and says of each write that it is.
            if isinstance(error, RedisError) and meaning(error) == "OOM":
                return
            raise CannotConnect(reason(error, self._timeout_s)) from error
        if answer != 1:
            raise CannotConnect(NONSENSE)

    def joined(self, connection: AbstractConnection) -> Line:
        self._line = line = Line(connection, self._hear, self._timeout_s)
        self._problem = None
        early, self._early = self._early, []
        for command in early:
            line.send(command)
        return line

    def left(self, why: str) -> None:
        if self._line is not None:  # else it was given up, and what waits is for the next one
            self._line = None
            self._fail_all(why)

    def failed(self, why: str) -> None:
        self._problem = why
        self._fail_all(why)

    def _fail_all(self, why: str) -> None:
        asked, self._asked = self._asked, deque()
        self._early = []
        for _, future in asked:
            if not future.done():  # else whoever asked has gone
                future.set_exception(StoreUnavailable(why))

    def _hear(self, answer: Any) -> None:
        if not self._asked:
            self.distrust()
            return
        _, future = self._asked.popleft()
        if not future.done():
            future.set_result(answer)

    def _look(self) -> None:
        """Whether the oldest question still waits for its answer."""
        self._timer = None
        if not self._asked:
            return
        loop = asyncio.get_running_loop()
        until = self._asked[0][0]
        if until > loop.time():
            self._timer = loop.call_at(until, self._look)
            return
        if self._line is not None:
            why = self._line.lose_silent()
            self._problem = f"{self._name}: {why}"
            self._lose(why)
        else:  # making it anew takes longer than a moment
            self._fail_all(f"{self._name}: no connection within {self._timeout_s:g} s")

    def _lose(self, why: str) -> None:
        """The line is of no use: what was asked on it has failed, and what comes waits a moment."""
        if self._line is not None:
            self._line.lose(why)
            self._line = None
        self._fail_all(f"{self._name}: {why}")
