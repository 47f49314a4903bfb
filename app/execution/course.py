"""What stands around the runs of a call: its key, hooks, kept results, further tries.

Most calls have nothing of it and are started as they are. For the others one task goes the whole
way, and the run of the tool's code is a part of it that may come once, several times or never.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import structlog

from app.execution.caching import HIT, MISS, ResultCache, cache_key
from app.execution.drafts import read_draft
from app.execution.endings import Endings, log_failure, new_error_id
from app.execution.execution import Ending, Execution, Outcome
from app.execution.executor import Executor
from app.execution.hooking import HookFailed, Refused, run_after, run_before
from app.execution.idempotency import UNKNOWN, Claim, Outcomes
from app.execution.results import BadResult
from app.principal import Principal
from app.protocol.errors import ProtocolError, Unavailable
from app.protocol.headers import mirrored_headers
from app.protocol.inbound import Call
from app.protocol.jsonrpc import dumps, loads
from app.protocol.messages import with_meta
from app.registry.hooks import Hooks
from app.registry.tool import Tool
from app.toolkit import HookCall

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
"""Between tries; each is drawn from half of it to the whole, so that not all come back at once."""

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


class Plan(NamedTuple):
    """What a course has to do.

    Attributes:
        arguments: As the client sent them.
        hooks: What looks at arguments and result.
        key: Idempotency key; None: none.
        redeem: Makes the answers that a call brings back count once; None: they may count again.
    """

    tool: Tool
    call: Call
    principal: Principal
    arguments: dict[str, Any]
    hooks: Hooks
    prepare: Prepare
    key: str | None
    redeem: Callable[[], Any] | None


class Courses:
    """Starts courses, and knows which run.

    Args:
        cache: None: no result is kept.
        limit: How many may be under way.
    """

    def __init__(
        self,
        executor: Executor,
        endings: Endings,
        *,
        cache: ResultCache,
        outcomes: Outcomes,
        limit: int,
    ) -> None:
        self.executor = executor
        self.endings = endings
        self.cache = cache
        self.outcomes = outcomes
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self) -> None:
        """Is there room for one more?

        Raises:
            Unavailable: Too many calls wait already, for their turn or for each other.
        """
        if len(self._tasks) >= self._limit:
            raise Unavailable(
                "Too many calls run at once.", retry_after_s=1, setting="limits.concurrent_calls"
            )

    def start(self, execution: Execution, plan: Plan) -> Execution:
        """Let a call go its way."""
        course = Course(self, execution, plan)
        execution.course = course
        execution.run_ended = course.run_ended
        execution.is_draft = bool(plan.hooks.after)
        course.task = task = asyncio.create_task(carry_course(course, execution))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self.executor.close(execution))
        return execution

    async def stop(self, timeout_s: float) -> None:
        """The server ends; what was stopped may still write down that it was."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)


async def carry_course(course: "Course", execution: Execution) -> None:
    """The task of a course; the watchdog knows it by this name and its ``execution``."""
    try:
        result, outcome = await course.outcome()
    except ProtocolError as error:
        execution.refuse(error)
    except Exception as error:  # noqa: BLE001  # a bug of ours: the call fails, and the log says why
        error_id = new_error_id()
        log_failure(execution.tool, error, error_id)
        execution.error_id = error_id
        result = course.encoder.internal_error(error_id)
        execution.finish(result, Outcome.INTERNAL_ERROR)
    else:
        execution.finish(result, outcome)


class Course:
    """The way of one call. Implements ``app.execution.execution.Leavable``."""

    def __init__(self, courses: Courses, execution: Execution, plan: Plan) -> None:
        self.encoder = courses.endings.encoder
        self.task: asyncio.Task[None] | None = None
        self._courses = courses
        self._execution = execution
        self._plan = plan
        self._running: asyncio.Future[Ending] | None = None
        self._notes: dict[str, Any] = {}
        self._kept: bytes | None = None

    def leave(self) -> bool:
        if self.task is not None:
            self.task.cancel()
        return self._running is not None

    def run_ended(self, ending: Ending) -> None:
        """A run of the tool's code has ended."""
        run, self._running = self._running, None
        if run is not None and not run.done():
            run.set_result(ending)

    async def outcome(self) -> tuple[bytes, str]:
        """Result and outcome of the call."""
        plan, execution = self._plan, self._execution
        if plan.key is None:
            return await self._answer()
        claim = await self._courses.outcomes.claim(
            plan.key,
            plan.principal,
            plan.tool.name,
            plan.arguments,
            remaining_s=execution.remaining_s,
        )
        if not isinstance(claim, Claim):
            known = claim.result
            return self.encoder.error(UNKNOWN) if known is None else known, claim.outcome
        try:
            result, outcome = await self._answer()
        except ProtocolError:
            await claim.release()
            raise
        except BaseException:
            if execution.outcome == Outcome.TIMEOUT and execution.result is not None:
                await claim.settle(execution.result, Outcome.TIMEOUT)
            else:  # its caller or the server went away
                await claim.lose()
            raise
        if outcome == Outcome.INPUT_REQUIRED:
            await claim.release()  # no outcome: the answers continue under the same key
        else:
            await claim.settle(result, outcome)
        return result, outcome

    async def _answer(self) -> tuple[bytes, str]:
        plan = self._plan
        if plan.redeem is not None:
            await plan.redeem()
        arguments = plan.arguments
        try:
            if plan.hooks.before:
                arguments = await run_before(plan.hooks.before, self._hook_call(arguments))
        except Refused as refused:
            return self.encoder.error(str(refused)), Outcome.TOOL_ERROR
        except HookFailed as failed:
            return self._failed(failed)
        prepared = plan.prepare(arguments)
        if isinstance(prepared, Ending):
            return prepared.result, prepared.outcome
        if plan.tool.mirrored:
            headers = mirrored_headers(plan.tool.mirrored, prepared.arguments)
            self._execution.headers = headers
        ending = await self._produced(prepared)
        if not ending.is_draft:
            result, outcome = ending.result, ending.outcome
        else:
            result, outcome = await self._finished(ending, arguments)
        if self._kept is not None and outcome in {Outcome.OK, Outcome.TOOL_ERROR}:
            result = with_meta(result, self._kept)
        return result, outcome

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
                self._kept = HIT
                return Ending(found, Outcome.OK, is_draft)
            flight = cache.flights.get(key)
            if flight is None:
                break
            await asyncio.wait({flight})
            shared = flight.result()
            if shared is not None:
                self._kept = HIT
                return shared
        flight = cache.flights[key] = asyncio.get_running_loop().create_future()
        ending = None
        try:
            ending = await self._tries(prepared)
        finally:
            del cache.flights[key]
            has_asked = self._execution.has_asked  # by now
            flight.set_result(None if has_asked else ending)
        if not has_asked:
            self._kept = MISS
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
            pause_s = max(ending.passing_s, random.uniform(longest / 2, longest))  # noqa: S311  # spreads load, guards nothing
            if pause_s >= execution.remaining_s:
                break
            log.info("tool_tried_again", tool=plan.tool.name, attempt=attempt + 2)
            await asyncio.sleep(pause_s)
            # Prepared anew: the try before may have changed what it was given.
            again = plan.prepare(prepared.arguments)
            if isinstance(again, Ending):
                return again
            ending = await self._try(again.keywords)
        return ending

    async def _try(self, keywords: dict[str, Any]) -> Ending:
        plan, courses = self._plan, self._courses
        courses.executor.admit(plan.tool)
        run: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._running = run
        try:
            courses.executor.launch(self._execution, keywords, plan.call, plan.principal)
        except Unavailable:
            self._running = None
            raise
        return await run

    # Hooks.

    def _hook_call(self, arguments: Mapping[str, Any]) -> HookCall:
        call = self._plan.call
        return HookCall(
            tool_name=self._plan.tool.name,
            # A copy: what the client sent is looked at again.
            arguments=MappingProxyType(loads(dumps(arguments))),
            principal=self._plan.principal,
            client=call.meta.client_info,
            protocol_version=call.meta.protocol_version,
            meta=call.meta.raw,
            notes=self._notes,
        )

    async def _finished(self, ending: Ending, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """What the hooks make of what the tool returned."""
        plan = self._plan
        try:
            call = self._hook_call(arguments)
            result = await run_after(plan.hooks.after, call, read_draft(ending.result))
            encoded = self.encoder.finish(plan.tool, result)
        except HookFailed as failed:
            return self._failed(failed)
        except BadResult as bad:
            error_id = new_error_id()
            log_failure(plan.tool, bad, error_id)
            self._execution.error_id = error_id
            return self.encoder.internal_error(error_id, bad.public), Outcome.INTERNAL_ERROR
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
