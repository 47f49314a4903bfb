"""Starts calls: admit, run under a deadline.

A deadline is kept by leaving, not by trusting: the tool runs in a task, thread or process of its
own; at the deadline its caller is answered, the tool is stopped, and if it will not stop it is
left behind and counted.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.execution.asking import Asking, Desk
from app.execution.carrier import Carrier
from app.execution.endings import Endings
from app.execution.execution import AS_IT_IS, Execution, Outcome, Surroundings
from app.execution.manner import Manner
from app.execution.tasks import STRAGGLER_GRACE_S, Tasks
from app.execution.thread_calls import Threads
from app.execution.threads import ThreadWorkers
from app.observability.spans import Spans
from app.principal import Principal
from app.protocol.errors import Unavailable
from app.protocol.inbound import Call
from app.registry.tool import Tool
from app.settings import Settings
from app.toolkit import Context, ToolError

PART_OF_ONE: Final = 4
PART_OF_NOBODY: Final = 2
"""Of the calls that may wait for a person: one caller has a quarter, those without a credential
half of them together."""

TICK_S: Final = 0.04
"""How closely deadlines are kept: a caller is answered within 100 ms of its own."""


class Executor:
    """Runs the tools of one server.

    Args:
        endings: Ends the calls, and knows how many run.
        desk: Where tools ask.
        begin: Told when a tool's code starts, or what stands around it.
        end: Told when what stands around it has ended; of the code itself ``endings`` tells.
        processes: Carries calls in worker processes.
        manner: Changes what tools say.
        spans: Makes the spans of runs; None: there are none.

    Attributes:
        threads: Those of synchronous tools.
    """

    def __init__(
        self,
        settings: Settings,
        endings: Endings,
        *,
        desk: Desk,
        begin: Callable[[Tool], None],
        end: Callable[[Tool], None],
        processes: Carrier,
        manner: Manner = AS_IT_IS,
        spans: Spans | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._surroundings = Surroundings(
            self._loop, threading.get_ident(), self._leave, desk, manner
        )
        self._begin = begin
        self._spans = spans
        self._end = end
        self._limit = settings.limits.concurrent_calls
        self._endings = endings
        threads = ThreadWorkers(
            threads=settings.execution.threads,
            max_abandoned=settings.execution.max_abandoned_threads,
        )
        self._carriers: Mapping[str, Carrier] = {
            "loop": Tasks(self._endings),
            "thread": Threads(self._endings, threads),
            "process": processes,
        }
        self.threads = threads
        self._clock: asyncio.TimerHandle | None = None
        self._paused: Counter[tuple[str | None, str | None]] = Counter()
        self._paused_courses: set[Execution] = set()

    def admit(self, tool: Tool) -> None:
        """Is there room for one more call of a tool?

        What was left behind and still runs takes room until it ends.

        Raises:
            Unavailable: Too many calls run already.
        """
        endings = self._endings
        if endings.running >= self._limit:
            raise Unavailable(
                "Too many calls run at once.", retry_after_s=1, setting="limits.concurrent_calls"
            )
        limit = tool.max_concurrent
        if limit is not None and endings.running_of(tool) >= limit:
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
        *,
        timeout_s: float,
        asking: Asking | None = None,
    ) -> Execution:
        """Start a call that was admitted and whose arguments are valid.

        Args:
            keywords: Arguments of the function; of a tool in a process, the arguments that count.
            timeout_s: Time until its deadline.
            asking: What the call brings back from earlier rounds, or has to ask with.

        Raises:
            Unavailable: Whatever carries it is taken, and the queue for it is full.
        """
        execution = Execution(tool, call, self._surroundings, timeout_s, principal)
        execution.asking = asking
        self.launch(execution, keywords, call, principal)
        if self._clock is None:
            self._clock = self._loop.call_later(TICK_S, self._tick)
        return execution

    def open(
        self,
        tool: Tool,
        call: Call,
        principal: Principal,
        *,
        timeout_s: float,
        asking: Asking | None = None,
    ) -> Execution:
        """A call whose runs are launched by something that stands around them.

        ``close`` must be called when that has ended. Arguments as of ``start``.
        """
        execution = Execution(tool, call, self._surroundings, timeout_s, principal)
        execution.asking = asking
        self._begin(tool)
        self._endings.waited_for.add(execution)
        if self._clock is None:
            self._clock = self._loop.call_later(TICK_S, self._tick)
        return execution

    def close(self, execution: Execution) -> None:
        """The counterpart of ``open``."""
        # No ring for the collector to find.
        execution.course = execution.run_ended = execution.on_pause = None
        self._paused_courses.discard(execution)
        self._endings.waited_for.discard(execution)
        self._end(execution.tool)

    def launch(
        self, execution: Execution, keywords: dict[str, Any], call: Call, principal: Principal
    ) -> None:
        """Run the code of a call. Arguments and errors as of ``start``."""
        tool = execution.tool
        if tool.input.context_parameter is not None and tool.process is None:
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
                trace=call.meta.trace,
            )
        if self._spans is not None:
            execution.run_span = self._spans.run(tool.name, tool.runs_in)
        execution.is_started = False
        execution.attempt += 1
        self._begin(tool)
        endings = self._endings
        endings.began(execution)
        try:
            self._carriers[tool.runs_in].start(execution, keywords, call, principal)
        except Unavailable:
            endings.refused(execution)
            raise

    @property
    def asking(self) -> int:
        """Calls that wait for a person."""
        return self._paused.total()

    @property
    def paused_courses(self) -> int:
        """Calls with something around them that wait for a person."""
        return len(self._paused_courses)

    def pause(self, execution: Execution) -> None:
        """A call waits for a person: its deadline waits too, and its room is free meanwhile.

        ``resume`` must be called as often.

        Raises:
            ToolError: Too many wait, of all callers or of this one.
        """
        if execution.pauses == 0:
            self._check_patience(execution)
            execution.left_s = max(0.0, execution.deadline - self._loop.time())
            execution.deadline = math.inf
            self._paused[execution.identity] += 1
            self._endings.paused(execution.tool)
            if execution.course is not None and execution.course.is_course:
                self._paused_courses.add(execution)
            if execution.on_pause is not None:
                execution.on_pause()
        execution.pauses += 1

    def resume(self, execution: Execution) -> None:
        """The counterpart of ``pause``."""
        execution.pauses -= 1
        if execution.pauses == 0:
            execution.deadline = self._loop.time() + execution.left_s
            self._paused[execution.identity] -= 1
            self._paused += Counter()  # without those that are 0
            self._endings.resumed(execution.tool)
            self._paused_courses.discard(execution)

    def _check_patience(self, execution: Execution) -> None:
        # They take no room of calls that run, so they need a bound of their own: a client may ask
        # for many and answer none.
        part = PART_OF_ONE if execution.identity[0] is not None else PART_OF_NOBODY
        of_one = max(1, self._limit // part)
        if self._paused.total() >= self._limit or self._paused[execution.identity] >= of_one:
            raise ToolError("Too many calls wait for an answer of their users. Try again later.")

    def give_up(self) -> None:
        """The server is going down: answer everybody who still waits, and stop the work."""
        error = self._endings.encoder.error("The server is shutting down; the call was stopped.")
        for execution in list(self._endings.waited_for):
            if not execution.is_over:
                execution.finish(error, Outcome.CANCELLED)
                self._leave(execution)
        self._endings.waited_for.clear()

    async def stop(self) -> None:
        """Stop what still runs; what will not stop is left to the end of the process."""
        self.give_up()
        for carrier in self._carriers.values():
            await carrier.stop()
        if self._clock is not None:
            self._clock.cancel()

    # Time. One clock for all calls: two timers for each would cost more than the rest of it.

    def _tick(self) -> None:
        now = self._loop.time()
        waited_for = self._endings.waited_for
        for execution in list(waited_for):
            if execution.ended_with is not None or execution.cancelled:
                waited_for.discard(execution)
            elif now >= execution.deadline:
                waited_for.discard(execution)
                self._endings.time_out(execution)
                self._leave(execution)
            elif now >= execution.wake_at:
                execution.wake_at = math.inf
                execution.wake()
        self._clock = self._loop.call_later(TICK_S, self._tick) if waited_for else None

    def _leave(self, execution: Execution) -> None:
        """Nobody waits for this work any more."""
        course = execution.course
        if course is not None and not course.leave():
            return  # none of the tool's code runs
        carrier = self._carriers[execution.tool.runs_in]
        if carrier.leave(execution):
            self._loop.call_later(STRAGGLER_GRACE_S, carrier.look_after, execution)
