"""``subscriptions/listen``: who wants to be told of what (Subscriptions)."""

import asyncio
import math
import random
from collections.abc import Callable
from typing import Final

import structlog

from app.methods.answers import Sender, Subscription
from app.principal import Principal
from app.protocol.errors import InvalidParams, Unavailable
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Call

log = structlog.get_logger()

TOOLS_LIST_CHANGED: Final = "toolsListChanged"
CHECK_SLICE_S: Final = 0.005
"""Requests wait no longer than this while many listeners are looked at after a change."""

_FLAGS: Final = (TOOLS_LIST_CHANGED, "promptsListChanged", "resourcesListChanged")


class Listen:
    """Checks a filter and narrows it to what can be told.

    Args:
        tools_change: Whether changes of tools are noticed at all.
    """

    def __init__(self, *, tools_change: bool) -> None:
        self._served = (TOOLS_LIST_CHANGED,) if tools_change else ()

    def __call__(self, call: Call, sender: Sender) -> Subscription:
        wanted = call.params.get("notifications")
        if not isinstance(wanted, dict):
            raise InvalidParams("params.notifications must be an object that says what to tell of.")
        for flag in _FLAGS:
            if not isinstance(wanted.get(flag, False), bool):
                raise InvalidParams(f"params.notifications.{flag} must be true or false.")
        resources = wanted.get("resourceSubscriptions", [])
        if not isinstance(resources, list) or not all(isinstance(uri, str) for uri in resources):
            raise InvalidParams(
                "params.notifications.resourceSubscriptions must be a list of URIs."
            )
        return Subscription(tuple(flag for flag in self._served if wanted.get(flag)))


class Stream:
    """What one listener has still to be told. At most one change waits: changes coalesce.

    Attributes:
        principal: Who listens.
        credential: The headers by which who listens became known; None: without any.
        seen: The list that it was told of last, as a fingerprint.
        drop: Lets go of a client that does not read.
        writing_since: When the write under way began; None between writes.
    """

    __slots__ = (
        "_waiter",
        "changed",
        "closing",
        "credential",
        "drop",
        "gone",
        "patience_s",
        "principal",
        "quiet",
        "quiet_since",
        "seen",
        "writing_since",
    )

    def __init__(
        self,
        principal: Principal,
        credential: HeaderMap | None,
        *,
        seen: str,
        now: float,
        patience_s: float,
    ) -> None:
        self.principal = principal
        self.credential = credential
        self.seen = seen
        self.patience_s = patience_s
        self.drop: Callable[[], None] | None = None
        self.changed = False
        self.closing = False
        self.gone = False
        self.quiet = False
        self.quiet_since = now
        self.writing_since: float | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return when there is something to send or the stream is to end."""
        if not (self.changed or self.closing or self.quiet or self.gone):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def end(self) -> None:
        """Let it end with its graceful result."""
        self.closing = True
        self.wake()

    def refuse(self) -> None:
        """Its credential counts no longer: let it end, and tell it nothing more."""
        self.changed = False
        self.end()

    def leave(self) -> None:
        """The client has gone: end without a word."""
        self.gone = True
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    """All listeners of one process: one timer for all of them, and no queues.

    Args:
        limit: Streams that may be open.
        limit_anonymous: How many of them may be of callers without a credential.
        keep_alive_s: A quiet stream is woken this often.
        look: What a listener finds now: a fingerprint of its own list.
        renew: The listener as it is now; None if its credential counts no longer.
        next_edge: POSIX time from which somebody may find another list; asked after a ``look``.
        clock: Gives POSIX time.
    """

    def __init__(
        self,
        *,
        limit: int,
        limit_anonymous: Callable[[], int],
        keep_alive_s: float,
        look: Callable[[Principal], str],
        renew: Callable[[Principal], Principal | None],
        next_edge: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._limit_anonymous = limit_anonymous
        self._anonymous = 0
        self._keep_alive_s = keep_alive_s
        self._look = look
        self._renew = renew
        self._next_edge = next_edge
        self._clock = clock
        self._edge = math.inf
        self._streams: set[Stream] = set()
        self._unchecked: list[Stream] = []
        self._closed = False
        self._to_end: list[Stream] = []
        self._end_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open_streams(self) -> int:
        """How many there are."""
        return len(self._streams)

    def open(self, principal: Principal, credential: HeaderMap | None, patience_s: float) -> Stream:
        """A stream that the caller is going to serve.

        Args:
            credential: The headers that the principal became known by, if any.
            patience_s: A write that takes longer ends with a call of the stream's ``drop``.

        Raises:
            Unavailable: Every place is taken, or the server is going down.
        """
        if self._closed:
            text = "No further stream is opened here: the server is drained or about to stop."
            raise Unavailable(text, retry_after_s=1)
        if len(self._streams) >= self._limit:
            raise Unavailable(
                "Every listen stream is taken.", retry_after_s=30, setting="limits.listen_streams"
            )
        if principal.issuer is None:
            if self._anonymous >= self._limit_anonymous():
                raise Unavailable(
                    "Every listen stream for callers without a credential is taken.",
                    retry_after_s=30,
                    setting="limits.listen_streams",
                )
            self._anonymous += 1
        stream = Stream(
            principal,
            credential,
            seen=self._look(principal),
            now=self._loop.time(),
            patience_s=patience_s,
        )
        self._streams.add(stream)
        # The hub has an edge of its own: that of the catalog moves on with whoever asks first.
        self._edge = min(self._edge, self._next_edge())
        if self._timer is None:
            self._schedule()
        return stream

    def close(self, stream: Stream) -> None:
        """The stream has ended."""
        self._streams.discard(stream)
        if stream.credential is None:
            self._anonymous -= 1

    def authenticated(self) -> list[Stream]:
        """The streams of callers with a credential."""
        return [stream for stream in self._streams if stream.credential is not None]

    def publish(self) -> None:
        """Tools, rules or keys have changed: tell those who find another list, and only them."""
        self._edge = math.inf
        idle = not self._unchecked
        self._unchecked = list(self._streams)
        if idle:
            self._check_some()

    def drain(self, within_s: float) -> None:
        """Accept no further stream, and let each end with its graceful result within this time.

        They end in the second half of it, one after another at equal distances, in random order.
        Earlier, a load balancer might not have noticed yet, and would send here again whoever comes
        back; and if all ended at once, all would come back at once.
        """
        self._closed = True
        self._to_end = list(self._streams)
        if within_s <= 0:
            self.shut_down()
        elif self._to_end:
            random.shuffle(self._to_end)
            step_s = within_s / 2 / len(self._to_end)
            self._end_at(self._loop.time() + within_s / 2, step_s)

    def _end_at(self, at: float, step_s: float) -> None:
        self._end_timer = self._loop.call_at(at, self._end_some, at, step_s)

    def _end_some(self, due: float, step_s: float) -> None:
        now = self._loop.time()
        while self._to_end and due <= now:
            stream = self._to_end.pop()
            if stream in self._streams:
                stream.end()
                due += step_s
        if self._to_end:
            self._end_at(due, step_s)

    def reopen(self) -> None:
        """It is drained no longer: streams that have not ended go on, and others may be opened."""
        self._forget_ends()
        self._closed = False

    def shut_down(self) -> None:
        """Let every stream end now with its graceful result, and accept no further one."""
        self._forget_ends()
        self._closed = True
        for stream in tuple(self._streams):
            stream.end()

    def _forget_ends(self) -> None:
        self._to_end = []
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def _check_some(self) -> None:
        """Look at listeners for a short while, and go on when others had their turn."""
        pause_at = self._loop.time() + CHECK_SLICE_S
        while self._unchecked:
            stream = self._unchecked.pop()
            try:
                self.check(stream, self._renew(stream.principal))
            except Exception:  # a bug of ours, which must not leave the others untold
                log.exception("listener_check_failed")
            if self._loop.time() > pause_at and self._unchecked:
                self._loop.call_soon(self._check_some)
                return

    def check(self, stream: Stream, principal: Principal | None) -> None:
        """Tell a listener if it finds another list, or end its stream.

        Args:
            principal: Who listens, as it is now; None: its credential counts no longer.
        """
        if stream.closing or stream.gone:
            return
        if principal is None:
            stream.refuse()
            return
        stream.principal = principal
        seen = self._look(principal)
        self._edge = min(self._edge, self._next_edge())
        if seen != stream.seen:
            stream.seen = seen
            stream.changed = True
            stream.wake()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(min(1.0, self._keep_alive_s / 4), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now, clock = self._loop.time(), self._clock()
        for stream in tuple(self._streams):
            expires_at = stream.principal.expires_at
            if expires_at is not None and clock >= expires_at:
                stream.refuse()
            if stream.writing_since is not None:
                if now - stream.writing_since > stream.patience_s and stream.drop is not None:
                    stream.drop()
            elif now - stream.quiet_since >= self._keep_alive_s * 0.9:
                stream.quiet = True
                stream.wake()
        if self._streams:
            self._schedule()
            if clock >= self._edge:
                self.publish()
        else:
            self._edge = math.inf
