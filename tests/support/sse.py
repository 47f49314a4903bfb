"""Reading `text/event-stream`, and holding it to the one form that every client reads."""

from dataclasses import dataclass
from typing import Any

from tests.support.http1 import BodyStream, strict_json
from tests.support.waiting import Deadline


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that starts with a colon: a sign of life."""

    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """One event; its data is one JSON message."""

    message: dict[str, Any]


class SseReader:
    """The items of one event stream.

    Every event must be one `data:` line of compact JSON (clients exist that read no more than
    that), with nothing but `event: message` beside it: no `id`, no `retry` on the modern wire.
    """

    def __init__(self, stream: BodyStream) -> None:
        self._stream = stream
        self._text = b""
        self.raw = b""

    def next(
        self, timeout_s: float = 10.0, *, deadline: Deadline | None = None
    ) -> Comment | Event | None:
        """The next comment or event; None at the end of the stream.

        Raises:
            ConnectionEndedError: the connection broke within the body.
            AssertionError: nothing came in time, or it has another form than the one we send.
        """
        deadline = deadline or Deadline(timeout_s)
        while b"\n\n" not in self._terminated():
            data = self._stream.read(deadline)
            if not data:
                assert not self._text, f"the stream ends within an item: {self._text!r}"
                return None
            self._text += data
            self.raw += data
        block, _, self._text = self._terminated().partition(b"\n\n")
        return self._item(block)

    def _terminated(self) -> bytes:
        # Either terminator is fine, but one of them: the raw bytes are checked at the end.
        return self._text.replace(b"\r\n", b"\n")

    def _item(self, block: bytes) -> Comment | Event:
        lines = block.split(b"\n")
        if all(line.startswith(b":") for line in lines):
            return Comment("\n".join(line[1:].decode("utf-8").strip() for line in lines))
        data = [line for line in lines if line.startswith(b"data:")]
        rest = [line for line in lines if not line.startswith(b"data:")]
        assert len(data) == 1, f"an event has one data line: {block[:300]!r}"
        assert all(line == b"event: message" for line in rest), f"fields of an event: {rest}"
        message = strict_json(data[0].removeprefix(b"data:").removeprefix(b" "))
        assert isinstance(message, dict), message
        return Event(message)

    def next_message(self, timeout_s: float = 10.0) -> dict[str, Any] | None:
        """The next message, comments left out; None at the end of the stream."""
        deadline = Deadline(timeout_s)
        while True:
            item = self.next(deadline=deadline)
            if not isinstance(item, Comment):
                return None if item is None else item.message

    def next_comment(self, timeout_s: float = 10.0) -> Comment:
        """The next item, which must be a comment."""
        item = self.next(timeout_s)
        assert isinstance(item, Comment), f"not a comment: {item}"
        return item

    def rest(self, timeout_s: float = 10.0) -> list[dict[str, Any]]:
        """All messages until the end of the stream."""
        deadline, found = Deadline(timeout_s), []
        while (message := self.next_message(deadline.remaining_s)) is not None:
            found.append(message)
        return found

    def assert_one_terminator(self) -> None:
        """The bytes used one line terminator, not a mixture."""
        windows = self.raw.count(b"\r\n")
        assert windows in (0, self.raw.count(b"\n")), "mixed line terminators"
        assert self.raw.count(b"\r") == windows, "a bare carriage return"
