"""Notices that a client has gone, in JSON mode too (Cancellation)."""

import asyncio
from collections.abc import Callable

from app.http.responses import Receive, Scope

DISCONNECT_EXTENSION = "mcp-tool-server.disconnect"
"""ASGI extension of our own server: registers a callback, so that no task has to wait."""


def watch_disconnect(
    scope: Scope, receive: Receive, callback: Callable[[], None]
) -> Callable[[], None]:
    """Call back once when the client disconnects. Returns a function that stops watching.

    Under our own server this costs nothing; under any other a task waits for the message.
    """
    register = scope.get("extensions", {}).get(DISCONNECT_EXTENSION)
    if register is not None:
        register(callback)
        return _unregister(register)
    task = asyncio.create_task(_wait(receive, callback))
    return lambda: _cancel(task)


def _unregister(register: Callable[[Callable[[], None] | None], None]) -> Callable[[], None]:
    return lambda: register(None)


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()


async def _wait(receive: Receive, callback: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    callback()
