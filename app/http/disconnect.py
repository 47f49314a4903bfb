"""Notices that a client has gone, in JSON mode too (Cancellation), and lets go of slow ones."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from app.http.responses import CONNECTION_EXTENSION, Headers, Receive, Scope

SLOW_READER_S: Final = 20.0
"""A client that has not taken a message of a stream for this long is dropped."""


class ClientConnection(Protocol):
    """What our own server offers the application beyond ASGI."""

    refused: bool
    """Whether the request was refused without the application."""

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call back once when the client goes; None takes the callback away."""

    def abort(self) -> None:
        """Drop the client without a word; what waits to be written is thrown away."""

    def respond(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write a whole response at once. False: not now, send it in ASGI's way."""


class Watch:
    """Watches the client of one request.

    Under our own server this costs nothing; under any other a task waits for the message.

    Args:
        on_gone: Called once if the client disconnects before ``stop``.
    """

    __slots__ = ("_connection", "_owner", "_task")

    def __init__(self, scope: Scope, receive: Receive, on_gone: Callable[[], None]) -> None:
        self._task: asyncio.Task[None] | None = None
        self._connection: ClientConnection | None = scope.get("extensions", {}).get(
            CONNECTION_EXTENSION
        )
        if self._connection is not None:
            self._connection.on_disconnect(on_gone)
        else:
            self._owner = asyncio.current_task()
            self._task = asyncio.create_task(_wait(receive, on_gone))

    def stop(self) -> None:
        """The response is complete, or nobody cares any more."""
        if self._connection is not None:
            self._connection.on_disconnect(None)
        elif self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Drop the client, which does not read."""
        if self._connection is not None:
            self._connection.abort()
        elif self._owner is not None:
            self._owner.cancel()


async def _wait(receive: Receive, on_gone: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    on_gone()
