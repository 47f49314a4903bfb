"""Requests of the client that have not been answered yet."""

import asyncio
from collections.abc import Callable
from typing import Any

from app.methods.record import RequestRecord
from app.protocol.errors import ProtocolError
from app.protocol.jsonrpc import error_response
from app.protocol.schema import RequestId


class Flight:
    """One request between its line and its answer.

    Attributes:
        record: What the log line will say.
        task: What is waited for; None: it was answered at once, or is about to be.
        is_cancelled: The client wants no answer, so nothing more is sent.
    """

    __slots__ = ("_put", "id", "is_cancelled", "record", "task")

    def __init__(self, id: RequestId, method: str, put: Callable[[bytes], None]) -> None:
        self.id = id
        self.record = RequestRecord()
        self.record.id, self.record.method = id, method
        self.task: asyncio.Task[Any] | None = None
        self.is_cancelled = False
        self._put = put

    def send(self, message: bytes) -> None:
        """Send something that belongs to this request (stdio, "Cancellation")."""
        if not self.is_cancelled:
            self._put(message)

    def refuse(self, error: ProtocolError) -> None:
        """Answer with an error."""
        self.record.refused(error)
        self.send(error_response(self.id, error))

    def cancel(self) -> None:
        """The client wants no answer."""
        self.is_cancelled = True
        self.record.outcome = "cancelled"
        if self.task is not None:
            # Not at once: a task that is cancelled before its first step never runs, and the
            # coroutine that it was to await is lost with whatever it holds.
            self.task.get_loop().call_soon(self.task.cancel)


class Together:
    """Collects the answers to a batch, which are sent as one array when the last one is there.

    Args:
        put: Takes the array. Where no request of the batch gets an answer, there is none.
    """

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._answers: list[bytes] = []
        self._open = 1

    def add(self, answer: bytes) -> None:
        """One answer."""
        self._answers.append(answer)

    def wait_for(self, task: asyncio.Task[None]) -> None:
        """There may be an answer until this has ended."""
        self._open += 1
        task.add_done_callback(lambda _: self.close())

    def close(self) -> None:
        """One that was waited for has ended, or every request has begun."""
        self._open -= 1
        if not self._open and self._answers:
            self._put(b"[%b]" % b",".join(self._answers))
