"""Server processes: started on one core, and asked by the kernel what they used."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_START_DEADLINE_S = 60.0
_LINUX = sys.platform == "linux"


@cache
def cores() -> tuple[int, int] | None:
    """(core of the servers, core of the load), or None where processes cannot be pinned.

    Found out once: a process that has pinned itself sees its own core alone, and would bring
    the servers that it starts then to it.
    """
    if not _LINUX:
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Run the block, and every process started in it, on one core."""
    if core is None or not _LINUX:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Server:
    """A running server under test."""

    label: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    path: str = "/mcp"
    token: str | None = None
    session: str | None = None
    started_s: float = 0.0
    _members: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def members(self) -> list[int]:
        """The process and its descendants: a helper process is part of the price."""
        if not self._members:
            self._members = list(_tree(self.pid))
        return self._members

    def cpu_s(self) -> float:
        """User and system time used so far, in seconds, once the server has come to rest."""
        used = self._cpu_now_s()
        for _ in range(20):
            time.sleep(0.001)
            again = self._cpu_now_s()
            if again == used:
                break
            used = again
        return used

    def _cpu_now_s(self) -> float:
        return sum(_cpu_s(pid) for pid in self.members())

    def rss_bytes(self) -> int:
        """Resident memory of the process and its descendants."""
        return sum(_rss_bytes(pid) for pid in _tree(self.pid))

    def stop(self) -> None:
        """End the server; kill it if it does not go within five seconds."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    if _LINUX:
        with contextlib.suppress(FileNotFoundError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                for child in (task / "children").read_text().split():
                    yield from _tree(int(child))


def _cpu_s(pid: int) -> float:
    if not _LINUX:
        minutes, _, seconds = _ps(pid, "cputime").rpartition(":")
        return int(minutes.rpartition(":")[2] or 0) * 60 + float(seconds)
    # The same sum as `utime + stime`, in nanoseconds instead of ticks of ten milliseconds.
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def _rss_bytes(pid: int) -> int:
    if not _LINUX:
        return int(_ps(pid, "rss")) * 1024
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ps(pid: int, column: str) -> str:
    """One column of `ps`, where there is no /proc (`rss` in KiB, `cputime` as [H:]M:S)."""
    command = ["/bin/ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def serving(
    label: str,
    command: Sequence[str],
    *,
    port: int,
    log: Path,
    path: str = "/mcp",
    environment: Mapping[str, str] | None = None,
    pinned: bool = True,
) -> Iterator[Server]:
    """Start `command` on the servers' core, wait until it answers, end it afterwards.

    Without `pinned` the kernel decides where it runs.

    Standard error goes to the file `log`: a log line costs what it costs in production, and a slow
    reader never holds the server back.

    Raises:
        RuntimeError: the server ended or did not answer within a minute.
    """
    pair = cores() if pinned else None
    began = time.perf_counter()
    with log.open("wb") as sink, on_core(pair[0] if pair else None):
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    server = Server(label, port, process, log, path)
    try:
        _wait_until_answering(server, began)
        server.started_s = time.perf_counter() - began
        yield server
    finally:
        server.stop()


def _wait_until_answering(server: Server, began: float) -> None:
    # Any answer will do, a 404 too; a server may accept connections before it can answer.
    probe = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", server.port), timeout=1) as connection,
        ):
            connection.sendall(probe)
            if connection.recv(100):
                return
        if server.process.poll() is not None or time.perf_counter() - began > _START_DEADLINE_S:
            tail = server.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{server.label} did not start:\n{tail}")
        time.sleep(0.02)
