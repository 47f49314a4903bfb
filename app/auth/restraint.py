"""How much one issuer is asked, so that neither its silence nor a flood reaches everybody."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from app.auth.problems import IssuerBusy, IssuerUnavailable

RETRY_S: Final = 2.0
"""An issuer that failed is asked again no sooner, so that callers do not queue for its silence."""
FAILURES: Final = 3
"""So many in a row: one alone may be due to the token that it was asked about."""


class Turns:
    """Whoever asks takes a turn: ``async with turns:``. To get none is no failure of the issuer.

    Args:
        at_once: How many may ask at one time.
        waiting: And how many may wait for that; whoever comes then is sent away at once.
        patience_s: How long one waits.
    """

    def __init__(self, at_once: int, waiting: int, patience_s: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._places = waiting
        self._patience_s = patience_s

    async def __aenter__(self) -> None:
        """Wait for a turn; first come, first served.

        Raises:
            IssuerBusy: Too many wait already, or it took too long.
        """
        if not self._free.locked():
            await self._free.acquire()
            return
        if self._places <= 0:
            raise IssuerBusy
        self._places -= 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise IssuerBusy from None
        finally:
            self._places += 1

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


class Breaker:
    """Skips an issuer for a while after several failures in a row; then one question tries it."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = -math.inf
        self._is_tried = False

    def check(self, now: float) -> None:
        """Whether the issuer may be asked.

        Raises:
            IssuerUnavailable: It is skipped now.
        """
        if self._failures >= FAILURES and (now < self._until or self._is_tried):
            raise IssuerUnavailable(RETRY_S)

    @contextmanager
    def question(self, now: float) -> Iterator[None]:
        """Round one question, of which ``heard`` or ``failed`` is told.

        Raises:
            IssuerUnavailable: See ``check``.
        """
        self.check(now)
        tries = self._failures >= FAILURES
        self._is_tried = self._is_tried or tries
        try:
            yield
        finally:
            if tries:
                self._is_tried = False

    def heard(self) -> None:
        """It answered."""
        self._failures = 0

    def failed(self, now: float) -> None:
        """It did not."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = now + RETRY_S


class Lately:
    """A bounded number of things, each for a while; the oldest give way."""

    def __init__(self, for_s: float, at_most: int) -> None:
        self._for_s, self._at_most = for_s, at_most
        self._until: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, thing: bytes, now: float) -> None:
        """Keep it, anew if it is there."""
        self._until.pop(thing, None)
        self._until[thing] = now + self._for_s
        if len(self._until) > self._at_most:
            del self._until[next(iter(self._until))]

    def has(self, thing: bytes, now: float) -> bool:
        """Whether it was added lately."""
        return self._until.get(thing, -math.inf) > now
