"""A server as its user starts it: a process with a configuration, a folder of tools and a log."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self
from urllib.parse import urlsplit

from tests.support.client import McpClient
from tests.support.loglines import wrong_lines
from tests.support.waiting import Deadline

ROOT = Path(__file__).resolve().parents[2]
START_S = 20.0
STOP_S = 15.0

Log = dict[str, Any]

# Signs of a server that lost hold of its own work; no test may leave one behind.
FORBIDDEN_IN_LOGS = (
    "never retrieved",
    "was never awaited",
    "cancel scope",
    "Exception in ASGI application",
    "Task was destroyed",
)


# Tests call more in a minute than one caller may. Their calls are counted all the same.
PLENTY: Mapping[str, Any] = {
    "rates": [{"tools": ["*"], "bucket": "user", "capacity": 1_000_000, "period_s": 1}],
    "list_rates": [{"bucket": "user", "capacity": 1_000_000, "period_s": 1}],
}


def toml(config: Mapping[str, Any]) -> str:
    """Write a mapping of tables as TOML (only what configurations of tests need)."""
    return "\n".join(_tables(config, ()))


def _tables(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and (plain or not table):
        yield f"[{'.'.join(json.dumps(part) for part in path)}]"
    for key, value in plain.items():
        yield f"{json.dumps(key)} = {inline(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _tables(value, (*path, key))


def inline(value: Any) -> str:
    """A value as TOML; tables in a list, such as `[[policies]]`, become inline tables."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {inline(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without the settings of whoever runs the tests."""
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith("MCP__")}
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


class ServerProcess:
    """One `python -m app serve`, from its first log line to exit code 0.

    Args:
        tools: the folder of tools.
        config: tables of `config.toml`, or its text.
        port: where to listen; 0 picks a free port.
        args: more command line arguments, after those the harness gives.
        env: more environment variables.
        ahead_s: how far its clock is ahead of everybody else's.
        start: whether to start at once and wait for readiness.

    Attributes:
        expected: the exit code that it ends with.

    Raises:
        AssertionError: the process ended, or was not ready before the deadline.
    """

    def __init__(
        self,
        tools: Path,
        config: Mapping[str, Any] | str | None = None,
        *,
        port: int = 0,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        ahead_s: float = 0.0,
        start: bool = True,
    ) -> None:
        self.tools = tools
        self.expected = 0
        self._folder = tempfile.TemporaryDirectory(prefix="server-")
        self.config_path = Path(self._folder.name) / "config.toml"
        self.write_config({} if config is None else config)
        self.command = [
            sys.executable,
            *(("-m", "tests.support.ahead", str(ahead_s)) if ahead_s else ("-m", "app")),
            *("serve", "--port", str(port), "--config", str(self.config_path)),
            *("--tools", str(tools), "--log-format", "json", *args),
        ]
        self._env = clean_environment(env)
        self._lines: list[str] = []
        self._logs: list[Log] = []
        self._noise: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        if start:
            self.start()

    def write_config(self, config: Mapping[str, Any] | str) -> None:
        """Replace `config.toml` in one step, as an editor that saves safely does.

        Tables without rates of their own get plenty; a text is taken as it is.
        """
        if not isinstance(config, str):
            config = toml({**config, "limits": {**PLENTY, **config.get("limits", {})}})
        draft = self.config_path.with_suffix(".draft")
        draft.write_text(config, "utf-8")
        draft.replace(self.config_path)

    def start(self) -> Self:
        """Start the process and wait for the line that says where it listens."""
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        assert self.process.stderr is not None
        threading.Thread(target=self._collect, args=(self.process.stderr,), daemon=True).start()
        try:
            line = self.wait_for_log(lambda log: log.get("event") == "listening", START_S)
        except AssertionError:
            self.kill()
            raise
        self.url = line["url"]
        return self

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._add(line.rstrip("\n"))
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _add(self, line: str) -> None:
        try:
            log = json.loads(line)
        except ValueError:
            log = None
        with self._news:
            self._lines.append(line)
            if isinstance(log, dict):
                self._logs.append(log)
            else:
                self._noise.append(line)
            self._news.notify_all()

    # -- what it says -------------------------------------------------------

    def logs(self, event: str | None = None, **fields: Any) -> list[Log]:
        """The log lines so far, those of one event and with the given fields."""
        with self._news:
            found = list(self._logs)
        wanted = fields if event is None else {"event": event, **fields}
        return [log for log in found if all(log.get(key) == want for key, want in wanted.items())]

    def log_text(self) -> str:
        """All that the process wrote to standard error, as it wrote it."""
        with self._news:
            return "\n".join(self._lines)

    def noise(self) -> list[str]:
        """Lines on standard error that are not JSON objects."""
        with self._news:
            return list(self._noise)

    def log_mark(self) -> int:
        """A position in the log, for `wait_for_log(after=...)`."""
        with self._news:
            return len(self._logs)

    def wait_for_log(
        self, predicate: Callable[[Log], bool], timeout: float = 10.0, *, after: int = 0
    ) -> Log:
        """Wait for the first log line (from position `after` on) that `predicate` accepts."""
        deadline = Deadline(timeout)
        with self._news:
            seen = after
            while True:
                for log in self._logs[seen:]:
                    if predicate(log):
                        return log
                seen = len(self._logs)
                if self._ended or deadline.expired:
                    why = "the process ended" if self._ended else f"not within {timeout} s"
                    tail = "\n".join(self._lines[-40:])
                    raise AssertionError(f"no such log line: {why}; the last lines:\n{tail}")
                self._news.wait(deadline.remaining_s)

    # -- where it is --------------------------------------------------------

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def host(self) -> str:
        """Address it listens on."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port it listens on."""
        return urlsplit(self.url).port or 0

    @property
    def client(self) -> McpClient:
        """A client of this server."""
        return McpClient(self.host, self.port)

    # -- how it ends --------------------------------------------------------

    def terminate(self) -> None:
        """Ask it to end (SIGTERM) and do not wait."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = STOP_S) -> int:
        """Wait for its end; the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            tail = self.log_text()[-4000:]
            self.kill()
            raise AssertionError(f"did not end within {timeout} s:\n{tail}") from None

    def stop(self, timeout: float = STOP_S) -> None:
        """Ask it to end; it must do so in time, with the expected code and a clean log."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.terminate()
        code = self.wait(timeout)
        self._wait_for_end_of_log()
        self._folder.cleanup()
        assert code == self.expected, f"exit code {code}:\n{self.log_text()[-4000:]}"
        self.assert_clean_log()

    def _wait_for_end_of_log(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._ended, 5.0)

    def assert_clean_log(self) -> None:
        """No line that is not JSON or not as documented, no sign of work that the server lost."""
        text = self.log_text()
        lost = [sign for sign in FORBIDDEN_IN_LOGS if sign in text]
        assert not lost, f"the log has {lost}:\n{text[-4000:]}"
        assert not self.noise(), f"lines that are not JSON: {self.noise()[:20]}"
        wrong = wrong_lines(self.logs())
        assert not wrong, f"lines of requests that are not as documented: {wrong[:5]}"

    def kill(self) -> None:
        """End it without ceremony."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def discard(self) -> None:
        """End it without ceremony, and expect nothing of it."""
        self.kill()
        self._wait_for_end_of_log()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
            return
        # The test has failed already: its own error must not hide behind ours.
        try:
            self.stop()
        except AssertionError as also:
            error.add_note(str(also)) if error is not None else None
        finally:
            self.kill()


class ServerFactory(Protocol):
    """Starts a server that is stopped, and must end well, when the test ends."""

    def __call__(
        self, tools: Path = ..., config: Mapping[str, Any] | str | None = ..., **how: Any
    ) -> ServerProcess:
        """Arguments as of `ServerProcess`; the fixture tools by default."""
        ...
