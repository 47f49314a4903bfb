"""What clients of the ``initialize`` era ask for: translated up, answered, and translated down.

The handlers are those of the modern protocol; no other part of the server knows of this one.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from app.execution.execution import Execution
from app.execution.results import is_argument_error
from app.legacy.errors import argument_error
from app.legacy.initialize import initialize_result, parse_initialize
from app.legacy.listing import listed
from app.legacy.results import Quick, called
from app.legacy.revisions import Revision
from app.legacy.schemas import wraps
from app.methods.answers import Answer, Reply, Sender
from app.methods.router import Router
from app.principal import Principal
from app.protocol.errors import InvalidParams, InvalidRequest, MethodNotFound, ProtocolError
from app.protocol.inbound import Call
from app.protocol.jsonrpc import Message, dumps, loads
from app.protocol.schema import LOG_LEVELS, Implementation, RequestId, RequestMeta
from app.protocol.trace_context import TraceContext, context_in_meta
from app.registry.tool import Tool
from app.sessions.dialogue import Dialogues, LiveAsking, Say
from app.sessions.tokens import Session, Sessions
from app.state.interface import Bus, StoreUnavailable

CANCEL_TOPIC: Final = "legacy-cancel"
END_TOPIC: Final = "legacy-end"
KEPT_PAGES: Final = 64
"""Translated pages of lists that are kept, those used last."""

_EMPTY: Final = b"{}"

FindTool = Callable[[Principal, str], Tool | None]
"""Who calls, and the name of a tool -> the tool as that caller sees it."""


class Running(NamedTuple):
    """A tool's call that is under way.

    Attributes:
        session: In which it began; None: in none.
        wraps: As ``app.legacy.schemas.wraps`` says of its tool.
        quick: Translates the results that most calls have.
    """

    execution: Execution
    session: Session | None
    revision: Revision
    wraps: bool
    quick: Quick

    def result(self) -> bytes:
        """The result, once it is there.

        Raises:
            ProtocolError: It is none in this revision.
        """
        execution = self.execution
        if execution.refusal is not None:
            raise execution.refusal
        assert execution.result is not None
        return _called(execution.result, self.revision, wraps=self.wraps, quick=self.quick)


class Opened(NamedTuple):
    """The answer to ``initialize``.

    Attributes:
        token: Of the session.
        client: For display alone.
        revision: That the session speaks.
    """

    result: bytes
    token: str
    client: Implementation
    revision: Revision


class LegacyMethods:
    """Answers requests of clients of older revisions.

    Args:
        router: Answers modern ones.
        server_info: ``Implementation`` object of this server.
        tools_change: Whether changes of tools are noticed at all.
    """

    def __init__(
        self,
        router: Router,
        sessions: Sessions,
        dialogues: Dialogues,
        bus: Bus,
        *,
        find_tool: FindTool,
        server_info: Mapping[str, Any],
        instructions: str | None,
        tools_change: bool,
    ) -> None:
        self.sessions = sessions
        self.dialogues = dialogues
        self._router = router
        self._bus = bus
        self._find_tool = find_tool
        self._server_info = server_info
        self._instructions = instructions
        self._tools_change = tools_change
        self._running: dict[tuple[str, RequestId], Execution] = {}
        self._enders: dict[str, list[Callable[[], None]]] = {}
        self._unsubscribe = (
            bus.subscribe(CANCEL_TOPIC, self._hear_cancel),
            bus.subscribe(END_TOPIC, self._hear_end),
        )
        self._listed = lru_cache(KEPT_PAGES)(listed)
        self._quick = Quick(server_info)

    def close(self) -> None:
        """Hear no more."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self.dialogues.close()

    def open(self, message: Message, principal: Principal) -> Opened:
        """``initialize``.

        Raises:
            InvalidParams: What the client says of itself has the wrong shape.
        """
        opening = parse_initialize(message.params)
        result = initialize_result(
            opening.revision,
            server_info=self._server_info,
            tools_change=self._tools_change,
            logging=True,
            instructions=self._instructions,
        )
        token = self.sessions.begin(opening, principal)
        return Opened(result, token, opening.client, opening.revision)

    async def answer(
        self,
        message: Message,
        revision: Revision,
        session: Session | None,
        sender: Sender,
        *,
        can_ask: bool,
        withdraw: Say | None = None,
    ) -> Reply | Running:
        """Answer a request.

        Args:
            session: None: the client has opened none, and is served without.
            can_ask: Whether requests can be sent to the client while its call runs.
            withdraw: Tells the client that such a request is over, also after the call was
                cancelled; None: then nothing can be told.

        Raises:
            ProtocolError: In modern terms; ``app.legacy.errors`` has those of the revision.
        """
        match message.method:
            case "ping":
                return Reply(_EMPTY)
            case "logging/setLevel":
                return await self._set_level(message, session)
            case "tools/list" | "tools/call":
                return await self._tools(
                    message, revision, session, sender, can_ask=can_ask, withdraw=withdraw
                )
        raise MethodNotFound("This server does not have the requested method.")

    def finished(self, session: Session | None, id: RequestId) -> None:
        """A call has ended. Another one that has its id by now stays."""
        if session is not None:
            execution = self._running.get((session.id, id))
            if execution is not None and execution.is_settled:
                del self._running[session.id, id]

    async def cancel(self, session: Session, params: Mapping[str, Any] | None) -> None:
        """``notifications/cancelled``: of a request of the same session alone."""
        id = (params or {}).get("requestId")
        if type(id) in (str, int):
            try:
                await self._bus.publish(CANCEL_TOPIC, dumps([session.id, id]))
            except StoreUnavailable:  # a notification has no answer; this much can be done
                self._hear_cancel(dumps([session.id, id]))

    async def end(self, session: Session) -> None:
        """The client has ended its session: whatever is open in it is told, on each replica.

        Raises:
            Unavailable: It could not be written down, and so goes on.
        """
        await self.sessions.end(session)
        message = session.id.encode()
        try:
            await self._bus.publish(END_TOPIC, message)
        except StoreUnavailable:  # it has ended all the same; who cannot be told finds out later
            self._hear_end(message)

    def on_end(self, session_id: str, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` when a session is ended. Returns what ends that."""
        tellers = self._enders.setdefault(session_id, [])
        tellers.append(tell)

        def forget() -> None:
            if tell in tellers:
                tellers.remove(tell)
            if not tellers and self._enders.get(session_id) is tellers:
                del self._enders[session_id]

        return forget

    def _hear_end(self, message: bytes) -> None:
        # Others may write to the bus: what is no id is the id of no session.
        for tell in tuple(self._enders.get(message.decode("utf-8", "replace"), ())):
            tell()

    def _hear_cancel(self, message: bytes) -> None:
        try:
            session_id, id = loads(message)
            execution = self._running.get((session_id, id))
        except (ProtocolError, ValueError, TypeError):
            return  # no server has said this
        if execution is not None:
            execution.cancel()

    async def _set_level(self, message: Message, session: Session | None) -> Reply:
        level = (message.params or {}).get("level")
        if level not in LOG_LEVELS:
            raise InvalidParams(f"params.level must be one of {', '.join(LOG_LEVELS)}.")
        if session is None:
            raise InvalidRequest("logging/setLevel needs a session: open one with initialize.")
        await self.sessions.set_level(session, level)
        return Reply(_EMPTY)

    async def _tools(
        self,
        message: Message,
        revision: Revision,
        session: Session | None,
        sender: Sender,
        *,
        can_ask: bool,
        withdraw: Say | None,
    ) -> Reply | Running:
        assert message.id is not None
        params = message.params or {}
        if not _MODERN_PARAMS.isdisjoint(params):
            params = {key: value for key, value in params.items() if key not in _MODERN_PARAMS}
        level = None
        if session is not None and message.method == "tools/call":
            level = await self.sessions.level(session)
        meta = _meta(params, revision, session, level, can_ask=can_ask, outer=sender.trace)
        coming = self._router.dispatch(Call(message.id, message.method, params, meta), sender)
        # A coroutine only where something must be waited for.
        is_there = type(coming) is Execution or isinstance(coming, Answer)
        answer: Answer = coming if is_there else await coming  # type: ignore[assignment,misc]  # so it is
        if type(answer) is Execution:
            if session is not None:
                self._running[session.id, message.id] = answer
                if can_ask:
                    answer.asking = None  # the kind that asks in results
                    answer.begin_asking = partial(
                        LiveAsking, self.dialogues, session, sender.principal, withdraw=withdraw
                    )
            return Running(answer, session, revision, wraps(answer.tool.output.schema), self._quick)
        assert isinstance(answer, Reply)
        if message.method == "tools/list":
            return answer._replace(result=self._listed(answer.result, revision))
        tool = self._find_tool(sender.principal, params["name"])
        schema = tool.output.schema if tool is not None else None
        result = _called(answer.result, revision, wraps=wraps(schema), quick=self._quick)
        return answer._replace(result=result)


_MODERN_PARAMS: Final = frozenset({"requestState", "inputResponses"})
"""Members of ``params`` that older revisions do not have."""


def _called(result: bytes, revision: Revision, *, wraps: bool, quick: Quick) -> bytes:
    found = quick(result, revision, wraps=wraps)
    if found is not None:
        return found
    try:
        if not revision.argument_errors_as_results and is_argument_error(result):
            raise argument_error(result)
        return called(result, revision, wraps=wraps)
    except ProtocolError as error:
        error.is_observed = True  # how the call ended was told when it did
        raise


def _meta(
    params: Mapping[str, Any],
    revision: Revision,
    session: Session | None,
    level: str | None,
    *,
    can_ask: bool,
    outer: TraceContext | None,
) -> RequestMeta:
    """``_meta`` in modern terms: what a modern request says of itself, the session has said."""
    raw = params.get("_meta", {})
    if not isinstance(raw, dict):
        raise InvalidParams("params._meta must be an object.")
    token = raw.get("progressToken")
    if token is not None and type(token) not in (str, int):
        raise InvalidParams("_meta.progressToken must be a string or an integer.")
    trace = context_in_meta(raw) or outer
    return RequestMeta(
        revision.version,
        session.capabilities if session is not None and can_ask else {},
        session.client if session is not None else None,
        level,
        token,
        None if trace is None else trace.parent,
        raw,
        None if trace is None else trace.state,
    )
