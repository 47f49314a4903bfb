"""Streams that a client can come back to (2025-11-25, Streamable HTTP, "Resumability").

The events of a call's stream are kept in memory while its client reads. When the client goes, or
is sent away, they are written to the store, and what comes later too; so the client finds them on
any replica. An id names a stream and a place in it; only the session of the stream can use it.
"""

import asyncio
import hashlib
import math
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, NamedTuple

import structlog

from app.principal import Principal
from app.protocol.jsonrpc import canonical, dumps, loads
from app.sessions.tokens import Session
from app.state.interface import Bus, Store, StoreUnavailable
from app.toolkit.handles import owner_of

ATTACH_TOPIC: Final = "legacy-attach"
MAX_EVENTS: Final = 256
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of one stream; beyond either the oldest events are forgotten, but for the last one."""

MAX_LIVE_BYTES: Final = 64 * 1024 * 1024
"""Of all streams of one process that go on; beyond it a stream that grows forgets likewise."""

LOOK_S: Final = 0.5
"""How often a stream is looked at of which nothing is heard."""

OWNER_S: Final = 2.0
"""How long the replica that has a stream may take to write it down."""

WRITE_S: Final = 0.25
"""A stream that goes on is written down no more often than this."""

CLOSE_S: Final = 1.0
"""How long streams that go on without their clients have for their last words."""

DELIVERED_TTL_S: Final = 60.0
"""How long a stream is kept of which everything was sent: it may be lost on its way."""

_ID: Final = re.compile(r"([0-9a-f]{32})\.([0-9]{1,9})\Z")

log = structlog.get_logger()


class Place(NamedTuple):
    """What ``Last-Event-ID`` says."""

    stream: str
    number: int


def place_of(event_id: str) -> Place | None:
    """The place that an event id names; None: it is none of ours."""
    found = _ID.match(event_id)
    return Place(found[1], int(found[2])) if found is not None else None


class Recording:
    """The events of one stream.

    Attributes:
        id: Of the stream.
        on_attach: Called when the client has come back for it, perhaps elsewhere.
        is_known: Whether the client was told the id: nobody asks for what it does not know.
        size: Bytes of the messages that are kept.
    """

    def __init__(self, replays: "Replays", session: Session, principal: Principal) -> None:
        self.id = secrets.token_hex(16)
        self.name = _name(session, self.id)
        self.on_attach: Callable[[], None] | None = None
        self.is_known = False
        self._owner = owner_of(principal.identity)
        self._replays = replays
        self._events: list[tuple[int, bytes]] = []
        self.size = 0
        self._number = 0
        self._is_done = False
        self._has_news = True
        self._written_at = -math.inf

    @property
    def first_id(self) -> str:
        """Id of the place before all events."""
        return f"{self.id}.0"

    @property
    def write_at(self) -> float:
        """When a stream that nobody reads here is to be written down again: an instant of
        ``loop.time()``. What has no news is written as well, before it expires.
        """
        return self._written_at + (WRITE_S if self._has_news else self._replays.ttl_s / 2)

    def add(self, message: bytes) -> str:
        """Keep a message; returns the id of its event."""
        self._has_news = True
        self._number += 1
        self._events.append((self._number, message))
        self.size += len(message)
        self._replays.live_bytes += len(message)
        while len(self._events) > 1 and self._is_too_much():
            _, dropped = self._events.pop(0)
            self.size -= len(dropped)
            self._replays.live_bytes -= len(dropped)
        return f"{self.id}.{self._number}"

    def _is_too_much(self) -> bool:
        return (
            len(self._events) > MAX_EVENTS
            or self.size > MAX_BYTES
            or self._replays.live_bytes > MAX_LIVE_BYTES
        )

    def finish(self) -> None:
        """Nothing more will come."""
        self._is_done = True

    def attach(self) -> None:
        """Somebody asks for it: let go of who reads it here, and write it down."""
        self._has_news = True
        if self.on_attach is not None:
            self.on_attach()

    async def write(self, *, is_delivered: bool = False) -> None:
        """Write down what there is, for whoever comes back.

        Args:
            is_delivered: It is being sent to the end, and hardly anybody will ask for it.
        """
        self._has_news = False
        self._written_at = asyncio.get_running_loop().time()
        events = [[number, message.decode()] for number, message in self._events]
        ttl_s = self._replays.ttl_s
        await self._replays.write(
            self.name,
            dumps([self._is_done, events]),
            ttl_s=min(ttl_s, DELIVERED_TTL_S) if is_delivered else ttl_s,
            owner=self._owner,
        )


class Replays:
    """The streams of one process that a client can come back to.

    Args:
        store: Holds nothing else: what callers fill must not push out sessions.
        ttl_s: How long that is.

    Attributes:
        live_bytes: What the streams that go on hold in memory.
    """

    def __init__(self, store: Store, bus: Bus, *, ttl_s: float) -> None:
        self._store = store
        self._bus = bus
        self.ttl_s = ttl_s
        self.live_bytes = 0
        self._is_closed = False
        self._live: dict[str, Recording] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe = bus.subscribe(ATTACH_TOPIC, self._hear_attach)

    def begin(self, session: Session, principal: Principal) -> Recording:
        """A stream that begins; ``end`` must be called.

        Nothing is written down yet: most streams are read to their end, and a note that there is
        one would cost a write for each. Who comes back asks every replica instead.
        """
        recording = Recording(self, session, principal)
        self._live[recording.name] = recording
        return recording

    def end(self, recording: Recording) -> None:
        """Nothing more comes of a stream."""
        recording.on_attach = None  # it leads back to whoever has the recording
        if self._live.pop(recording.name, None) is not None:
            self.live_bytes -= recording.size

    def follow(self, work: Coroutine[Any, Any, None]) -> bool:
        """Let something go on whose client has gone. False: it is too late for that."""
        if self._is_closed:
            work.close()
            return False
        task = asyncio.create_task(work, name="follow a stream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """The server ends: what goes on is written down as it is, within a moment."""
        self._is_closed = True
        self._unsubscribe()
        for recording in tuple(self._live.values()):
            recording.attach()
        tasks = tuple(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def write(self, name: str, value: bytes, *, ttl_s: float, owner: str) -> None:
        """Keep a stream, and tell who waits for more of it."""
        try:
            async with asyncio.timeout(OWNER_S):
                await self._store.set(name, value, ttl_s=ttl_s, owner=owner)
                await self._bus.publish(name, b"")
        except (StoreUnavailable, TimeoutError) as error:
            # The client finds nothing and makes its request again.
            log.warning("stream_not_kept", problem=str(error) or "the store does not answer")

    async def events(
        self, session: Session, place: Place
    ) -> AsyncGenerator[tuple[str, bytes] | None, None]:
        """The events after a place, until there are no more; None now and then, while none comes.

        Nothing at all where there is no such stream: it has expired, or is another session's.
        """
        name = _name(session, place.stream)
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        unsubscribe = self._bus.subscribe(name, lambda _: news.set())
        give_up_at = loop.time() + OWNER_S
        try:
            last = place.number
            found: bytes | None = None
            while True:
                if found is None:
                    # Again at each look: a bus may lose a message, or be joined late.
                    await self._bus.publish(ATTACH_TOPIC, name.encode())
                before, found = found, await self._store.get(name)
                if found is not None:
                    is_done, events = loads(found)
                    for number, message in events:
                        if number > last:
                            last = number
                            yield f"{place.stream}.{number}", message.encode()
                    if is_done:
                        return
                elif before is not None or loop.time() >= give_up_at:
                    return
                if not await _heard(news, LOOK_S):
                    yield None
                news.clear()
        except StoreUnavailable:
            return
        finally:
            unsubscribe()

    def _hear_attach(self, message: bytes) -> None:
        recording = self._live.get(message.decode("utf-8", "replace"))
        if recording is not None:
            recording.attach()


async def _heard(news: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _name(session: Session, stream: str) -> str:
    return "replay:" + hashlib.sha256(canonical([session.id, stream])).hexdigest()
