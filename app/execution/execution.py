"""A running call: what it has said, how it ended, and who waits for it."""

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from app.execution.asking import Asking, Desk
from app.execution.manner import Manner
from app.observability.metrics import NOTIFICATIONS
from app.observability.spans import RunSpan
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call
from app.protocol.messages import log_message, progress
from app.protocol.schema import LOG_LEVELS
from app.registry.tool import Tool
from app.toolkit.handles import Handles

MAX_PENDING: Final = 64
"""Notifications that wait to be sent; beyond that, progress is coalesced and logs are dropped."""

MAX_PENDING_BYTES: Final = 1024 * 1024

BURST: Final = 32
INTERVAL_S: Final = 0.05
"""After a burst of progress values, one in this time is sent: the newest."""


AS_IT_IS: Final = Manner(cleans=False)


class Surroundings(NamedTuple):
    """What all calls of a server have in common.

    Attributes:
        thread: Of the loop, by its identity.
        leave: Stops the work when nobody waits for it any more.
        desk: For tools that ask; None: they cannot.
        manner: Changes what tools say.
    """

    loop: asyncio.AbstractEventLoop
    thread: int
    leave: Callable[["Execution"], None]
    desk: Desk | None = None
    manner: Manner = AS_IT_IS


_Progress = tuple[float, bytes]
"""A value and its encoded notification."""


class Outcome:
    """How a call ended, for logs and metrics; not an Enum, whose members are slow to look up."""

    OK: Final = "ok"
    INPUT_REQUIRED: Final = "input_required"
    TOOL_ERROR: Final = "tool_error"
    TIMEOUT: Final = "timeout"
    CANCELLED: Final = "cancelled"
    INTERNAL_ERROR: Final = "internal_error"


class Leavable(Protocol):
    """What stands around the runs of a call (``app.execution.course``).

    Attributes:
        is_course: Whether it takes room of its own.
    """

    is_course: bool

    def leave(self) -> bool:
        """Stop: nobody waits any more. Says whether a run of the tool's code is under way."""
        ...


class Ending(NamedTuple):
    """How one run of a tool's code ended.

    Attributes:
        is_draft: Whether ``result`` is for the hooks.
        passing_s: It failed for a reason that may have passed after so many seconds; None: it did
            not, or there is no hope of that.
        error_id: What a generic error tells the caller, for the log.
    """

    result: bytes
    outcome: str
    is_draft: bool = False
    passing_s: float | None = None
    error_id: str | None = None


class Execution:
    """One call of one tool. Every method but ``progress`` and ``log`` belongs to the event loop.

    Args:
        timeout_s: Time until the deadline.

    Attributes:
        deadline: Instant of ``loop.time()``.
        wake_at: When whoever waits wants to be woken at the latest.
        ended_with: The encoded result object once it ended, else None.
        result: The same once it may be sent: where the end is put on record, when that is done.
        is_started: Whether the code of an asynchronous tool has begun to run.
        headers: Response headers that repeat the mirrored parameters.
        asking: The tool's questions; None while it has not asked anything.
        begin_asking: Makes them, where they are not asked in results.
        error_id: What a generic error told the caller, for the log.
        attempt: The number of the last run of the tool's code; 0: it did not run.
        content_types: Of the result, where they are known without a look at it.
        cached: ``hit`` or ``miss`` where kept results were looked at, ``repeated`` for the
            outcome of an earlier call with the same key; None: nothing was looked for.
        refusal: The call cannot be answered with a result; None: it can.
        is_draft: Whether what the tool returns goes through hooks.
        run_ended: Told how a run of the tool's code ended; None: then the call has ended.
        pauses: How many of its questions wait for a person.
        on_pause: Told when the first question begins to wait.
        left_s: What was left until the deadline when the first of them began to wait.
        course: Stops what stands around the runs when nobody waits any more, if anything does.
        rule: The label of the rule that allowed it.
        run_span: Of the run of the tool's code that is under way; None: nobody records it.
    """

    __slots__ = (
        "_call",
        "_coalesced",
        "_last_progress",
        "_level",
        "_logs_under_way",
        "_loop",
        "_next_progress_at",
        "_of_thread",
        "_on_end",
        "_pending",
        "_pending_bytes",
        "_principal",
        "_progress_count",
        "_scheduled",
        "_surroundings",
        "_token",
        "_waiter",
        "asking",
        "attempt",
        "begin_asking",
        "cached",
        "cancelled",
        "content_types",
        "course",
        "deadline",
        "ended_with",
        "error_id",
        "headers",
        "is_draft",
        "is_started",
        "left_s",
        "on_pause",
        "outcome",
        "pauses",
        "refusal",
        "result",
        "rule",
        "run_ended",
        "run_span",
        "timeout_s",
        "tool",
        "wake_at",
        "work",
    )

    def __init__(
        self,
        tool: Tool,
        call: Call,
        surroundings: Surroundings,
        timeout_s: float,
        principal: Principal = ANONYMOUS,
    ) -> None:
        loop = surroundings.loop
        self.tool = tool
        self.asking: Asking | None = None
        self.begin_asking: Callable[[Execution], Asking] | None = None
        self._surroundings = surroundings
        self._call = call
        self._principal = principal
        self.work: Any = None
        self.timeout_s = timeout_s
        self.deadline = loop.time() + timeout_s
        self._loop = loop
        self._token = call.meta.progress_token
        level = call.meta.log_level
        self._level = None if level is None else LOG_LEVELS.index(level)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._last_progress: float = -math.inf
        self._progress_count = 0
        self._next_progress_at = 0.0
        self._coalesced: bytes | None = None
        self._of_thread: _Progress | None = None
        self._scheduled = False
        self._logs_under_way = 0
        self._waiter: asyncio.Future[None] | None = None
        self.wake_at = math.inf
        self.cancelled = False
        self.is_started = False
        self.ended_with: bytes | None = None
        self.result: bytes | None = None
        self.outcome: str = Outcome.OK
        self.error_id: str | None = None
        self.attempt = 0
        self.cached: str | None = None
        self.content_types: Sequence[str] | None = None
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        self.refusal: ProtocolError | None = None
        self.is_draft = False
        self.pauses = 0
        self.left_s = 0.0
        self.on_pause: Callable[[], None] | None = None
        self.run_ended: Callable[[Ending], None] | None = None
        self.course: Leavable | None = None
        self.rule: str | None = None
        self._on_end: Callable[[Execution], bool] | None = None
        self.run_span: RunSpan | None = None

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """Who calls."""
        return self._principal.identity

    # What the door that carries the answer uses.

    def time(self) -> float:
        """The present instant of ``loop.time()``."""
        return self._loop.time()

    async def wait(self, until: float = math.inf) -> None:
        """Return when the call ended, has something to say, or soon after ``until``.

        Args:
            until: Instant of ``loop.time()``.
        """
        if self.result is None and not self.cancelled and not self._pending:
            self.wake_at = until
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    @property
    def has_notifications(self) -> bool:
        return bool(self._pending)

    def take_notifications(self) -> list[bytes]:
        """What the tool has said since the last time, encoded."""
        taken, self._pending = self._pending, []
        self._pending_bytes = 0
        return taken

    def cancel(self) -> None:
        """The caller has gone: stop the work as soon as practical and send nothing more."""
        if self.result is None and not self.cancelled:
            self.cancelled = True
            if self.ended_with is None:
                self.outcome = Outcome.CANCELLED
                if self.run_span is not None:
                    self.run_span.end(Outcome.CANCELLED)
                self._surroundings.leave(self)
                if self._on_end is not None:
                    self._tell_end()
            self.wake()

    @property
    def is_settled(self) -> bool:
        """Whether there is a result to send, or nobody to send one to."""
        return self.cancelled or self.result is not None

    def on_end(self, note: "Callable[[Execution], bool]") -> None:
        """Tell ``note`` once how the call ended, before anybody can see its result.

        Args:
            note: True: the result must wait for ``release``.
        """
        self._on_end = note
        if self.cancelled:
            self._tell_end()
        elif self.ended_with is not None and self._tell_end():
            self.result = None  # nobody has looked yet

    def release(self) -> None:
        """What the result had to wait for is done."""
        if not self.cancelled:
            self.result = self.ended_with
            self.wake()

    # What the executor uses.

    def finish(self, result: bytes, outcome: str) -> None:
        """The call ended; later endings are ignored."""
        if self.ended_with is None and not self.cancelled:
            if self._coalesced is not None:
                self._flush_progress()
            self.ended_with = result
            self.outcome = outcome
            if self.run_span is not None:
                self.run_span.end(outcome)
            if self._on_end is None or not self._tell_end():
                self.result = result
                self.wake()

    def refuse(self, error: ProtocolError) -> None:
        """There is no result: the call was refused after all."""
        if self.ended_with is None and not self.cancelled:
            self.refusal = error
            self.finish(b"", "")

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What the tool's Context uses, from the loop or from a thread.

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for the tool any more."""
        return self.cancelled or self.ended_with is not None

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.deadline - self._loop.time())

    def leave_if_over(self) -> None:
        """For what stands around the runs: go no further when nobody waits any more.

        A hook can swallow its cancellation, on purpose or by way of ``asyncio.wait_for``.

        Raises:
            CancelledError: Nobody does.
        """
        if self.is_over:
            raise asyncio.CancelledError

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        done = finite_number("done", done)
        total = None if total is None else finite_number("total", total)
        if message is not None and not isinstance(message, str):
            raise TypeError("message must be text")
        if self._token is None:
            return
        if message is not None:
            message = self._surroundings.manner.text(message)
        # Encoded here, where a text that cannot be sent is the caller's mistake.
        encoded = progress(self._token, done, total, message)
        if threading.get_ident() == self._surroundings.thread:
            self._progress(done, encoded)
            return
        # A thread may report a million times; the loop is told of the newest value once.
        self._of_thread = (done, encoded)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._progress_of_thread)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        # Before anything else: whether a client listens must not decide whether the tool fails.
        log_message(level, data, logger)
        if self._level is None or LOG_LEVELS.index(level) < self._level:
            return
        if len(self._pending) >= MAX_PENDING:
            return
        message = log_message(level, self._surroundings.manner.data(data), logger)
        if threading.get_ident() == self._surroundings.thread:
            self._say(message, "notifications/message")
        elif self._logs_under_way < MAX_PENDING:
            self._logs_under_way += 1
            self._loop.call_soon_threadsafe(self._log_of_thread, message)

    def ask(self, request: bytes) -> None:
        """Send the client a request: of revisions before 2026-07-28 alone."""
        if not self.is_over:
            self._flush_progress()
            self._pending.append(request)
            self.wake()

    def asker(self) -> Asking:
        desk = self._in_loop("asking the client")
        if self.asking is None and self.begin_asking is not None:
            self.asking = self.begin_asking(self)
        if self.asking is None:
            call = self._call
            self.asking = desk.begin(
                self.tool.name,
                call.params.get("arguments") or {},
                self._principal,
                call.meta.client_capabilities,
            )
        return self.asking

    def handles(self) -> Handles:
        return Handles(self._in_loop("ctx.handles").store, self._principal.identity)

    @property
    def has_asked(self) -> bool:
        """Whether the result depends on what was asked: it is this caller's, this once."""
        return self.asking is not None and self.asking.has_asked

    # Inside.

    def _tell_end(self) -> bool:
        note, self._on_end = self._on_end, None  # no ring for the collector to find
        assert note is not None
        return note(self)

    def _in_loop(self, what: str) -> Desk:
        around = self._surroundings
        if threading.get_ident() != around.thread or around.desk is None:
            raise RuntimeError(f"{what} needs an async tool: `async def`")
        return around.desk

    def _log_of_thread(self, message: bytes) -> None:
        self._logs_under_way -= 1
        self._say(message, "notifications/message")

    def _progress_of_thread(self) -> None:
        self._scheduled = False
        newest, self._of_thread = self._of_thread, None
        if newest is not None:
            self._progress(*newest)

    def _progress(self, done: float, encoded: bytes) -> None:
        # Progress, "Progress Flow": each value must be larger than the one before.
        if done <= self._last_progress or self.is_over:
            return
        self._last_progress = done
        now = self._loop.time()
        if self._progress_count >= BURST and now < self._next_progress_at:
            if self._coalesced is None:
                self._loop.call_at(self._next_progress_at, self._flush_progress)
            self._coalesced = encoded
            return
        self._coalesced = None
        self._progress_count += 1
        self._next_progress_at = now + INTERVAL_S
        self._say(encoded, "notifications/progress")

    def _flush_progress(self) -> None:
        newest, self._coalesced = self._coalesced, None
        if newest is not None and not self.is_over:
            self._next_progress_at = self._loop.time() + INTERVAL_S
            self._say(newest, "notifications/progress")

    def _say(self, message: bytes, method: str) -> None:
        if self.is_over or len(self._pending) >= MAX_PENDING:
            return
        if self._pending_bytes + len(message) <= MAX_PENDING_BYTES:
            self._pending.append(message)
            self._pending_bytes += len(message)
            NOTIFICATIONS.inc(method)
            self.wake()


def finite_number(name: str, value: float) -> float:
    """A number that JSON can hold.

    Raises:
        TypeError, ValueError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        finite = False
    if not finite:
        raise ValueError(f"{name} must be a finite number")
    # Of a subclass (numpy has some) only the value matters.
    return int(value) if isinstance(value, int) else float(value)
