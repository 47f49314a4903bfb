"""A worker process: loads tools, then runs one call after the other."""

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from pydantic import ValidationError

from app.execution.failures import passing_s, tool_error
from app.execution.processes import confine
from app.execution.processes.channel import LineStream, ServerGone, Socket, WorkerChannel
from app.execution.processes.loading import Loop, load_tools
from app.execution.processes.wire import (
    REASONS,
    CallToRun,
    Frame,
    FrameReader,
    Kind,
    Load,
    passing,
    principal_of,
)
from app.execution.results import INVALID_ARGUMENTS, BadResult
from app.observability.logs import configure_logging
from app.observability.propagation import carried_on
from app.protocol.jsonrpc import dumps
from app.registry.explain import explain_binding
from app.registry.tool import Tool
from app.toolkit import Context, ToolError

MAX_TRACE: Final = 32 * 1024


def main(channel: int, output: int) -> None:
    """Serve until the server says so or is gone.

    Args:
        channel: File descriptor of the socket to the server.
        output: File descriptor that takes the place of standard output and error.
    """
    confine.stand_back()
    confine.adopt_orphans()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    sys.stdout, sys.stderr = _text(1), _text(2)
    faulthandler.enable(2)  # a crash says where, in the server's log
    with socket.socket(fileno=channel) as end:
        connection = Socket(end)
        os.register_at_fork(after_in_child=lambda: _forked(connection))
        try:
            _Worker(connection).serve()
        except (ServerGone, OSError):
            return


def _text(standard: int) -> TextIO:
    return open(  # for the life of the process
        standard, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _forked(connection: Socket) -> None:
    """In a child that a tool has forked: be an ordinary process."""
    connection.close_in_child()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


async def _settled(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """A value or an error: SystemExit must not stop the loop."""
    try:
        return await coroutine, None
    except BaseException as error:  # noqa: BLE001  # whatever a tool raises
        return None, error


class _Worker:
    def __init__(self, end: Socket) -> None:
        self._end = end
        self._process = os.getpid()
        self._frames = self._receive()
        self._loop = Loop()

    def serve(self) -> None:
        self._load = load = pickle.loads(next(self._frames).payload)  # noqa: S301  # the server's own
        assert isinstance(load, Load)
        configure_logging(load.log_level, "json", LineStream(self._end))  # type: ignore[arg-type]  # all of a stream that is used
        loaded = load_tools(load, self._loop, self._announce)
        self._tools, self._lifespans = loaded.tools, loaded.lifespans
        gc.collect()
        gc.freeze()
        self._directory = Path.cwd()
        self._streams = (sys.stdout, sys.stderr)
        self._children = confine.children(self._process)
        self._allowance = confine.Allowance()
        self._births = confine.Births()
        ready = [[each.path, each.line, each.message, each.tool] for each in loaded.problems]
        self._end.send(Kind.READY, dumps(ready))
        for frame in self._frames:
            if frame.kind == Kind.LEAVE:
                self._leave()
                return
            self._run(CallToRun(*pickle.loads(frame.payload)))  # noqa: S301  # likewise

    def _receive(self) -> Iterator[Frame]:
        reader = FrameReader(1 << 32)  # the server has bounded what comes
        while True:
            yield from reader.feed(self._end.receive())

    def _announce(self, path: str) -> None:
        self._end.send(Kind.LOADING, path.encode())

    def _leave(self) -> None:
        for lifespan in self._lifespans:
            self._loop.run(lifespan.exit())
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # a tool has closed it
                stream.flush()

    # Calls.

    def _run(self, call: CallToRun) -> None:
        tool = self._tools[call.tool]
        assert tool.process is not None
        channel = WorkerChannel(
            self._end,
            remaining_s=call.remaining_s,
            wants_progress=call.wants_progress,
            log_level=call.log_level,
        )
        self._births.begin()
        self._allowance.begin(*tool.process)
        reason = ""
        try:
            with carried_on(call.current):
                ending = self._ending(tool, call, channel)
        except MemoryError:
            self._allowance.lift()
            reason = "memory"
            limit = f"{tool.process.memory_bytes:,} bytes"
            text = f"The tool needed more than its limit of {limit} of memory."
            ending = self._error(call, text)
        if os.getpid() != self._process:
            os._exit(0)  # the tool has forked, and its child has come back from the call too
        channel.end()
        reason = reason or self._state()
        self._end.send(*ending, REASONS.index(reason))

    def _ending(self, tool: Tool, call: CallToRun, channel: WorkerChannel) -> tuple[int, bytes]:
        encoder = self._load.encoder
        try:
            value = self._value(tool, call, channel)
            encode = encoder.draft if call.is_draft else encoder.encode
            result, is_error = encode(tool, value)
        except MemoryError:
            raise
        except BadResult as bad:
            return self._failed(bad, bad.public)
        except InvalidInWorker as invalid:
            return self._error(call, str(invalid))
        except ToolError as error:
            if error.__cause__ is not None:
                self._end.send(Kind.CAUSE, _trace(error).encode("utf-8", "replace"))
            result = tool_error(encoder, error, is_draft=call.is_draft)
            seconds = passing_s(error)
            if seconds is not None:
                return Kind.PASSING, passing(seconds, result)
            return Kind.TOOL_ERROR, result
        except BaseException as error:  # noqa: BLE001  # a tool may raise anything, SystemExit too
            return self._failed(error, None)
        return (Kind.TOOL_ERROR if is_error else Kind.RESULT), result

    def _value(self, tool: Tool, call: CallToRun, channel: WorkerChannel) -> Any:
        try:
            keywords = tool.input.bind(call.arguments)
        except ValidationError as error:
            raise InvalidInWorker(tool.name, explain_binding(error)) from None
        if tool.input.context_parameter is not None:
            keywords[tool.input.context_parameter] = Context(
                tool_name=tool.name,
                request_id=call.request_id,
                principal=principal_of(call.principal),
                protocol_version=call.protocol_version,
                client=call.client,
                meta=call.meta,
                settings=tool.settings,
                lifespan=tool.source.lifespan_value,
                channel=channel,
                trace=call.trace,
            )
        if not tool.is_async:
            return tool.function(**keywords)
        value, raised = self._loop.run(_settled(tool.function(**keywords)))
        if raised is not None:
            raise raised
        return value

    def _error(self, call: CallToRun, text: str) -> tuple[int, bytes]:
        encoder = self._load.encoder
        return Kind.TOOL_ERROR, (encoder.error_draft if call.is_draft else encoder.error)(text)

    def _failed(self, error: BaseException, public: str | None) -> tuple[int, bytes]:
        told = {
            "error": type(error).__name__,
            "trace": _trace(error),
            "public": public,
            "passing_s": passing_s(error),
        }
        return Kind.FAILED, dumps(told)

    def _state(self) -> str:
        """What the call has left behind that the next one must not find; empty: nothing."""
        try:
            if Path.cwd() != self._directory:
                return "directory"
            if (sys.stdout, sys.stderr) != self._streams or any(s.closed for s in self._streams):
                return "streams"
            os.fstat(1), os.fstat(2)
        except OSError:
            return "streams"
        if self._has_children():
            return "processes"
        return "memory" if self._allowance.is_spent() else ""

    def _has_children(self) -> bool:
        if not confine.LINUX:
            return False
        try:  # the usual case in one system call
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return not confine.children(self._process) <= self._children


class InvalidInWorker(Exception):
    """Arguments that satisfy their schema and not their Python types."""

    def __init__(self, tool: str, reasons: list[str]) -> None:
        super().__init__(f"{INVALID_ARGUMENTS}{tool}: {'; '.join(reasons)}")


def _trace(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001  # __str__ is the author's code
        text = type(error).__name__
    text = text.rstrip("\n").encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_TRACE else "... (cut)\n" + text[-MAX_TRACE:]
