"""Starts calls: admit, bind, run under a deadline, encode.

A deadline is kept by leaving, not by trusting: the tool runs in a task or thread of its own; at
the deadline its caller is answered, the tool is cancelled, and if it will not stop it is left
behind and counted.
"""

import asyncio
import math
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from app.execution.asking import Asking, Desk, SwallowedPause, is_pause
from app.execution.execution import Execution, Outcome
from app.execution.results import BadResult, ResultEncoder
from app.execution.threads import ThreadCall, ThreadWorkers
from app.principal import Principal
from app.protocol.errors import Unavailable
from app.protocol.inbound import Call
from app.registry.tool import Tool
from app.settings import Settings
from app.toolkit import Context, ToolError

TICK_S: Final = 0.04
"""How closely deadlines are kept: a caller is answered within 100 ms of its own."""

STRAGGLER_GRACE_S: Final = 1.0
"""A tool that still runs this long after it was cancelled or left is logged."""

log = structlog.get_logger()


class Executor:
    """Runs the tools of one process.

    Args:
        desk: Where tools ask.
        begin, end: Told when a tool's code starts and when it has really ended.
    """

    def __init__(
        self,
        settings: Settings,
        encoder: ResultEncoder,
        *,
        desk: Desk,
        begin: Callable[[Tool], None],
        end: Callable[[Tool], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._encoder = encoder
        self._desk = desk
        self._begin = begin
        self._end = end
        self._limit = settings.limits.concurrent_calls
        self._threads = ThreadWorkers(
            threads=settings.execution.threads,
            max_abandoned=settings.execution.max_abandoned_threads,
        )
        self._left: set[asyncio.Task[None]] = set()
        self._waited_for: set[Execution] = set()
        self._clock: asyncio.TimerHandle | None = None
        self._running_of: dict[str, int] = {}
        self.running = 0
        self.stragglers = 0

    def admit(self, tool: Tool) -> None:
        """Is there room for one more call of a tool?

        What was left behind and still runs takes room until it ends.

        Raises:
            Unavailable: Too many calls run already.
        """
        if self.running >= self._limit:
            raise Unavailable(
                "Too many calls run at once.", retry_after_s=1, setting="limits.concurrent_calls"
            )
        limit = tool.max_concurrent
        # By name: a version of the tool that was replaced uses the same things in the background.
        if limit is not None and self._running_of.get(tool.name, 0) >= limit:
            raise Unavailable(
                "Too many calls of this tool run at once.",
                retry_after_s=1,
                setting="max_concurrent",
            )

    def start(
        self,
        tool: Tool,
        keywords: dict[str, Any],
        call: Call,
        principal: Principal,
        asking: Asking | None = None,
    ) -> Execution:
        """Start a call that was admitted and whose arguments are valid.

        Args:
            asking: What the call brings back from earlier rounds, or has to ask with.

        Raises:
            Unavailable: Every thread is taken and the queue for them is full.
        """
        execution = Execution(
            tool,
            call,
            loop=self._loop,
            thread=self._thread,
            deadline=self._loop.time() + tool.timeout_s,
            leave=self._leave,
            desk=self._desk,
            principal=principal,
        )
        execution.asking = asking
        if tool.input.context_parameter is not None:
            keywords[tool.input.context_parameter] = Context(
                tool_name=tool.name,
                request_id=call.id,
                principal=principal,
                protocol_version=call.meta.protocol_version,
                client=call.meta.client_info,
                meta=call.meta.raw,
                settings=tool.settings,
                lifespan=tool.source.lifespan_value,
                channel=execution,
            )
        self._begin(tool)
        self.running += 1
        if tool.max_concurrent is not None:
            self._running_of[tool.name] = self._running_of.get(tool.name, 0) + 1
        self._waited_for.add(execution)
        if tool.is_async:
            # Not eagerly, where Python can: many calls in the same stage of their way are faster
            # than each of them from start to end (caches), by a fifth in a busy server.
            execution.work = self._loop.create_task(self._run(keywords, execution))
        else:
            self._start_thread(tool, keywords, execution)
        if self._clock is None:
            self._clock = self._loop.call_later(TICK_S, self._tick)
        return execution

    def _start_thread(self, tool: Tool, keywords: dict[str, Any], execution: Execution) -> None:
        try:
            execution.work = self._threads.submit(
                partial(tool.function, **keywords), partial(self._thread_ended, execution)
            )
        except Unavailable:
            self._waited_for.discard(execution)
            self._ended(tool)
            raise

    def give_up(self) -> None:
        """The server is going down: answer everybody who still waits, and stop the work."""
        error = self._encoder.error("The server is shutting down; the call was stopped.")
        for execution in list(self._waited_for):
            if not execution.is_over:
                execution.finish(error, Outcome.CANCELLED)
                self._leave(execution)
        self._waited_for.clear()

    async def stop(self) -> None:
        """Stop what still runs; what will not stop is left to the end of the process."""
        self.give_up()
        if self._left:
            await asyncio.wait(self._left, timeout=STRAGGLER_GRACE_S)
        self._threads.stop()
        if self._clock is not None:
            self._clock.cancel()

    # Time. One clock for all calls: two timers for each would cost more than the rest of it.

    def _tick(self) -> None:
        now = self._loop.time()
        for execution in list(self._waited_for):
            if execution.result is not None or execution.cancelled:
                self._waited_for.discard(execution)
            elif now >= execution.deadline:
                self._waited_for.discard(execution)
                self._time_out(execution)
                self._leave(execution)
            elif now >= execution.wake_at:
                execution.wake_at = math.inf
                execution.wake()
        self._clock = self._loop.call_later(TICK_S, self._tick) if self._waited_for else None

    # What carries a call: a task in the event loop, or a worker thread.

    async def _run(self, keywords: dict[str, Any], execution: Execution) -> None:
        execution.is_started = True
        try:
            value = await execution.tool.function(**keywords)
        except BaseException as error:  # noqa: BLE001  # a tool may raise anything, SystemExit too
            # CancelledError as well: nobody waits any more, or the tool cancelled itself.
            self._fail(execution, error)
        else:
            self._succeed(execution, value)
        finally:
            self._ended(execution.tool)

    def _thread_ended(self, execution: Execution, value: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self._succeed(execution, value)
            else:
                self._fail(execution, error)
        finally:
            self._ended(execution.tool)

    def _leave(self, execution: Execution) -> None:
        """Nobody waits for this work any more."""
        work = execution.work
        if isinstance(work, ThreadCall):
            if not self._threads.abandon(work):
                self._ended(execution.tool)  # it never ran
                return
        else:
            work.cancel()
            if not execution.is_started:
                self._ended(execution.tool)  # nor did this
                return
            self._left.add(work)
            work.add_done_callback(self._left.discard)
        self._loop.call_later(STRAGGLER_GRACE_S, self._note_straggler, execution)

    def _note_straggler(self, execution: Execution) -> None:
        work, tool = execution.work, execution.tool
        if isinstance(work, ThreadCall):
            if not work.ended:
                log.warning("thread_abandoned", tool=tool.name, abandoned=self._threads.abandoned)
        elif not work.done():
            self.stragglers += 1
            log.warning("tool_ignores_cancellation", tool=tool.name, stragglers=self.stragglers)
            work.add_done_callback(self._straggler_ended)

    def _straggler_ended(self, _: asyncio.Task[None]) -> None:
        self.stragglers -= 1

    # How calls end.

    def _ended(self, tool: Tool) -> None:
        self.running -= 1
        if tool.max_concurrent is not None:
            self._running_of[tool.name] -= 1
            if not self._running_of[tool.name]:
                del self._running_of[tool.name]
        self._end(tool)

    def _succeed(self, execution: Execution, value: Any) -> None:
        if execution.result is not None or execution.cancelled:
            return
        self._waited_for.discard(execution)
        if execution.asking is not None and execution.asking.is_paused:
            self._report(execution, SwallowedPause(), public=SwallowedPause.public)
            return
        try:
            result, is_error = self._encoder.encode(execution.tool, value)
        except BadResult as bad:
            self._report(execution, bad, public=bad.public)
        except BaseException as error:  # noqa: BLE001  # methods of the tool's objects run here
            self._report(execution, error)
        else:
            execution.finish(result, Outcome.TOOL_ERROR if is_error else Outcome.OK)

    def _fail(self, execution: Execution, error: BaseException) -> None:
        self._waited_for.discard(execution)
        if execution.result is not None or execution.cancelled:
            return
        asking = execution.asking
        if asking is not None and asking.is_paused and is_pause(error):
            self._ask(execution, asking)
        elif isinstance(error, ToolError):
            text = message_of(error) or "The tool failed without saying why."
            execution.finish(self._encoder.error(text), Outcome.TOOL_ERROR)
            if error.__cause__ is not None:
                # `raise ToolError(...) from error`: the model gets the sentence, the log the cause.
                log.warning("tool_error", tool=execution.tool.name, exc_info=error)
        else:
            self._report(execution, error)

    def _ask(self, execution: Execution, asking: Asking) -> None:
        """The tool has left for want of answers: its call ends with the questions."""
        try:
            requests, state = asking.result()
            result = self._encoder.input_required(requests, state)
        except ToolError as error:
            execution.finish(self._encoder.error(str(error)), Outcome.TOOL_ERROR)
        except BadResult as bad:
            self._report(execution, bad, public=bad.public)
        else:
            execution.finish(result, Outcome.INPUT_REQUIRED)

    def _report(
        self, execution: Execution, error: BaseException, *, public: str | None = None
    ) -> None:
        execution.error_id = error_id = new_error_id()
        result = self._encoder.internal_error(error_id, public)
        execution.finish(result, Outcome.INTERNAL_ERROR)
        log_failure(execution.tool, error, error_id)

    def _time_out(self, execution: Execution) -> None:
        limit = f"{execution.tool.timeout_s:g} s"
        text = f"The tool did not finish within its deadline of {limit}."
        execution.finish(self._encoder.error(text), Outcome.TIMEOUT)


def new_error_id() -> str:
    """What ties the answer of a caller to the line in the log."""
    return secrets.token_hex(8)


def log_failure(tool: Tool, error: BaseException, error_id: str) -> None:
    """The caller gets an id, the log the details: never an exception's text on the wire."""
    log.error(
        "tool_failed",
        tool=tool.name,
        error_id=error_id,
        error=type(error).__name__,
        exc_info=error,
    )


def message_of(error: BaseException) -> str:
    """An exception's text; empty if that fails too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # __str__ is the author's code
        return ""
