"""Notices that a client has gone, in JSON mode too (Cancellation), and lets go of slow ones."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.http.exchange import Exchange
from app.http.responses import Client, Receive

SLOW_READER_S: Final = 20.0
"""A client that has not taken a message of a stream for this long is dropped."""


def watched(exchange: Exchange, on_gone: Callable[[], None]) -> Client:
    """Watch the client of a request, until ``on_disconnect(None)``.

    Under our own server this costs nothing; under any other a task waits for the message.

    Args:
        on_gone: Called once if the client disconnects before that.
    """
    client = exchange.connection or _AsgiClient(exchange.receive)
    client.on_disconnect(on_gone)
    return client


class _AsgiClient:
    """A client of which a message tells that it has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._owner = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        if self._task is not None:
            self._task.cancel()
        if callback is not None:
            self._task = asyncio.create_task(_wait(self._receive, callback))

    def abort(self) -> None:
        if self._owner is not None:
            self._owner.cancel()


async def _wait(receive: Receive, on_gone: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    on_gone()
