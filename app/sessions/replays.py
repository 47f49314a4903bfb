"""Streams that a client can come back to (2025-11-25, Streamable HTTP, "Resumability").

The events of a call's stream are kept in memory while its client reads. When the client goes, or
is sent away, they are written to the store, and what comes later too; so the client finds them on
any replica. An id names a stream and a place in it; only the session of the stream can use it.
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple

import structlog

from app.protocol.jsonrpc import canonical, dumps, loads
from app.sessions.tokens import Session
from app.state.interface import Bus, Store, StoreUnavailable

ATTACH_TOPIC: Final = "legacy-attach"
MAX_EVENTS: Final = 256
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of one stream; beyond either the oldest events are forgotten, but for the last one."""

LOOK_S: Final = 1.0
"""How often a stream is looked at of which nothing is heard."""

OWNER_S: Final = 2.0
"""How long the replica that has a stream may take to write it down."""

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
        is_detached: Whether nobody reads it here any more.
    """

    def __init__(self, replays: "Replays", session: Session) -> None:
        self.id = secrets.token_hex(16)
        self.name = _name(session, self.id)
        self.is_detached = False
        self.on_detach: Callable[[], None] | None = None
        self._replays = replays
        self._events: list[tuple[int, bytes]] = []
        self._size = 0
        self._number = 0
        self._is_done = False

    @property
    def first_id(self) -> str:
        """Id of the place before all events."""
        return f"{self.id}.0"

    def add(self, message: bytes) -> str:
        """Keep a message; returns the id of its event."""
        self._number += 1
        self._events.append((self._number, message))
        self._size += len(message)
        while len(self._events) > 1 and (len(self._events) > MAX_EVENTS or self._size > MAX_BYTES):
            _, dropped = self._events.pop(0)
            self._size -= len(dropped)
        return f"{self.id}.{self._number}"

    def finish(self) -> None:
        """Nothing more will come."""
        self._is_done = True

    def detach(self) -> None:
        """Let go of who reads it here."""
        if not self.is_detached:
            self.is_detached = True
            if self.on_detach is not None:
                self.on_detach()

    async def write(self) -> None:
        """Write down what there is, for whoever comes back."""
        events = [[number, message.decode()] for number, message in self._events]
        await self._replays.write(self.name, dumps([self._is_done, events]))


class Replays:
    """The streams of one process that a client can come back to.

    Args:
        ttl_s: How long that is.
    """

    def __init__(self, store: Store, bus: Bus, *, ttl_s: float) -> None:
        self._store = store
        self._bus = bus
        self._ttl_s = ttl_s
        self._live: dict[str, Recording] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe = bus.subscribe(ATTACH_TOPIC, self._hear_attach)

    def begin(self, session: Session) -> Recording:
        """A stream that begins; ``end`` must be called."""
        recording = Recording(self, session)
        self._live[recording.name] = recording
        return recording

    def end(self, recording: Recording) -> None:
        """Nothing more comes of a stream."""
        self._live.pop(recording.name, None)

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on whose client has gone."""
        task = asyncio.create_task(work, name="follow a stream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """The server ends."""
        self._unsubscribe()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def write(self, name: str, value: bytes) -> None:
        """Keep a stream, and tell who waits for more of it."""
        try:
            await self._store.set(name, value, ttl_s=self._ttl_s)
            await self._bus.publish(name, b"")
        except StoreUnavailable as error:
            # The client finds nothing and makes its request again.
            log.warning("stream_not_kept", problem=str(error))

    async def events(
        self, session: Session, place: Place
    ) -> AsyncIterator[tuple[str, bytes] | None]:
        """The events after a place, until there are no more; None now and then, while none comes.

        Nothing at all where there is no such stream: it has expired, or is another session's.
        """
        name = _name(session, place.stream)
        news = asyncio.Event()
        unsubscribe = self._bus.subscribe(name, lambda _: news.set())
        try:
            found = await self._first(name, news)
            last = place.number
            while found is not None:
                is_done, events = loads(found)
                for number, message in events:
                    if number > last:
                        last = number
                        yield f"{place.stream}.{number}", message.encode()
                if is_done:
                    return
                if not await _heard(news, LOOK_S):
                    yield None
                news.clear()
                found = await self._store.get(name)
        except StoreUnavailable:
            return
        finally:
            unsubscribe()

    async def _first(self, name: str, news: asyncio.Event) -> bytes | None:
        """What is kept of a stream. Whoever still has it is asked to write it down first."""
        await self._bus.publish(ATTACH_TOPIC, name.encode())
        found = await self._store.get(name)
        if found is None and await _heard(news, OWNER_S if name in self._live else 0.2):
            found = await self._store.get(name)
        news.clear()
        return found

    def _hear_attach(self, message: bytes) -> None:
        recording = self._live.get(message.decode())
        if recording is not None:
            recording.detach()


async def _heard(news: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _name(session: Session, stream: str) -> str:
    return "replay:" + hashlib.sha256(canonical([session.id, stream])).hexdigest()
