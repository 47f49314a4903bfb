"""A server that its client starts: a process with pipes, and the judges at the end of one."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self

from tests.support.client import body_of, encode
from tests.support.schema import check_message
from tests.support.server import ROOT, START_S, ServerProcess
from tests.support.waiting import DEFAULT_S, Deadline

Message = dict[str, Any]
STOP_S: Final = 8.0


class StdioServer(ServerProcess):
    """One `python -m app stdio`, from its first log line to exit code 0.

    Whatever it writes to standard output is held against the specification when the test ends.

    Args:
        program: runs in place of `-m app`, with the same arguments.
        expected: the exit code that it must end with.
        is_noisy: whether its tools write to standard error, besides the log.
    """

    def __init__(
        self,
        tools: Path,
        config: Mapping[str, Any] | str | None = None,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "app"),
        expected: int = 0,
        is_noisy: bool = False,
        start: bool = True,
    ) -> None:
        super().__init__(tools, config, env=env, start=False)
        self.command = [
            sys.executable,
            *(*program, "stdio", "--config", str(self.config_path), "--tools", str(tools)),
            *("--log-format", "json", *args),
        ]
        self.expected = expected
        self._is_noisy = is_noisy
        self._messages: list[Message] = []
        self._output = bytearray()
        self._said = threading.Condition()
        self._is_silent = False
        self._hangs_up = False
        self._reading = threading.Event()
        self._reading.set()
        self._ids = 0
        if start:
            self.start()

    def start(self) -> Self:
        """Start the process and wait for the line that says that it serves."""
        self.spawn()
        try:
            self.wait_for_log(lambda log: log.get("event") == "serving_stdio", START_S)
        except AssertionError:
            self.kill()
            raise
        return self

    def spawn(self) -> None:
        """Start the process and wait for nothing."""
        process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.process = process  # type: ignore[assignment]  # of bytes: what is sent may be none
        errors = io.TextIOWrapper(process.stderr, "utf-8", errors="backslashreplace")  # type: ignore[type-var]  # it is a pipe
        for target, stream in ((self._collect, errors), (self._listen, process.stdout)):
            threading.Thread(target=target, args=(stream,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:
            while True:
                self._reading.wait()
                line = b"" if self._hangs_up else stream.readline()
                if not line:
                    break
                with self._said:
                    self._output += line
                    try:
                        self._messages.append(json.loads(line))
                    except ValueError:
                        self._messages.append({"not JSON": line})
                    self._said.notify_all()
        with self._said:
            self._is_silent = True
            self._said.notify_all()

    # -- to the server ------------------------------------------------------

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to it."""
        assert self.process is not None and self.process.stdin is not None
        return self.process.stdin  # type: ignore[return-value]  # of bytes

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.stdin.write(data)
        self.stdin.flush()

    def send(self, *messages: Any) -> None:
        """Send messages, or lines as bytes, in one write."""
        lines = [each if isinstance(each, bytes) else encode(each) for each in messages]
        self.write(b"\n".join(lines) + b"\n")

    def new_id(self) -> str:
        """An id that no other request has."""
        self._ids += 1
        return f"r{self._ids}"

    def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> str:
        """Send a request; its id."""
        id = self.new_id()
        self.send(body_of(method, params, id=id, meta_=meta))
        return id

    def begin(self, tool: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> str:
        """Send a call of a tool; its id."""
        return self.ask("tools/call", {"name": tool, "arguments": dict(arguments or {})}, **how)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> Message:
        """Call a tool; its result."""
        return self.result(self.begin(tool, arguments, **how))

    def cancel(self, id: Any) -> None:
        """Send `notifications/cancelled`."""
        params = {"requestId": id, "reason": "the user has changed their mind"}
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    # -- what it says -------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """What it has said so far."""
        with self._said:
            return list(self._messages)

    def wait_for(
        self, predicate: Callable[[Message], bool], timeout_s: float = DEFAULT_S, *, after: int = 0
    ) -> Message:
        """The first message (from position `after` on) that `predicate` accepts."""
        deadline = Deadline(timeout_s)
        seen = after
        with self._said:
            while True:
                for message in self._messages[seen:]:
                    if predicate(message):
                        return message
                seen = len(self._messages)
                if self._is_silent or deadline.expired:
                    why = "it says nothing more" if self._is_silent else f"not in {timeout_s} s"
                    raise AssertionError(
                        f"no such message: {why}; the last: {self._messages[-5:]}\n"
                        f"{self.log_text()[-2000:]}"
                    )
                self._said.wait(deadline.remaining_s)

    def response(self, id: Any, timeout_s: float = DEFAULT_S) -> Message:
        """The response to a request."""
        return self.wait_for(
            lambda message: (
                "method" not in message
                and type(message.get("id")) is type(id)
                and message["id"] == id
            ),
            timeout_s,
        )

    def result(self, id: Any, timeout_s: float = DEFAULT_S) -> Message:
        """The result of a request."""
        response = self.response(id, timeout_s)
        assert "result" in response, response
        found: Message = response["result"]
        return found

    def settled(self) -> list[Message]:
        """What it has said when everything that was sent before is taken up."""
        self.result(self.ask("server/discover"))
        return self.messages

    def about(self, id: Any) -> list[Message]:
        """The messages that belong to a request, by its id, token or subscription."""
        return [message for message in self.messages if _belongs(message, id)]

    def stop_reading(self) -> None:
        """Take nothing more of what it says, but for one more line."""
        self._reading.clear()

    def read_on(self) -> None:
        """Take what it says."""
        self._reading.set()

    def hang_up(self) -> None:
        """Take one more line, then close the end that it speaks to."""
        self._hangs_up = True

    # -- how it ends --------------------------------------------------------

    def close(self) -> None:
        """Close the pipe to it, as clients that end do."""
        self.stdin.close()

    def end(self, timeout: float = STOP_S) -> int:
        """Close the pipe and wait for the end of the process; the exit code."""
        self.close()
        code = self.wait(timeout)
        self.wait_for_silence()
        return code

    def wait_for_silence(self) -> None:
        """Wait until it has closed its end."""
        with self._said:
            assert self._said.wait_for(lambda: self._is_silent, DEFAULT_S)

    def stop(self, timeout: float = STOP_S) -> None:
        """Close the pipe; it must end in time, as expected, and have said nothing wrong."""
        if self.process is None:
            return
        self.read_on()
        with contextlib.suppress(BrokenPipeError):  # it ended first, with something unread
            self.close()
        code = self.wait(timeout)
        self.wait_for_silence()
        self._wait_for_end_of_log()
        self._folder.cleanup()
        assert code == self.expected, f"exit code {code}:\n{self.log_text()[-4000:]}"
        self.check_output()
        if self.expected == 0 and not self._is_noisy:
            self.assert_clean_log()

    def check_output(self) -> None:
        """Every byte on standard output belongs to a line that is a message of the protocol."""
        output = bytes(self._output)
        if self.expected != 0:  # it may have been cut off
            output = output[: output.rfind(b"\n") + 1]
        assert output == b"" or output.endswith(b"\n"), output[-200:]
        for line in output.splitlines():
            message = json.loads(line.decode("utf-8"))
            method = _method_of(message.get("result", {}))
            check_message(message, method=method, status=200, streamed=True)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)


def _method_of(result: Message) -> str:
    """What a result answers, by what only that has."""
    for member, method in (("supportedVersions", "server/discover"), ("tools", "tools/list")):
        if member in result:
            return method
    is_of_call = "content" in result or "inputRequests" in result
    return "tools/call" if is_of_call else "subscriptions/listen"


def _belongs(message: Message, id: Any) -> bool:
    params = message.get("params", {})
    found = (
        message.get("id"),
        params.get("progressToken"),
        params.get("requestId"),
        params.get("_meta", {}).get("io.modelcontextprotocol/subscriptionId"),
    )
    return id in found


class StdioFactory(Protocol):
    """Starts a server that must end well when the test ends."""

    def __call__(
        self, tools: Path = ..., config: Mapping[str, Any] | str | None = ..., **how: Any
    ) -> StdioServer:
        """Arguments as of `StdioServer`; the fixture tools by default."""
        ...
