"""What a handler can answer a request with."""

from collections.abc import Sequence
from typing import NamedTuple

from app.execution.execution import Execution


class Reply(NamedTuple):
    """An answer that is ready.

    Attributes:
        result: The encoded result object.
        outcome: For the log; see ``execution.Outcome``.
    """

    result: bytes
    outcome: str = "ok"


class Subscription(NamedTuple):
    """A request to be told of changes.

    Attributes:
        kinds: What the server agreed to tell of; empty if nothing was.
    """

    kinds: Sequence[str]


Answer = Reply | Execution | Subscription
