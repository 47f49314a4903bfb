"""What the revisions that begin with `initialize` get from the door, and what it does for them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import orjson
import pytest

from app.auth.authenticator import Authenticator
from app.methods.answers import Sender
from app.methods.router import Router
from app.methods.subscriptions import Hub
from app.protocol.errors import InvalidParams
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Notification, Response
from app.protocol.jsonrpc import Batch, Message, result_response
from app.protocol.messages import ServerMessages
from app.settings import Settings
from app.stdio.channel import Channel
from app.stdio.door import Door
from app.stdio.flight import Flight
from tests.support.client import body_of, encode

WAIT_S = 5.0


class Old:
    """A revision with three methods: one answers, one refuses, one waits for a notification."""

    def __init__(self) -> None:
        self.told: list[Notification | Response] = []
        self.released = asyncio.Event()
        self.log: list[str] = []

    def request(
        self, message: Message, sender: Sender, flight: Flight, *, in_batch: bool
    ) -> Coroutine[Any, Any, None] | None:
        assert message.id is not None and sender.headers is None and not in_batch
        if message.method == "refuse":
            raise InvalidParams("No.")
        if message.method == "wait":
            return self._wait(message, flight.send)
        flight.send(result_response(message.id, b"{}"))
        return None

    async def _wait(self, message: Message, send: Callable[[bytes], None]) -> None:
        assert message.id is not None
        send(b'{"jsonrpc":"2.0","id":"question","method":"roots/list"}')
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            send(result_response(message.id, b'{"late":true}'))
            raise
        send(result_response(message.id, b"{}"))

    def batch(self, values: Sequence[Any]) -> Batch:
        raise AssertionError(f"no test sends one: {values}")

    def tell(self, message: Notification | Response) -> None:
        self.told.append(message)
        if isinstance(message, Response):
            self.released.set()


class Desk(NamedTuple):
    door: Door
    old: Old
    channel: Channel
    output: int

    async def said(self) -> list[dict[str, Any]]:
        """What was written since the last time."""
        await self.channel.flush(WAIT_S)
        os.set_blocking(self.output, False)
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            data = b""
        return [orjson.loads(line) for line in data.splitlines()]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    source, from_client = os.pipe()
    output, sink = os.pipe()
    hub = Hub(
        limit=1,
        limit_anonymous=lambda: 1,
        keep_alive_s=15,
        look=lambda _: "",
        renew=lambda principal: principal,
        next_edge=lambda: 0,
        clock=lambda: 0,
    )
    channel = Channel(source, sink, max_line_bytes=1000)
    old, authenticator = Old(), Authenticator(Settings())
    door = Door(
        channel,
        Router({}),
        hub,
        ServerMessages({"name": "test", "version": "1"}),
        authenticator=lambda: authenticator,
        credential=HeaderMap(()),
        max_line_bytes=1000,
        legacy=old,
    )
    yield Desk(door, old, channel, output)
    for descriptor in (source, from_client, output, sink):
        os.close(descriptor)


def old(method: str, id: Any = 1) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "method": method})


async def turns() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_request_without_a_version_is_passed_on(desk: Desk) -> None:
    desk.door.take(old("initialize"))
    desk.door.take(old("refuse", 2))
    desk.door.take(encode(body_of("tools/list", id=3)))

    said = await desk.said()
    assert said[0] == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (said[1]["id"], said[1]["error"]["code"]) == (2, -32602)
    assert said[2]["error"]["code"] == -32601  # that one is modern, and this router is empty
    assert desk.old.told == []


async def test_answers_of_the_client_are_passed_on(desk: Desk) -> None:
    desk.door.take(old("wait"))
    await turns()
    (question,) = await desk.said()
    assert question["method"] == "roots/list"
    desk.door.take(encode({"jsonrpc": "2.0", "id": "question", "result": {"roots": []}}))
    await turns()

    assert [message["id"] for message in await desk.said()] == [1]
    (answer,) = desk.old.told
    assert isinstance(answer, Response)
    assert answer.message["result"] == {"roots": []}


async def test_a_cancelled_request_says_nothing_more(desk: Desk) -> None:
    desk.door.take(old("wait"))
    await turns()
    await desk.said()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    desk.door.take(encode(cancel))
    await turns()

    assert desk.old.log == ["cancelled"]
    assert await desk.said() == []
    assert [type(message) for message in desk.old.told] == [Notification]


async def test_one_id_is_under_way_once_whatever_the_era(desk: Desk) -> None:
    desk.door.take(old("wait", "same"))
    desk.door.take(encode(body_of("server/discover", id="same")))
    await turns()

    said = await desk.said()
    assert [message.get("error", {}).get("code") for message in said] == [-32600, None]
    desk.old.released.set()
    await desk.door.finish(WAIT_S, lambda: None)
    assert [message["id"] for message in await desk.said()] == ["same"]


async def test_notifications_are_passed_on(desk: Desk) -> None:
    desk.door.take(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    assert desk.old.told == [Notification("notifications/initialized")]
