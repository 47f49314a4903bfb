"""Notices that a client has gone, in JSON mode too (Cancellation), and lets go of slow ones."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.http.responses import ClientConnection, Receive

SLOW_READER_S: Final = 20.0
"""A client that has not taken a message of a stream for this long is dropped."""


class Watch:
    """Watches the client of one request.

    Under our own server this costs nothing; under any other a task waits for the message.

    Args:
        on_gone: Called once if the client disconnects before ``stop``.
    """

    __slots__ = ("_connection", "_owner", "_task")

    def __init__(
        self,
        connection: ClientConnection | None,
        receive: Receive,
        on_gone: Callable[[], None],
    ) -> None:
        self._task: asyncio.Task[None] | None = None
        self._connection = connection
        if connection is not None:
            connection.on_disconnect(on_gone)
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
