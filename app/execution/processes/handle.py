"""The server's side of one worker process."""

import asyncio
import os
import pickle
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson
import structlog

from app.execution.execution import Execution
from app.execution.processes.nursery import Nursery
from app.execution.processes.wire import (
    ENDINGS,
    MAX_OTHER_BYTES,
    REASONS,
    BadFrame,
    CallToRun,
    Frame,
    FrameReader,
    Kind,
    Load,
    encode,
)
from app.observability.metrics import PROCESSES_KILLED
from app.protocol.jsonrpc import loads
from app.registry.problems import Problem

START_S: Final = 90.0
"""How long loading the tools and entering their lifespans may take."""

MAX_LINES: Final = 200
"""Lines of one call that go to the log; what is printed beyond them is only counted."""

MAX_LINE: Final = 2000
"""Characters of a printed line that go to the log."""

IN_PEACE: Final = ("stop", "closed")
"""Reasons of a kill that nothing has gone wrong for, or that only makes sure of an end."""

_CHUNK: Final = 65536

log = structlog.get_logger()


class Owner(Protocol):
    """Who decides what follows. Every method is called in the event loop."""

    def call_ended(self, worker: "Worker", frame: Frame) -> None:
        """A call came to an end in the worker."""
        ...

    def died(self, worker: "Worker") -> None:
        """The worker has ended; ``worker.execution`` is the call that went with it."""
        ...


class StartError(Exception):
    """A worker did not get ready.

    Attributes:
        path: The file that it was busy with; empty: none.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class Worker(asyncio.Protocol):
    """A process that runs one call at a time.

    Attributes:
        pid: Process id; 0 until it is known.
        execution: The call that runs, or that was lost with the worker.
        is_dead: Whether it is of no use any more, though its end may not have been confirmed.
        killed_for: Why the server has killed it; empty: it has not.
        max_output: Bytes that a call may print and log.
        status: How it ended, as of ``os.waitpid``; None until that is known.
    """

    def __init__(
        self, number: int, nursery: Nursery, owner: Owner, *, max_result: int, max_output: int
    ) -> None:
        self.number = number
        self.pid = 0
        self.execution: Execution | None = None
        self.is_dead = False
        self.killed_for = ""
        self.status: int | None = None
        self._loop = asyncio.get_running_loop()
        self._nursery = nursery
        self._owner = owner
        self._reader = FrameReader(max(max_result, MAX_OTHER_BYTES) + 1024)
        self.max_output = max_output
        self._output = -1
        self._printed = self._lines = 0
        self._transport: asyncio.Transport | None = None
        self._loading = ""
        self._ready: asyncio.Future[list[Problem]] = self._loop.create_future()
        self._ended = asyncio.Event()

    async def start(self, load: bytes) -> list[Problem]:
        """Start the process and wait until it is ready. Returns what it could not load.

        Raises:
            StartError: It did not get ready.
        """
        ours, theirs = socket.socketpair()
        self._output, output = os.pipe()
        try:
            self._nursery.start(self.number, theirs.fileno(), output)
        except OSError as error:
            ours.close()
            self._close_output()
            raise StartError(f"no process could be started: {error}", "") from None
        finally:
            theirs.close()
            os.close(output)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read_output)
        ours.setblocking(False)
        await self._loop.create_unix_connection(lambda: self, sock=ours)
        self._send(encode(Kind.LOAD, load))
        try:
            async with asyncio.timeout(START_S):
                return await self._ready
        except TimeoutError:
            self.kill("start")
            raise StartError(f"it was not ready within {START_S:g} s", self._loading) from None

    def run(self, execution: Execution, call: bytes) -> None:
        """Start a call in an idle worker."""
        self.execution = execution
        self._printed = self._lines = 0
        self._send(call)

    def kill(self, reason: str) -> None:
        """End it and all that it has started, now."""
        if not self.is_dead:
            self.is_dead = True
            self.killed_for = reason
            if reason not in IN_PEACE:
                PROCESSES_KILLED.inc(reason)
            self._nursery.kill(self.number)

    def leave(self) -> None:
        """Let an idle worker leave its lifespans and end."""
        self._send(encode(Kind.LEAVE))

    async def wait(self, timeout_s: float) -> None:
        """Wait for its end; kill it after some time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            self.kill("stop")

    # What the nursery hears.

    def was_born(self, pid: int) -> None:
        self.pid = pid

    def has_ended(self, status: int) -> None:
        """The process has ended, and was reaped."""
        self.status = status
        self.is_dead = True
        if self._output >= 0:
            self._read_output()
        self._close_output()
        if self._transport is not None:
            self._transport.abort()
        if not self._ready.done():
            what = f"it {described(status)}" if status >= 0 else os.strerror(-status)
            self._ready.set_exception(StartError(what, self._loading))
        self._ended.set()
        self._owner.died(self)

    # asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                if self.is_dead:
                    return  # what it says after its caller was answered
                self._hear(frame)
        except (BadFrame, ValueError, TypeError, LookupError) as error:
            # A tool has written to a file descriptor that is not its own.
            log.warning("process_talks_nonsense", tool=self._tool, pid=self.pid, problem=str(error))
            self.kill("nonsense")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        # Its end is confirmed by the template; a tool that only closed the socket is killed.
        self.kill("closed")

    # Inside.

    @property
    def _tool(self) -> str | None:
        return self.execution.tool.name if self.execution is not None else None

    def _send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def _hear(self, frame: Frame) -> None:
        execution = self.execution
        match frame.kind:
            case Kind.LOADING:
                self._loading = frame.payload.decode()
            case Kind.READY:
                found: Sequence[Any] = orjson.loads(frame.payload)
                problems = [Problem(p, line, "error", text, tool) for p, line, text, tool in found]
                if not self._ready.done():
                    self._ready.set_result(problems)
            case Kind.LINE:
                self._log_line(frame.payload)
            case _ if execution is None:
                raise BadFrame(f"a frame of kind {frame.kind} without a call")
            case Kind.PROGRESS:
                execution.progress(*loads(frame.payload))
            case Kind.MESSAGE:
                execution.log(*loads(frame.payload))
            case Kind.CAUSE:
                trace = {"exception": frame.payload.decode()}  # where tracebacks stand
                log.warning("tool_error", tool=self._tool, **trace)
            case kind if kind in ENDINGS:
                if frame.reason:
                    self.kill(REASONS[frame.reason])
                self._owner.call_ended(self, frame)
            case kind:
                raise BadFrame(f"a frame of unknown kind {kind}")

    def _read_output(self) -> None:
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close_output()
        elif self._count(len(data)):
            for line in data.decode("utf-8", "backslashreplace").splitlines():
                if line and self._may_log():
                    log.info("tool_output", tool=self._tool, pid=self.pid, text=line[:MAX_LINE])

    def _log_line(self, payload: bytes) -> None:
        if self._count(len(payload)) and self._may_log():
            line: dict[str, Any] = orjson.loads(payload)
            level, event = line.pop("level", "info"), line.pop("event", "log")
            line.pop("timestamp", None)
            write: Callable[..., Any] = getattr(log, str(level), log.info)
            write(str(event), **{"tool": self._tool, "pid": self.pid, **line})

    def _may_log(self) -> bool:
        self._lines += 1
        return self._lines <= MAX_LINES

    def _count(self, size: int) -> bool:
        """Count what a call prints and logs. False: it is too much."""
        self._printed += size
        if self._printed > self.max_output:
            self.kill("output")
        return not self.is_dead or self.status is not None

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = -1


def described(status: int) -> str:
    """How a process ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def encode_load(load: Load) -> bytes:
    """What a worker is told first."""
    return pickle.dumps(load, pickle.HIGHEST_PROTOCOL)


def encode_call(call: CallToRun) -> bytes:
    """The frame that starts a call."""
    return encode(Kind.CALL, pickle.dumps(tuple(call), pickle.HIGHEST_PROTOCOL))


class RemoteFailure(NamedTuple):
    """What a tool has raised in a worker.

    Attributes:
        kind: Name of the exception's class.
        public: What the caller may be told.
        passing_s: As of ``Ending``.
    """

    kind: str
    trace: str
    public: str | None
    passing_s: float | None


def failure_of(payload: bytes) -> RemoteFailure:
    """What ``FAILED`` says.

    Raises:
        LookupError, TypeError, ValueError: It is nothing of that kind.
    """
    told: Mapping[str, Any] = orjson.loads(payload)
    public, seconds = told["public"], told["passing_s"]
    return RemoteFailure(
        str(told["error"]),
        str(told["trace"]),
        None if public is None else str(public),
        None if seconds is None else float(seconds),
    )
