"""What a worker does to itself so that its tool harms nobody else.

This holds against mistakes, not against attackers: a worker runs as the server's user.
"""

import contextlib
import ctypes
import math
import os
import resource
import signal
import sys
import time
from mmap import mmap
from pathlib import Path
from typing import Any, Final

LINUX: Final = sys.platform == "linux"
NICE: Final = 10
"""How much a worker stands back when processors are short: the server comes first."""

OOM_SCORE: Final = 500
"""If the machine runs out of memory, a worker is killed rather than the server."""

MAX_STARTS: Final = 256
"""Processes that one call may start, with all their descendants; then they are killed."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_STARTS: Final = frozenset(
    {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
)


def end_with_parent() -> None:
    """Be killed when the parent ends, however it ends. Linux only."""
    if LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end, also in other sessions. Linux only."""
    if LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def stand_back() -> None:
    """A group of its own, the last to get processors and the first to lose memory; no core."""
    os.setsid()
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if LINUX:
        with contextlib.suppress(OSError):  # a stricter system; it only decides who is first
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), "ascii")


def children(parent: int) -> set[int]:
    """Processes whose parent this is and that have not ended. Linux only: elsewhere none."""
    found = set()
    if LINUX:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    status = Path(entry.path, "stat").read_text("utf-8", "replace")
                except OSError:
                    continue
                # The name in parentheses may hold anything.
                state, ppid = status.rpartition(")")[2].split(maxsplit=2)[:2]
                if int(ppid) == parent and state not in "ZX":
                    found.add(int(entry.name))
    return found


class Allowance:
    """Memory and processor time, measured from when the tools were loaded.

    Soft limits alone: a hard one could not be raised again for the next call. Memory is address
    space beyond what the worker has when it is ready, so what libraries reserve does not count.
    """

    def __init__(self) -> None:
        self._page = resource.getpagesize()
        self._ready_bytes = self._address_space()
        self._memory: float = -1
        self._most_cpu = resource.getrlimit(resource.RLIMIT_CPU)[1]
        self._most_memory = resource.getrlimit(resource.RLIMIT_AS)[1]

    def begin(self, memory_bytes: int, cpu_s: float) -> None:
        """A call starts."""
        if memory_bytes != self._memory:
            self._memory = memory_bytes
            self._limit(resource.RLIMIT_AS, self._ready_bytes + memory_bytes, self._most_memory)
        # Whole seconds; the system sends SIGXCPU, which ends the process.
        until = math.ceil(time.process_time() + cpu_s)
        self._limit(resource.RLIMIT_CPU, until, self._most_cpu)

    def lift(self) -> None:
        """Let the worker report that memory was too little."""
        self._memory = -1
        resource.setrlimit(resource.RLIMIT_AS, (self._most_memory, self._most_memory))

    def is_spent(self) -> bool:
        """Whether what stayed behind leaves less than half of its memory to the next call."""
        grown = self._address_space() - self._ready_bytes
        return self._memory > 0 and grown > self._memory / 2

    def _address_space(self) -> int:
        if not LINUX:
            return 0
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # a fifth of the time
            return int(file.read().split(maxsplit=1)[0]) * self._page

    def _limit(self, what: int, soft: int, hard: int) -> None:
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        try:
            resource.setrlimit(what, (soft, hard))
        except (OSError, ValueError):
            if LINUX:  # macOS refuses limits of address space
                raise


class Births:
    """Counts the processes that a call starts, and ends all of them at ``MAX_STARTS``.

    The count is shared with the descendants, so that it stops one that only multiplies. Only
    what goes through Python is seen; the rest is ended with the call.
    """

    def __init__(self) -> None:
        self._worker = os.getpid()
        self._count = mmap(-1, 8)
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        """A call starts."""
        self._count[:8] = bytes(8)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _STARTS:
            count = int.from_bytes(self._count[:8]) + 1
            self._count[:8] = count.to_bytes(8)
            if count > MAX_STARTS:
                os.write(2, b"one call has started more than %d processes\n" % MAX_STARTS)
                os.kill(self._worker, signal.SIGKILL)
                os.killpg(0, signal.SIGKILL)
