"""``subscriptions/listen``: who wants to be told of what (Subscriptions)."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.methods.answers import Subscription
from app.principal import Principal
from app.protocol.errors import InvalidParams, Unavailable
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Call

TOOLS_LIST_CHANGED: Final = "toolsListChanged"
_FLAGS: Final = (TOOLS_LIST_CHANGED, "promptsListChanged", "resourcesListChanged")


class Listen:
    """Checks a filter and narrows it to what can be told.

    Args:
        tools_change: Whether changes of tools are noticed at all.
    """

    def __init__(self, *, tools_change: bool) -> None:
        self._served = (TOOLS_LIST_CHANGED,) if tools_change else ()

    def __call__(self, call: Call, principal: Principal, headers: HeaderMap | None) -> Subscription:
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
        drop: Lets go of a client that does not read.
        writing_since: When the write under way began; None between writes.
    """

    __slots__ = (
        "_waiter",
        "changed",
        "closing",
        "drop",
        "gone",
        "patience_s",
        "quiet",
        "quiet_since",
        "writing_since",
    )

    def __init__(self, now: float, patience_s: float) -> None:
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
        keep_alive_s: A quiet stream is woken this often.
    """

    def __init__(self, *, limit: int, keep_alive_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._keep_alive_s = keep_alive_s
        self._streams: set[Stream] = set()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def open(self, patience_s: float) -> Stream:
        """A stream that the caller is going to serve.

        Args:
            patience_s: A write that takes longer ends with a call of the stream's ``drop``.

        Raises:
            Unavailable: Every place is taken, or the server is going down.
        """
        if self._closed:
            raise Unavailable("The server is shutting down.", retry_after_s=1)
        if len(self._streams) >= self._limit:
            raise Unavailable("Every listen stream is taken.", retry_after_s=30)
        stream = Stream(self._loop.time(), patience_s)
        self._streams.add(stream)
        if self._timer is None:
            self._schedule()
        return stream

    def close(self, stream: Stream) -> None:
        """The stream has ended."""
        self._streams.discard(stream)

    def publish(self) -> None:
        """Tell every listener that the list of tools has changed."""
        for stream in tuple(self._streams):
            stream.changed = True
            stream.wake()

    def shut_down(self) -> None:
        """Let every stream end with its graceful result, and accept no further one."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.closing = True
            stream.wake()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(min(1.0, self._keep_alive_s / 4), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        for stream in tuple(self._streams):
            if stream.writing_since is not None:
                if now - stream.writing_since > stream.patience_s and stream.drop is not None:
                    stream.drop()
            elif now - stream.quiet_since >= self._keep_alive_s * 0.9:
                stream.quiet = True
                stream.wake()
        if self._streams:
            self._schedule()
