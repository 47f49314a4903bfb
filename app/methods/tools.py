"""``tools/list`` and ``tools/call`` (Tools)."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from app.auth.challenge import Challenge
from app.execution.asking import Asking, Desk
from app.execution.caching import HIT, cache_key, keep
from app.execution.course import Answers, Courses, Plan, Prepared
from app.execution.endings import log_failure, new_error_id
from app.execution.execution import Ending, Execution, Outcome
from app.execution.executor import Executor
from app.execution.idempotency import IDEMPOTENCY_KEY, Started, idempotency_key
from app.execution.results import INVALID_ARGUMENTS, ResultEncoder, message_of
from app.methods.answers import Reply, Sender
from app.methods.observing import Intents
from app.observability.spans import Spans
from app.policy.decision import Demand
from app.policy.limits import Limiter
from app.principal import Principal
from app.protocol.asking import parse_retry
from app.protocol.capabilities import as_capabilities, missing_capabilities
from app.protocol.errors import (
    InvalidParams,
    MissingRequiredClientCapability,
    ProtocolError,
)
from app.protocol.headers import check_parameters, mirrored_headers
from app.protocol.inbound import Call
from app.protocol.messages import with_meta
from app.registry.catalog import Catalog
from app.registry.tool import InvalidArguments, Tool
from app.registry.views import Offer
from app.toolkit import ToolError

MAX_NAME: Final = 128
TIMEOUT_KEY: Final = "mcp-tool-server/timeoutMs"
_new: Final = tuple.__new__  # of a NamedTuple, in half the time


class Asked(NamedTuple):
    """A call that its caller may make, and what it says about itself.

    Attributes:
        arguments: As the client sent them.
        timeout_s: Its deadline.
        key: Idempotency key; None: none.
        asking: What it brings back from earlier rounds, or has to ask with.
        state: What this round brought back, verified: it goes on with a call that was counted
            when it began.
        started: The claim of its key, where that was begun while it was counted.
        is_plain: Whether nothing stands around it.
    """

    offer: Offer
    arguments: dict[str, Any]
    call: Call
    sender: Sender
    timeout_s: float
    key: str | None
    asking: Asking | None = None
    state: str | None = None
    started: Started | None = None
    is_plain: bool = True

    def of_round(self, asking: Asking | None, state: str | None) -> "Asked":
        """The same as one round of a call that asks."""
        is_plain = self.is_plain and (state is None or not self.offer.tool.single_use)
        return self._replace(asking=asking, state=state, is_plain=is_plain)


class ListTools:
    """Serves the pages of what the caller may see in the current snapshot.

    Args:
        catalog: Gives the current snapshot.
        limiter: Counts lists, where they are limited.
        clock: Gives POSIX time.
    """

    def __init__(
        self, catalog: Callable[[], Catalog], limiter: Limiter, *, clock: Callable[[], float]
    ) -> None:
        self._catalog = catalog
        self._limiter = limiter
        self._clock = clock

    def __call__(self, call: Call, sender: Sender) -> Reply | Coroutine[Any, Any, Reply]:
        cursor = call.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise InvalidParams("params.cursor must be a string from an earlier page.")
        now = self._clock()
        catalog = self._catalog()
        reply = Reply(catalog.view(sender.principal, now).page(cursor, now))
        limits = catalog.limits.listing
        counting = limits and self._limiter.admit(limits, sender.principal, sender.address)
        return self._later(counting, reply) if counting else reply

    async def _later(self, counting: Coroutine[Any, Any, None], reply: Reply) -> Reply:
        await counting
        return reply


class CallTool:
    """Starts a call of one tool of the current snapshot.

    Everything that is refused with an HTTP error is refused here, before anything streams.

    Args:
        courses: Starts calls that have something around them.
        limiter: Counts calls, where they are limited.
        desk: Opens what calls bring back from earlier rounds.
        clock: Gives POSIX time.
        challenge: Gives what writes the refusal of a caller who lacks something.
        intents: Asked before a tool runs that demands a record of its calls; None: none does.
        spans: Is told which tool a request is about; None: requests have no spans.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        executor: Executor,
        encoder: ResultEncoder,
        courses: Courses,
        *,
        limiter: Limiter,
        desk: Desk,
        clock: Callable[[], float],
        challenge: Callable[[], Challenge],
        intents: Intents | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._intents = intents
        self._catalog = catalog
        self._executor = executor
        self._encoder = encoder
        self._courses = courses
        self._limiter = limiter
        self._desk = desk
        self._clock = clock
        self._challenge = challenge
        self._spans = spans

    def __call__(
        self, call: Call, sender: Sender
    ) -> Reply | Execution | Coroutine[Any, Any, Reply | Execution]:
        name, arguments = _named(call)
        params = call.params
        retry = None
        if "requestState" in params or "inputResponses" in params:
            retry = parse_retry(params)
        catalog = self._catalog()
        asked = self._look(catalog, name, arguments, call, sender)
        if asked is None:
            return self._unknown(catalog, name, sender)
        tool = asked.offer.tool
        if retry is None and not tool.asks:
            return self._begin(catalog, asked)
        asking = self._desk.begin(
            tool.name,
            arguments,
            sender.principal,
            call.meta.client_capabilities,
            retry,
            needs_state=tool.single_use,
        )
        state = retry.state if retry is not None else None
        return self._begin(catalog, asked.of_round(asking, state))

    def check(self, call: Call, sender: Sender) -> Reply | None:
        """What answers a call before any code of the tool runs, but that of its types.

        Nothing is counted, and no hook looks at the arguments.

        Returns:
            What is wrong with the arguments; None: the tool would run.

        Raises:
            ProtocolError: The call is refused.
        """
        name, arguments = _named(call)
        asked = self._look(self._catalog(), name, arguments, call, sender)
        if asked is None:
            raise InvalidParams(_unknown_tool(name))
        prepared = self._prepare(asked.offer.tool, asked.offer.demand, arguments)
        return Reply(prepared.result, prepared.outcome) if isinstance(prepared, Ending) else None

    def _look(
        self, catalog: Catalog, name: str, arguments: dict[str, Any], call: Call, sender: Sender
    ) -> Asked | None:
        """What the caller may call; None: nothing that it can see.

        Raises:
            ProtocolError: It can see the tool and may not call it now, or not in this way.
        """
        principal = sender.principal
        offer = catalog.view(principal, self._clock()).offers.get(name)
        if offer is None:
            return None
        tool, demand, decision, *_ = offer
        if sender.record is not None:
            sender.record.found = tool
            if tool.log_arguments:
                sender.record.arguments = arguments
        if self._spans is not None:
            self._spans.of_tool(tool.name)
        if not decision.callable:
            raise self._refusal(catalog, offer, principal)
        if demand.networks and demand.refuses_address(sender.address):
            message = "This tool may not be called from your network address."
            raise self._challenge().forbidden(message)
        # Here, where what is refused costs no call.
        raw = call.meta.raw
        timeout_s = _timeout_s(raw[TIMEOUT_KEY], tool) if TIMEOUT_KEY in raw else tool.timeout_s
        key = idempotency_key(raw[IDEMPOTENCY_KEY]) if IDEMPOTENCY_KEY in raw else None
        if tool.asks:
            _check_capabilities(tool, call)
        if sender.headers is not None and tool.mirrored:
            check_parameters(tool.mirrored, sender.headers, arguments)
        is_plain = offer.is_plain and key is None
        return _new(
            Asked, (offer, arguments, call, sender, timeout_s, key, None, None, None, is_plain)
        )

    def _unknown(
        self, catalog: Catalog, name: str, sender: Sender
    ) -> Coroutine[Any, Any, Reply | Execution]:
        """A tool that this caller may not see is as unknown as one that does not exist."""
        message, limits = _unknown_tool(name), catalog.limits.unknown
        counting = limits and self._limiter.admit(limits, sender.principal, sender.address)
        if not counting:
            raise InvalidParams(message)
        return self._unknown_later(counting, message)

    async def _unknown_later(
        self, counting: Coroutine[Any, Any, None], message: str
    ) -> Reply | Execution:
        await counting
        raise InvalidParams(message)

    def _begin(
        self, catalog: Catalog, asked: Asked
    ) -> Reply | Execution | Coroutine[Any, Any, Reply | Execution]:
        """Count what may be called, where it is limited, and start it."""
        # Before anything is counted: what is refused for want of room must not cost a call.
        self._admit(asked)
        sender, limits = asked.sender, asked.offer.limits
        if limits and asked.state is None:
            counting = self._limiter.admit(limits, sender.principal, sender.address)
            if counting:
                return self._later(counting, catalog, self._claim(asked))
        if asked.offer.tool.audit == "required" and self._intents is not None:
            return self._later(None, catalog, asked)
        return self._start(asked)

    def _claim(self, asked: Asked) -> Asked:
        """Claim what has an idempotency key while it is counted: one way to the store for both.

        Not where the tool asks: how long its user may think is not known yet.
        """
        tool = asked.offer.tool
        if asked.key is None or tool.asks:
            return asked
        started = self._courses.claims.start(
            asked.key,
            asked.sender.principal,
            tool.name,
            asked.arguments,
            remaining_s=asked.timeout_s,
        )
        return asked._replace(started=started)

    async def _later(
        self, counting: Coroutine[Any, Any, None] | None, catalog: Catalog, asked: Asked
    ) -> Reply | Execution:
        try:
            if counting is not None:
                await counting
            noted = False
            while True:
                if self._catalog() is not catalog:
                    catalog = self._catalog()
                    asked = self._again(asked)
                if noted or not self._must_note(asked):
                    break
                await self._note(asked)
                noted = True
            self._admit(asked)
            return self._start(asked)
        except BaseException:
            if asked.started is not None:
                self._courses.claims.abandon(asked.started)
            raise

    def _again(self, asked: Asked) -> Asked:
        """The same in the current catalog, which has replaced the other while somebody was asked.

        What was allowed must be so still; and what the version that was found then leans on may
        be closed.
        """
        name = asked.offer.tool.name
        found = self._look(self._catalog(), name, asked.arguments, asked.call, asked.sender)
        if found is None:
            raise InvalidParams(f"Unknown tool: {name}")
        return found.of_round(asked.asking, asked.state)._replace(started=asked.started)

    def _must_note(self, asked: Asked) -> bool:
        return asked.offer.tool.audit == "required" and self._intents is not None

    async def _note(self, asked: Asked) -> None:
        assert self._intents is not None
        offer = asked.offer
        await self._intents.note(offer.tool, asked.call, asked.sender, offer.demand.label)

    def _admit(self, asked: Asked) -> None:
        """Is there room for one more call?

        Raises:
            Unavailable: There is not.
        """
        tool = asked.offer.tool
        if self._intents is not None and tool.audit == "required":
            self._intents.admit()
        if not asked.is_plain:
            self._courses.admit()
            if asked.key is not None or tool.caching is not None:
                return  # whether its code runs at all is not known yet
        self._executor.admit(tool)

    def _start(self, asked: Asked) -> Reply | Execution:
        """Start what was admitted, or answer what is wrong with its arguments."""
        offer, arguments, call, sender, timeout_s, key, asking, _, _, is_plain = asked
        tool = offer.tool
        is_kept = offer.is_cached and key is None and (asking is None or not asking.has_asked)
        if not is_plain and not is_kept:
            return self._start_course(asked)
        prepared = self._prepare(tool, offer.demand, arguments)
        if isinstance(prepared, Ending):
            result, outcome, error_id = prepared.result, prepared.outcome, prepared.error_id
            return Reply(result, outcome, offer=offer, error_id=error_id)
        effective, keywords = prepared
        headers = mirrored_headers(tool.mirrored, effective) if tool.mirrored else ()
        principal, executor, cache = sender.principal, self._executor, self._courses.cache
        cached_as = None
        if not is_plain:
            cached_as = cache_key(tool, call, principal, effective)
            known = cache.get(cached_as)
            if known is not None:
                if sender.record is not None:
                    sender.record.cached = "hit"
                return Reply(with_meta(known, HIT), headers=headers, offer=offer, cached="hit")
            if cached_as in cache.flights:
                return self._start_course(asked)  # which waits for the equal call that runs
            executor.admit(tool)
        execution = executor.start(
            tool, keywords, call, principal, timeout_s=timeout_s, asking=asking
        )
        if cached_as is not None:
            keep(cache, cached_as, execution)
        execution.headers = headers
        execution.rule = offer.demand.label
        return execution

    def _start_course(self, asked: Asked) -> Execution:
        """Start what has something around it."""
        offer, arguments, call, sender, timeout_s, key, asking, state, started, _ = asked
        tool, principal, answers = offer.tool, sender.principal, None
        if state is not None and tool.single_use:
            answers = Answers(
                partial(self._desk.redeem, state), partial(self._desk.give_back, state)
            )
        plan = Plan(
            tool,
            call,
            principal,
            arguments,
            offer.hooks,
            partial(self._prepare, tool, offer.demand),
            key,
            goes_on=state is not None,
            answers=answers,
            started=started,
        )
        execution = self._executor.open(tool, call, principal, timeout_s=timeout_s, asking=asking)
        execution.rule = offer.demand.label
        return self._courses.start(execution, plan)

    def _refusal(self, catalog: Catalog, offer: Offer, principal: Principal) -> ProtocolError:
        scopes = offer.decision.scopes
        if principal.issuer is None:
            message = "This tool is for callers who are known: send a credential."
            return self._challenge().unauthorized(message, scopes=scopes)
        if catalog.lacks_scopes(principal.grants, scopes):
            return self._challenge().insufficient_scope(scopes)
        return self._challenge().forbidden("This caller may not use this tool.")

    def _prepare(self, tool: Tool, demand: Demand, arguments: dict[str, Any]) -> Prepared | Ending:
        """Valid arguments, or what is wrong with them."""
        try:
            effective, keywords = tool.prepare(arguments)
            if demand.arguments:
                _check_rules(demand, tool, keywords)
        except InvalidArguments as error:
            # Tools, "Error Handling": input validation is for the model to mend.
            reasons = "; ".join(error.reasons)
            text = f"{INVALID_ARGUMENTS}{tool.name}: {reasons}"
            return Ending(self._encoder.error(text), Outcome.TOOL_ERROR)
        except ToolError as error:
            return Ending(self._encoder.error(message_of(error)), Outcome.TOOL_ERROR)
        except BaseException as error:  # noqa: BLE001  # validators and defaults are the author's code
            error_id = new_error_id()
            log_failure(tool, error, error_id)
            result = self._encoder.internal_error(error_id)
            return Ending(result, Outcome.INTERNAL_ERROR, error_id=error_id)
        return _new(Prepared, (effective, keywords))


def _named(call: Call) -> tuple[str, dict[str, Any]]:
    """Name of the tool, and arguments.

    Raises:
        InvalidParams: They have another shape.
    """
    name = call.params.get("name")
    if not isinstance(name, str):
        raise InvalidParams("params.name must be the name of a tool, as a string.")
    arguments = call.params.get("arguments")
    if arguments is None:  # ours: null is as good as absent
        arguments = {}
    elif not isinstance(arguments, dict):
        raise InvalidParams("params.arguments must be an object.")
    return name, arguments


def _unknown_tool(name: str) -> str:
    return f"Unknown tool: {name[:MAX_NAME]}"


def _timeout_s(asked: Any, tool: Tool) -> float:
    """The tool's deadline, or an earlier one that the client asks for.

    Raises:
        InvalidParams: What it asks for is no positive integer.
    """
    if type(asked) is not int or asked <= 0:
        raise InvalidParams(f'_meta["{TIMEOUT_KEY}"] must be a positive integer, in milliseconds.')
    return tool.timeout_s if asked >= tool.timeout_s * 1000 else asked / 1000


def _check_capabilities(tool: Tool, call: Call) -> None:
    missing = missing_capabilities(call.meta.client_capabilities, tool.asks)
    if missing:
        raise MissingRequiredClientCapability(
            f"This tool may ask the client for what it did not declare: {', '.join(missing)}.",
            required=as_capabilities(tool.asks),
        )


def _check_rules(demand: Demand, tool: Tool, keywords: dict[str, Any]) -> None:
    problems = demand.argument_problems(tool.effective(keywords))
    if problems:
        raise InvalidArguments(problems)
