"""What stands around the runs of a call: its key, hooks, kept results, further tries.

Most calls have nothing of it and are started as they are. For the others one task goes the whole
way, and the run of the tool's code is a part of it that may come once, several times or never.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import structlog

from app.execution.caching import HIT, MISS, Flight, ResultCache, cache_key
from app.execution.drafts import BadDraft, read_draft
from app.execution.endings import Endings, log_failure, new_error_id
from app.execution.execution import Ending, Execution, Outcome
from app.execution.executor import Executor
from app.execution.hooking import HookFailed, HookRunner, Refused, Withheld
from app.execution.idempotency import UNKNOWN, Claim, Claims, Started
from app.execution.results import BadResult
from app.execution.tasks import STRAGGLER_GRACE_S
from app.principal import Principal
from app.protocol.errors import ProtocolError, Unavailable
from app.protocol.headers import mirrored_headers
from app.protocol.inbound import Call
from app.protocol.jsonrpc import dumps, loads_encoded
from app.protocol.messages import with_meta
from app.registry.hooks import Hooks
from app.registry.tool import Tool
from app.toolkit import HookCall

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
"""Between tries; each is drawn from half of it to the whole, so that not all come back at once."""

LONGEST_QUESTIONS_S: Final = 3600.0
"""A call of an older revision that asks may wait so long for its user, all questions together."""

log = structlog.get_logger()

Prepare = Callable[[dict[str, Any]], "Prepared | Ending"]
"""Arguments -> what the function is called with, or what is wrong with them."""


class Prepared(NamedTuple):
    """Arguments that were validated.

    Attributes:
        arguments: Those that count.
        keywords: The function's own.
    """

    arguments: dict[str, Any]
    keywords: dict[str, Any]


class Answers(NamedTuple):
    """Answers that a call brings back, and that count once.

    Attributes:
        redeem: Makes them count no more; raises ``ProtocolError`` where they do not already.
        give_back: Makes them count again.
    """

    redeem: Callable[[], Awaitable[None]]
    give_back: Callable[[], Awaitable[None]]


class Plan(NamedTuple):
    """What a course has to do.

    Attributes:
        arguments: As the client sent them.
        hooks: What looks at arguments and result.
        key: Idempotency key; None: none.
        goes_on: Whether the call brings back the state of a question that it ended with.
        answers: Those that count once; None: there are none.
        started: The claim of the key, where that was begun already.
    """

    tool: Tool
    call: Call
    principal: Principal
    arguments: dict[str, Any]
    hooks: Hooks
    prepare: Prepare
    key: str | None
    goes_on: bool = False
    answers: Answers | None = None
    started: Started | None = None


class Courses:
    """Starts courses, and knows which run.

    Args:
        limit: How many may be under way.

    Attributes:
        stragglers: Calls whose hook goes on although nobody waits any more.
    """

    def __init__(
        self,
        executor: Executor,
        endings: Endings,
        *,
        cache: ResultCache,
        claims: Claims,
        limit: int,
    ) -> None:
        self.executor = executor
        self.endings = endings
        self.cache = cache
        self.claims = claims
        self.stragglers = 0
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self) -> None:
        """Is there room for one more?

        Raises:
            Unavailable: Too many calls wait already, for their turn or for each other.
        """
        if len(self._tasks) - self.executor.paused_courses >= self._limit:
            raise Unavailable(
                "Too many calls run at once.", retry_after_s=1, setting="limits.concurrent_calls"
            )

    def start(self, execution: Execution, plan: Plan) -> Execution:
        """Let a call go its way."""
        course = Course(self, execution, plan)
        execution.course = course
        execution.run_ended = course.run_ended
        execution.is_draft = bool(plan.hooks.after)
        for file in plan.hooks.files:
            file.begin()
        course.task = task = asyncio.create_task(carry_course(course, execution))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, execution, plan, course))
        return execution

    def _ended(
        self, execution: Execution, plan: Plan, course: "Course", task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        for file in plan.hooks.files:
            file.end()
        if plan.started is not None and not course.has_begun:  # cancelled before its first step
            self.claims.abandon(plan.started)
        self.executor.close(execution)

    def look_after(self, course: "Course") -> None:
        """Log and count a course that has not ended although it was left."""
        task, hook = course.task, course.running_hook
        if task is not None and not task.done() and hook is not None:
            self.stragglers += 1
            log.warning(
                "hook_ignores_cancellation",
                hook=hook,
                tool=course.tool_name,
                stragglers=self.stragglers,
            )
            task.add_done_callback(self._straggler_ended)

    def _straggler_ended(self, _: asyncio.Task[None]) -> None:
        self.stragglers -= 1

    async def stop(self, timeout_s: float) -> None:
        """The server ends; what was stopped may still write down that it was."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        await self.claims.stop(timeout_s)


async def carry_course(course: "Course", execution: Execution) -> None:
    """The task of a course; the watchdog knows it by this name and its ``execution``."""
    try:
        result, outcome = await course.outcome()
    except ProtocolError as error:
        execution.refuse(error)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and execution.is_over:
            raise  # nobody waits any more
        # A bug of ours, or a hook that has cancelled its task: the log says why.
        error_id = new_error_id()
        log_failure(execution.tool, error, error_id)
        execution.error_id = error_id
        result = course.encoder.internal_error(error_id)
        execution.finish(result, Outcome.INTERNAL_ERROR)
    else:
        execution.finish(result, outcome)


class Course:
    """The way of one call. Implements ``app.execution.execution.Leavable``."""

    is_course = True

    def __init__(self, courses: Courses, execution: Execution, plan: Plan) -> None:
        self.encoder = courses.endings.encoder
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self._courses = courses
        self._execution = execution
        self._plan = plan
        self._running: asyncio.Future[Ending] | None = None
        self._has_run = False
        self._hooks: HookRunner | None = None
        self._notes: dict[str, Any] = {}
        self._kept: bytes | None = None

    @property
    def tool_name(self) -> str:
        return self._plan.tool.name

    @property
    def running_hook(self) -> str | None:
        return None if self._hooks is None else self._hooks.running

    def leave(self) -> bool:
        if self.task is not None:
            self.task.cancel()
            if self.running_hook is not None:
                loop = self.task.get_loop()
                loop.call_later(STRAGGLER_GRACE_S, self._courses.look_after, self)
        return self._running is not None

    def run_ended(self, ending: Ending) -> None:
        """A run of the tool's code has ended."""
        run, self._running = self._running, None
        if run is not None and not run.done():
            run.set_result(ending)

    async def outcome(self) -> tuple[bytes, str]:
        """Result and outcome of the call."""
        self.has_begun = True
        plan, execution = self._plan, self._execution
        if plan.key is None:
            return await self._answer()
        claim = await self._courses.claims.claim(
            plan.key,
            plan.principal,
            plan.tool.name,
            plan.arguments,
            remaining_s=execution.remaining_s + self._patience_s(),
            goes_on=plan.goes_on,
            started=plan.started,
        )
        if not isinstance(claim, Claim):
            known = claim.result
            execution.headers, execution.error_id = claim.headers, claim.error_id
            execution.cached = "repeated"
            return self.encoder.error(UNKNOWN) if known is None else known, claim.outcome
        try:
            result, outcome = await self._answer()
        except BaseException:
            # Aside: this task may be cancelled again, and nobody bounds its time any more.
            await self._courses.claims.aside(self._stopped(claim))
            raise
        if outcome == Outcome.INPUT_REQUIRED:
            await claim.ask(result, outcome, execution.headers)
        else:
            await claim.settle(result, outcome, execution.headers, execution.error_id)
        return result, outcome

    async def _stopped(self, claim: Claim) -> None:
        """Say what came of a call that was refused, stopped or left."""
        execution = self._execution
        if execution.outcome == Outcome.TIMEOUT and execution.ended_with is not None:
            await claim.settle(execution.ended_with, Outcome.TIMEOUT, execution.headers)
        elif self._has_run:
            await claim.lose()
        else:
            await claim.release()

    async def _answer(self) -> tuple[bytes, str]:
        plan, execution = self._plan, self._execution
        arguments = plan.arguments
        if plan.hooks.before or plan.hooks.after:
            self._hooks = HookRunner(execution)
        if self._hooks is not None and plan.hooks.before:
            try:
                call = self._hook_call(arguments)
                arguments = await self._hooks.before(plan.hooks.before, call)
            except Refused as refused:
                return self.encoder.error(str(refused)), Outcome.TOOL_ERROR
            except HookFailed as failed:
                return self._failed(failed)
        prepared = plan.prepare(arguments)
        if isinstance(prepared, Ending):
            execution.error_id = prepared.error_id
            return prepared.result, prepared.outcome
        if plan.tool.mirrored:
            execution.headers = mirrored_headers(plan.tool.mirrored, prepared.arguments)
        ending = await self._produced(prepared)
        execution.error_id = ending.error_id
        if not ending.is_draft or self._hooks is None:
            result, outcome = ending.result, ending.outcome
        else:
            result, outcome = await self._finished(self._hooks, ending, arguments)
        if self._kept is not None and outcome == Outcome.OK:
            result = with_meta(result, self._kept)
        return result, outcome

    def _patience_s(self) -> float:
        """How long people may think while the call runs, besides its deadline."""
        is_live = self._execution.begin_asking is not None
        return LONGEST_QUESTIONS_S if is_live and self._plan.tool.asks else 0.0

    # Kept results.

    async def _produced(self, prepared: Prepared) -> Ending:
        """What the tool gives for these arguments, now or a moment ago."""
        plan, cache, execution = self._plan, self._courses.cache, self._execution
        caching = plan.tool.caching
        if caching is None or execution.has_asked:
            return await self._tries(prepared)
        is_draft = execution.is_draft
        key = cache_key(plan.tool, plan.call, plan.principal, prepared.arguments, is_draft=is_draft)
        while True:
            found = cache.get(key)
            if found is not None:
                self._kept, execution.cached = HIT, "hit"
                return Ending(found, Outcome.OK, is_draft)
            other = cache.flights.get(key)
            if other is None:
                break
            await asyncio.wait({other})
            shared = other.result()
            if shared is not None:
                self._kept, execution.cached = HIT, "hit"
                return shared
        execution.cached = "miss"
        flight = Flight(cache, key)
        execution.on_pause = flight.land  # nobody waits for somebody else's user
        ending = None
        try:
            ending = await self._tries(prepared)
        finally:
            has_asked = self._execution.has_asked  # by now
            flight.land(None if has_asked else ending)
        if not has_asked:
            self._kept, execution.cached = MISS, "miss"
            if ending.outcome == Outcome.OK:
                cache.put(key, ending.result, caching.ttl_s)
        return ending

    # Runs.

    async def _tries(self, prepared: Prepared) -> Ending:
        """What comes of it, when what has failed for a passing reason was tried again."""
        plan, execution = self._plan, self._execution
        ending = await self._try(prepared.keywords)
        for attempt in range(plan.tool.retries):
            if ending.passing_s is None:
                break
            longest = min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
            pause_s = ending.passing_s + random.uniform(longest / 2, longest)  # noqa: S311  # spreads load, guards nothing
            if pause_s >= execution.remaining_s:
                break
            log.info("tool_tried_again", tool=plan.tool.name, attempt=attempt + 2)
            await asyncio.sleep(pause_s)
            # Prepared anew: the try before may have changed what it was given.
            again = plan.prepare(prepared.arguments)
            if isinstance(again, Ending):
                return again
            try:
                ending = await self._try(again.keywords)
            except Unavailable:
                break  # no room now: what the tool has said stands
        return ending

    async def _try(self, keywords: dict[str, Any]) -> Ending:
        plan, executor = self._plan, self._courses.executor
        executor.admit(plan.tool)
        answers = None if self._has_run else plan.answers
        if answers is not None:  # now, when nothing else can refuse the call
            await answers.redeem()
        try:
            self._execution.leave_if_over()
            run: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
            self._running = run
            executor.launch(self._execution, keywords, plan.call, plan.principal)
        except BaseException:
            self._running = None
            if answers is not None:
                await answers.give_back()
            raise
        self._has_run = True
        return await run

    # Hooks.

    def _hook_call(self, arguments: Mapping[str, Any]) -> HookCall:
        call = self._plan.call
        return HookCall(
            tool_name=self._plan.tool.name,
            # A copy: what the client sent is looked at again.
            arguments=MappingProxyType(loads_encoded(dumps(arguments))),
            principal=self._plan.principal,
            client=call.meta.client_info,
            protocol_version=call.meta.protocol_version,
            meta=MappingProxyType(call.meta.raw),
            notes=self._notes,
        )

    async def _finished(
        self, hooks: HookRunner, ending: Ending, arguments: Mapping[str, Any]
    ) -> tuple[bytes, str]:
        """What the hooks make of what the tool returned."""
        plan = self._plan
        try:
            call = self._hook_call(arguments)
            result = await hooks.after(plan.hooks.after, call, read_draft(ending.result))
            encoded = self.encoder.finish(plan.tool, result)
        except HookFailed as failed:
            return self._failed(failed)
        except Withheld as withheld:
            log.warning("result_withheld", hook=withheld.hook, tool=plan.tool.name)
            return self.encoder.error(Withheld.public), Outcome.TOOL_ERROR
        except (BadResult, BadDraft) as bad:
            error_id = new_error_id()
            log_failure(plan.tool, bad, error_id)
            self._execution.error_id = error_id
            public = bad.public if isinstance(bad, BadResult) else None
            return self.encoder.internal_error(error_id, public), Outcome.INTERNAL_ERROR
        return encoded, Outcome.TOOL_ERROR if result.is_error else Outcome.OK

    def _failed(self, failed: HookFailed) -> tuple[bytes, str]:
        error_id = new_error_id()
        self._execution.error_id = error_id
        log.error(
            "hook_failed",
            hook=failed.hook,
            tool=self._plan.tool.name,
            error_id=error_id,
            exc_info=failed.error,
        )
        return self.encoder.internal_error(error_id), Outcome.INTERNAL_ERROR
