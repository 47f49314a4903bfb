"""Deadlines and waiting without guessing how long something takes."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TypeVar

T = TypeVar("T")

DEFAULT_S = 10.0
POLL_S = 0.01


class Deadline:
    """An instant after which waiting ends."""

    def __init__(self, timeout_s: float = DEFAULT_S) -> None:
        self.timeout_s = timeout_s
        self._at = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the instant has passed."""
        return self.remaining_s == 0.0


def eventually(probe: Callable[[], T], what: str, timeout_s: float = DEFAULT_S) -> T:
    """Ask `probe` until it answers something true, and return that answer.

    Raises:
        AssertionError: naming `what`, when the deadline passes first.
    """
    deadline = Deadline(timeout_s)
    pause = Event()
    while True:
        answer = probe()
        if answer:
            return answer
        if deadline.expired:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        pause.wait(POLL_S)


def eventually_lines(path: Path, wanted: str, timeout_s: float = DEFAULT_S) -> list[str]:
    """Wait until the file at `path` has the line `wanted`; return all its lines."""

    def lines() -> list[str]:
        found = path.read_text("utf-8").splitlines() if path.exists() else []
        return found if wanted in found else []

    return eventually(lines, f"a line {wanted!r} in {path.name}", timeout_s)
