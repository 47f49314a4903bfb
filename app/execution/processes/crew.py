"""The workers that have the same tools loaded, and the calls that wait for them."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

import structlog

from app.execution.endings import Endings, RemoteError, new_error_id
from app.execution.execution import Execution, Outcome
from app.execution.processes.handle import (
    StartError,
    Worker,
    described,
    encode_load,
    failure_of,
)
from app.execution.processes.wire import Frame, Kind, Load, read_passing
from app.observability.metrics import PROCESSES_KILLED
from app.protocol.errors import Unavailable
from app.registry.problems import Problem
from app.registry.tool import Tool

QUEUE_PER_PROCESS: Final = 10
"""Calls that may wait for each process; more are refused at once rather than late."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
"""Between attempts to start workers that do not get ready."""

HOPELESS: Final = 2
"""After so many failed starts in a row calls do not wait for a worker any more."""

NO_WORKER: Final = "The tool's processes cannot be started."
LEAVE_S: Final = 35.0
"""How long an idle worker may take to leave its lifespans."""

SIGXCPU: Final = 24

log = structlog.get_logger()
Hire = Callable[["Crew"], Worker]


class Counts(NamedTuple):
    """Workers by what they do, and calls that wait for one."""

    busy: int = 0
    idle: int = 0
    starting: int = 0
    waiting: int = 0


class Waiting:
    """A call on its way to a worker.

    Attributes:
        worker: That runs it; None while it waits.
    """

    __slots__ = ("crew", "execution", "frame", "worker")

    def __init__(self, crew: "Crew", execution: Execution, frame: Callable[[], bytes]) -> None:
        self.crew = crew
        self.execution = execution
        self.frame = frame
        self.worker: Worker | None = None


class Crew:
    """Some workers with the same tools.

    Args:
        hire: Makes a worker that is not started yet.

    Attributes:
        numbers: Place of each tool in ``Load.tools``.
    """

    def __init__(
        self,
        load: Load,
        numbers: Mapping[Tool, int],
        *,
        size: int,
        hire: Hire,
        endings: Endings,
    ) -> None:
        self.numbers = numbers
        self._load = encode_load(load)
        self._size = size
        self._hire = hire
        self._endings = endings
        self._idle: list[Worker] = []
        self._busy: dict[Worker, Waiting] = {}
        self._waiting: deque[Waiting] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._failures = 0  # since the last call that ended well
        self._failed_starts = 0  # in a row
        self._left_out: frozenset[str] = frozenset()
        self._leaving: set[Worker] = set()
        self._retired = False

    @property
    def counts(self) -> Counts:
        return Counts(len(self._busy), len(self._idle), len(self._starting), len(self._waiting))

    # Before and after.

    async def start_one(self) -> list[Problem]:
        """Start the first worker. Returns what could not be loaded.

        Raises:
            StartError: It did not get ready.
        """
        worker = self._hire(self)
        problems = await worker.start(self._load)
        self._left_out = frozenset(problem.path for problem in problems)
        self._is_ready(worker)
        return problems

    async def start_rest(self) -> None:
        """Start the others; one that fails now is tried again later."""
        # Among those that are being started, so that nobody starts more in their place.
        starting = [self._start_beside() for _ in range(self._size - self._present)]
        if starting:
            await asyncio.wait(starting)

    def retire(self) -> None:
        """No new calls come: end each worker after what waits and runs has ended."""
        self._retired = True
        for task in self._starting:
            if not self._waiting:
                task.cancel()
        if not self._waiting:
            for worker in self._idle:
                self._dismiss(worker)
            self._idle.clear()

    async def stop(self, timeout_s: float) -> None:
        """End all workers, those with a call too."""
        self._waiting.clear()
        self.retire()
        for task in self._starting:
            task.cancel()
        for worker in list(self._busy):
            worker.kill("stop")
        await asyncio.gather(
            *self._starting,
            *(worker.wait(timeout_s) for worker in self._leaving),
            return_exceptions=True,
        )

    # Calls.

    def submit(self, waiting: Waiting) -> None:
        """Run a call, or let it wait.

        Raises:
            Unavailable: Too many wait, or no worker can be started.
        """
        if self._idle:
            self._begin(self._idle.pop(), waiting)
        elif self._is_hopeless:
            raise Unavailable(NO_WORKER, retry_after_s=5)
        elif len(self._waiting) >= self._size * QUEUE_PER_PROCESS:
            raise Unavailable(
                "All processes are busy.", retry_after_s=1, setting="execution.processes"
            )
        else:
            self._waiting.append(waiting)

    def abandon(self, waiting: Waiting, reason: str) -> None:
        """Nobody waits for a call any more."""
        worker = waiting.worker
        if worker is None:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            self._endings.ended(waiting.execution.tool)
        elif worker in self._busy:
            worker.kill(reason)
            self._lose(worker)

    def _begin(self, worker: Worker, waiting: Waiting) -> None:
        waiting.worker = worker
        self._busy[worker] = waiting
        worker.run(waiting.execution, waiting.frame())

    # What workers tell (handle.Owner).

    def call_ended(self, worker: Worker, frame: Frame) -> None:
        if worker not in self._busy:
            return
        waiting = self._busy[worker]
        self._failures = 0
        try:
            self._answer(waiting.execution, frame)
        finally:
            if worker.is_dead:
                self._lose(worker)
            else:
                del self._busy[worker]
                worker.execution = None
                self._endings.ended(waiting.execution.tool)
                self._next(worker)

    def died(self, worker: Worker) -> None:
        self._leaving.discard(worker)
        if worker in self._busy:
            execution = self._busy[worker].execution
            if not execution.is_over:
                self._answer_for(worker, execution)
            self._lose(worker)
        elif worker in self._idle:
            self._idle.remove(worker)
            self._failures += 1
            PROCESSES_KILLED.inc("crash")
            log.error("process_ended", tool=None, pid=worker.pid, how=described(worker.status or 0))
            self._replace()

    # Inside.

    def _answer(self, execution: Execution, frame: Frame) -> None:
        if frame.kind == Kind.FAILED:
            kind, trace, public, passing_s = failure_of(frame.payload)
            self._endings.report(
                execution, RemoteError(kind, trace), public=public, passing_s=passing_s
            )
        elif frame.kind == Kind.PASSING:
            seconds, result = read_passing(frame.payload)
            self._endings.finish(
                execution,
                result,
                Outcome.TOOL_ERROR,
                is_draft=execution.is_draft,
                passing_s=seconds,
            )
        else:
            is_ok = frame.kind == Kind.RESULT
            outcome = Outcome.OK if is_ok else Outcome.TOOL_ERROR
            self._endings.finish(execution, frame.payload, outcome, is_draft=execution.is_draft)

    def _answer_for(self, worker: Worker, execution: Execution) -> None:
        """The caller of a call whose process has ended."""
        limits = execution.tool.process
        assert limits is not None
        status = worker.status or 0
        if worker.killed_for == "output":
            text = f"The tool printed more than its limit of {worker.max_output:,} bytes."
        elif status >= 0 and status & 0x7F == SIGXCPU:
            worker.killed_for = "cpu"
            PROCESSES_KILLED.inc("cpu")
            text = f"The tool used more than its limit of {limits.cpu_s:g} s of processor time."
        else:
            error_id = new_error_id()
            text = "The tool's process ended before its call did."
            self._endings.end_without_details(execution, error_id, text)
            PROCESSES_KILLED.inc("crash")
            log.error(
                "process_ended",
                tool=execution.tool.name,
                error_id=error_id,
                pid=worker.pid,
                how=described(status),
            )
            return
        result = self._endings.encoder.error(text)
        self._endings.finish(execution, result, Outcome.TOOL_ERROR)

    def _lose(self, worker: Worker) -> None:
        """A worker with a call is gone, or as good as that."""
        waiting = self._busy.pop(worker)
        tool = waiting.execution.tool
        if worker.killed_for and worker.killed_for != "closed":
            write = log.info if worker.killed_for == "cancelled" else log.warning
            write("process_replaced", tool=tool.name, reason=worker.killed_for, pid=worker.pid)
        self._endings.ended(tool)
        self._replace()

    def _next(self, worker: Worker) -> None:
        """A worker has nothing to do."""
        if self._waiting:
            self._begin(worker, self._waiting.popleft())
        elif self._retired:
            self._dismiss(worker)
        else:
            self._idle.append(worker)

    def _dismiss(self, worker: Worker) -> None:
        worker.leave()
        self._leaving.add(worker)
        asyncio.get_running_loop().call_later(LEAVE_S, worker.kill, "stop")

    def _replace(self) -> None:
        if self._present < self._size and (not self._retired or self._waiting):
            self._start_beside()

    @property
    def _present(self) -> int:
        return len(self._idle) + len(self._busy) + len(self._starting)

    def _start_beside(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._start(), name="start a worker process")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return task

    async def _start(self) -> None:
        """Start a worker, however many attempts that takes."""
        while True:
            if self._failures:
                pause = FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10)
                await asyncio.sleep(min(pause, LONGEST_PAUSE_S))
            worker = self._hire(self)
            try:
                for problem in await worker.start(self._load):
                    if problem.path not in self._left_out:
                        raise StartError(problem.message, problem.path)  # noqa: TRY301  # as start does
            except StartError as error:
                worker.kill("start")
                self._failures += 1
                self._failed_starts += 1
                self._give_up_waiting()
                # Told in full by its message: a trace would show our own lines alone.
                log.error("process_start_failed", file=error.path, problem=str(error))  # noqa: TRY400
                continue
            except BaseException:
                worker.kill("stop")
                raise
            # Not by the task's callback alone, which comes later: in between another worker may
            # die, and would not be replaced while this one counts twice.
            self._starting.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            self._is_ready(worker)
            return

    @property
    def _is_hopeless(self) -> bool:
        return self._failed_starts >= HOPELESS and not self._busy and not self._idle

    def _give_up_waiting(self) -> None:
        """Better an answer now than at the deadline."""
        while self._is_hopeless and self._waiting:
            execution = self._waiting.popleft().execution
            error = self._endings.encoder.error(NO_WORKER)
            self._endings.finish(execution, error, Outcome.INTERNAL_ERROR)
            self._endings.ended(execution.tool)

    def _is_ready(self, worker: Worker) -> None:
        if worker.is_dead:  # it was ready and ended in the same moment
            self._failures += 1
            self._replace()
        else:
            self._failed_starts = 0
            self._next(worker)
