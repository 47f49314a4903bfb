"""From the first line of the client to the end of the process."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from app.stdio.channel import STUCK, Channel
from app.stdio.door import Door

GRACE_S: Final = 1.0
"""What running calls get when the client closes its end. Clients wait about twice as long before
they send SIGTERM, and what is left has to be closed too."""

FLUSH_S: Final = 0.5

log = structlog.get_logger()


async def serve(
    channel: Channel, door: Door, *, give_up: Callable[[], None], stop: asyncio.Event
) -> bool:
    """Serve until the client's end of input, or ``stop``. False: the client stopped reading.

    Args:
        give_up: Stops running calls, so that they answer.
        stop: Set on a signal.
    """
    reading = asyncio.create_task(door.read(), name="read")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    ends: set[asyncio.Future[Any]] = {reading, stopping, channel.lost}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    stopping.cancel()
    ended, _ = await asyncio.gather(reading, stopping, return_exceptions=True)
    if isinstance(ended, Exception):
        log.error("reading_failed", exc_info=ended)
    is_stuck = channel.lost.done() and channel.lost.result() == STUCK
    if is_stuck:
        log.error("client_does_not_read", after_s=channel.patience_s)
    # To a client that has gone nothing can be said, so nothing is worth waiting for.
    await door.finish(0 if channel.lost.done() else GRACE_S, give_up)
    await channel.flush(FLUSH_S)
    return not is_stuck
