"""Starts calls: admit, bind, run under a deadline, encode.

A deadline is kept by leaving, not by trusting: the tool runs in a task or thread of its own; at
the deadline its caller is answered, the tool is cancelled, and if it will not stop it is left
behind and counted.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

import structlog

from app.execution.execution import Execution, Outcome
from app.execution.results import BadResult, ResultEncoder
from app.execution.threads import ThreadWorkers
from app.principal import Principal
from app.protocol.errors import Unavailable
from app.protocol.inbound import Call
from app.registry.tool import Tool
from app.settings import Settings
from app.toolkit import Context, ToolError

STRAGGLER_GRACE_S: Final = 1.0
"""A tool that still runs this long after it was cancelled or left is logged."""

log = structlog.get_logger()


class Executor:
    """Runs the tools of one process.

    Args:
        begin, end: Told when a tool's code starts and when it has really ended.
    """

    def __init__(
        self,
        settings: Settings,
        encoder: ResultEncoder,
        *,
        begin: Callable[[Tool], None],
        end: Callable[[Tool], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._encoder = encoder
        self._begin = begin
        self._end = end
        self._limit = settings.limits.concurrent_calls
        self._threads = ThreadWorkers(
            threads=settings.execution.threads,
            max_abandoned=settings.execution.max_abandoned_threads,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.running = 0
        self.stragglers = 0

    @property
    def abandoned_threads(self) -> int:
        return self._threads.abandoned

    def start(
        self, tool: Tool, keywords: dict[str, Any], call: Call, principal: Principal
    ) -> Execution:
        """Start a call whose arguments are valid.

        Raises:
            Unavailable: Too many calls run already.
        """
        if self.running >= self._limit:
            raise Unavailable("Too many calls run at once.", retry_after_s=1)
        loop = self._loop
        execution = Execution(call, loop, loop.time() + tool.timeout_s)
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
        if tool.is_async:
            self._start_task(tool, keywords, execution)
        else:
            self._start_thread(tool, keywords, execution)
        self._begin(tool)
        self.running += 1
        return execution

    async def stop(self, grace_s: float) -> None:
        """Wait for running tools, then cancel them."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=STRAGGLER_GRACE_S)
        self._threads.stop()

    # Asynchronous tools: a task in the event loop.

    def _start_task(self, tool: Tool, keywords: dict[str, Any], execution: Execution) -> None:
        task = self._loop.create_task(self._run(tool, keywords, execution))
        self._tasks.add(task)
        timer = self._loop.call_later(tool.timeout_s, self._task_is_late, tool, execution, task)
        execution.on_cancel(lambda: self._leave_task(tool, task))

        def ended(task: asyncio.Task[None]) -> None:
            timer.cancel()
            self._tasks.discard(task)
            self._ended(tool)

        task.add_done_callback(ended)

    async def _run(self, tool: Tool, keywords: dict[str, Any], execution: Execution) -> None:
        try:
            value = await tool.function(**keywords)
        except asyncio.CancelledError as error:
            # Nobody waits any more, or the tool cancelled itself.
            if execution.result is None and not execution.cancelled:
                self._fail(tool, execution, error)
        except BaseException as error:  # noqa: BLE001  # a tool may raise anything, SystemExit too
            self._fail(tool, execution, error)
        else:
            self._succeed(tool, execution, value)

    def _task_is_late(self, tool: Tool, execution: Execution, task: asyncio.Task[None]) -> None:
        self._time_out(tool, execution)
        self._leave_task(tool, task)

    def _leave_task(self, tool: Tool, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._loop.call_later(STRAGGLER_GRACE_S, self._note_straggler, tool, task)

    def _note_straggler(self, tool: Tool, task: asyncio.Task[None]) -> None:
        if not task.done():
            self.stragglers += 1
            log.warning("tool_ignores_cancellation", tool=tool.name, stragglers=self.stragglers)
            task.add_done_callback(self._straggler_ended)

    def _straggler_ended(self, _: asyncio.Task[None]) -> None:
        self.stragglers -= 1

    # Synchronous tools: a worker thread.

    def _start_thread(self, tool: Tool, keywords: dict[str, Any], execution: Execution) -> None:
        timer: asyncio.TimerHandle | None = None

        def done(value: Any, error: BaseException | None) -> None:
            if timer is not None:
                timer.cancel()
            if error is None:
                self._succeed(tool, execution, value)
            else:
                self._fail(tool, execution, error)
            self._ended(tool)

        work = self._threads.submit(lambda: tool.function(**keywords), done)

        def leave() -> None:
            if self._threads.abandon(work):
                self._loop.call_later(STRAGGLER_GRACE_S, note)
            else:
                self._ended(tool)  # it never ran

        def note() -> None:
            if not work.ended:
                log.warning("thread_abandoned", tool=tool.name, abandoned=self._threads.abandoned)

        def late() -> None:
            self._time_out(tool, execution)
            leave()

        timer = self._loop.call_later(tool.timeout_s, late)
        execution.on_cancel(leave)

    # How calls end.

    def _ended(self, tool: Tool) -> None:
        self.running -= 1
        self._end(tool)

    def _succeed(self, tool: Tool, execution: Execution, value: Any) -> None:
        if execution.result is not None or execution.cancelled:
            return
        try:
            result, is_error = self._encoder.encode(tool, value)
        except BadResult as bad:
            self._report(tool, execution, bad, public=bad.public)
        except Exception as error:  # noqa: BLE001  # properties and methods of the tool's objects run here
            self._report(tool, execution, error)
        else:
            execution.finish(result, Outcome.TOOL_ERROR if is_error else Outcome.OK)

    def _fail(self, tool: Tool, execution: Execution, error: BaseException) -> None:
        if execution.result is not None or execution.cancelled:
            return
        if isinstance(error, ToolError):
            text = _message_of(error) or "The tool failed without saying why."
            if error.__cause__ is not None:
                # `raise ToolError(...) from error`: the model gets the sentence, the log the cause.
                log.warning("tool_error", tool=tool.name, exc_info=error)
            execution.finish(self._encoder.error(text), Outcome.TOOL_ERROR)
        else:
            self._report(tool, execution, error)

    def _report(
        self,
        tool: Tool,
        execution: Execution,
        error: BaseException,
        *,
        public: str | None = None,
    ) -> None:
        """The caller gets an id, the log the details: never an exception's text on the wire."""
        error_id = execution.error_id = secrets.token_hex(8)
        log.error(
            "tool_failed",
            tool=tool.name,
            error_id=error_id,
            error=type(error).__name__,
            exc_info=error,
        )
        text = public or "The tool failed because of an internal error."
        execution.finish(
            self._encoder.error(f"{text} (error id {error_id})"), Outcome.INTERNAL_ERROR
        )

    def _time_out(self, tool: Tool, execution: Execution) -> None:
        text = f"The tool did not finish within its deadline of {tool.timeout_s:g} s."
        execution.finish(self._encoder.error(text), Outcome.TIMEOUT)


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # __str__ is the author's code
        return ""
