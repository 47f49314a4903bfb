"""The MCP endpoint for clients of the revisions before 2026-07-28: sessions, batches, streams."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import structlog

from app.http.calls import mirror
from app.http.disconnect import SLOW_READER_S, watched
from app.http.exchange import Disconnected, Exchange
from app.http.gate import ALLOW_SESSIONS, negotiate
from app.http.legacy_calls import RETRY_MS, LegacyCalls
from app.http.listening import credential_of, tell
from app.http.responses import event, priming_event
from app.http.tracing import begin_span, meta_of
from app.legacy.errors import told
from app.legacy.notifications import TOOLS_LIST_CHANGED
from app.legacy.revisions import ASSUMED, REVISIONS, Revision
from app.methods.answers import Sender
from app.methods.observing import Observers
from app.methods.record import RequestRecord
from app.methods.subscriptions import Hub, Stream
from app.observability.logs import EventLog
from app.observability.spans import Spans
from app.protocol.errors import (
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotAcceptable,
    ParseError,
    ProtocolError,
)
from app.protocol.headers import HeaderMap
from app.protocol.inbound import unsupported, unsupported_by_all, unsupported_in_session
from app.protocol.jsonrpc import Batch, Message, loads, result_response
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS, RequestId
from app.protocol.trace_context import context_in_headers
from app.sessions.batches import is_response, read_batch
from app.sessions.methods import LegacyMethods, Running
from app.sessions.replays import Place, Replays, place_of
from app.sessions.tokens import Session

SESSION_HEADER: Final = b"mcp-session-id"
_ONCE: Final = {
    SESSION_HEADER: "Mcp-Session-Id",
    b"mcp-protocol-version": "MCP-Protocol-Version",
    b"last-event-id": "Last-Event-ID",
}
"""Headers of which a proxy might read one copy and this server another."""

_NONE_OR_MODERN: Final = ("", *MODERN_PROTOCOL_VERSIONS)
log = structlog.get_logger()


class LegacyEndpoint:
    """Answers what the modern endpoint hands over.

    Args:
        hub: Knows when somebody finds another list.
        observers: Told of calls that are refused here; None: nobody is.
        spans: Makes the spans of what is in batches; None: there are none.
    """

    def __init__(
        self,
        methods: LegacyMethods,
        calls: LegacyCalls,
        replays: Replays,
        hub: Hub,
        *,
        observers: Observers | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._observers = observers
        self._methods = methods
        self._calls = calls
        self._replays = replays
        self._hub = hub
        self._requests = EventLog("request")
        self._spans = spans

    @staticmethod
    def is_of_session(headers: HeaderMap) -> bool:
        """Whether a request belongs to a session of these revisions."""
        return SESSION_HEADER in headers

    @staticmethod
    def may_hear(headers: HeaderMap) -> bool:
        """Whether a notification may be one of these revisions."""
        return SESSION_HEADER in headers or _version(headers) not in _NONE_OR_MODERN

    @staticmethod
    def may_take(body: bytes, headers: HeaderMap) -> bool:
        """Whether a body that is no modern message may be something of these revisions."""
        start = body.lstrip()[:1]
        if SESSION_HEADER in headers:
            return start in (b"[", b"{")
        return start == b"[" and _version(headers) not in MODERN_PROTOCOL_VERSIONS

    # POST

    async def request(self, message: Message, version: str | None, exchange: Exchange) -> None:
        """Answer a request."""
        try:
            await self._request(message, version, exchange)
        except ProtocolError as error:
            if exchange.response.is_streaming:
                raise
            await self.refuse(error, message.id, exchange)
        except Disconnected:
            raise
        except Exception:
            # Our bug, never the client's, whose session goes on.
            if exchange.response.status:
                raise
            log.exception("request_failed", method=message.method)
            internal = InternalError("Internal error.")
            internal.is_observed = True  # a call that fails in its handler was told of there
            await self.refuse(internal, message.id, exchange)

    async def _request(self, message: Message, version: str | None, exchange: Exchange) -> None:
        session = await self._session(exchange)
        revision, span = _revision(session, version), exchange.record.span
        if message.method == "initialize":
            opened = self._methods.open(message, exchange.principal)
            exchange.record.of_client(opened.client, opened.revision.version)
            if span is not None:
                span.of_version(opened.revision.version)
            exchange.response.add_headers([(SESSION_HEADER, opened.token.encode())])
            await self._send(result_response(_id(message), opened.result), exchange)
            return
        if span is not None:
            span.of_version(revision.version)
        answer = await self._methods.answer(
            message,
            revision,
            session,
            _sender(exchange, exchange.record),
            can_ask=session is not None and exchange.accepts.stream,
        )
        if isinstance(answer, Running):
            await self._calls.carry(answer, _id(message), session, exchange)
            return
        exchange.record.answered(answer.outcome, answer.result)
        if answer.headers:
            mirror(answer.headers, exchange)
        await self._send(result_response(_id(message), answer.result), exchange)

    async def notification(
        self, method: str, params: Mapping[str, Any] | None, exchange: Exchange
    ) -> None:
        """Take notice of what a client tells.

        Raises:
            UnsupportedProtocolVersion: Without a session, of a revision that nobody serves.
        """
        version = _version(exchange.headers)
        if not self.is_of_session(exchange.headers) and version not in REVISIONS:
            raise unsupported_by_all(unsupported(version))
        try:
            session = await self._session(exchange)
        except ProtocolError as error:
            await self.refuse(error, None, exchange)
            return
        if session is not None and method == "notifications/cancelled":
            await self._methods.cancel(session, params)
        await exchange.response.empty(202)

    async def other(self, body: bytes, error: ProtocolError, exchange: Exchange) -> None:
        """A body that is no single request or notification: a batch, or an answer of the client.

        Args:
            error: What is wrong with it on the modern wire.
        """
        try:
            await self._other(body, error, exchange)
        except ProtocolError as refusal:
            await self.refuse(refusal, None, exchange)

    async def _other(self, body: bytes, error: ProtocolError, exchange: Exchange) -> None:
        session = await self._session(exchange)
        try:
            value = loads(body)
        except ParseError:
            raise error from None
        if isinstance(value, list):
            revision = _revision(session, _version(exchange.headers) or None)
            batch = read_batch(value, revision, in_session=session is not None)
            await self._batch(batch, revision, session, exchange)
        elif session is not None and is_response(value):
            await self._methods.dialogues.answered(session, value)
            await exchange.response.empty(202)
        else:
            raise error

    async def refuse(self, error: ProtocolError, id: RequestId | None, exchange: Exchange) -> None:
        """Tell an error in the form of these revisions."""
        exchange.record.refused(error)
        if self._observers is not None:
            await self._observers.refused(error, exchange.record)
        legacy = told(error)
        if exchange.record.span is not None:
            exchange.record.span.refused(error, legacy.error["code"])
        exchange.response.add_headers(legacy.headers)
        # In band where it answers a request; GET, DELETE and notifications have the status alone.
        status = error.http_status if id is None else legacy.http_status
        await exchange.response.json(legacy.response(id), status)

    async def _batch(
        self, batch: Batch, revision: Revision, session: Session | None, exchange: Exchange
    ) -> None:
        exchange.record.method = "batch"
        for response in batch.responses:
            assert session is not None
            await self._methods.dialogues.answered(session, response)
        for message in batch.notifications:
            if message.method == "notifications/cancelled" and session is not None:
                await self._methods.cancel(session, message.params)
        coming = (self._of_batch(each, revision, session, exchange) for each in batch.requests)
        answers = [answer for answer in await asyncio.gather(*coming) if answer is not None]
        if not answers:
            await exchange.response.empty(202)
        elif exchange.accepts.json:
            await exchange.response.json(b"[%b]" % b",".join(answers))
        else:
            frames = [event(answer) for answer in answers]
            await exchange.response.open_stream(b"".join(frames))
            await exchange.response.end()

    async def _of_batch(
        self, message: Message, revision: Revision, session: Session | None, exchange: Exchange
    ) -> bytes | None:
        """The response to one request of a batch: whole, and without a stream to ask on.

        None: the client has cancelled it meanwhile.
        """
        id = _id(message)
        record = exchange.record.part(message)
        if self._spans is not None:
            record.span = begin_span(
                self._spans,
                exchange,
                message.method,
                message.id,
                meta=meta_of(message),
                version=revision.version,
            )
            if session is not None:
                record.span.of_session(session.id)
        sender = _sender(exchange, record)
        try:
            answer = await self._methods.answer(message, revision, session, sender, can_ask=False)
            if not isinstance(answer, Running):
                record.answered(answer.outcome, answer.result)
                return result_response(id, answer.result)
            return await self._end_of_batch(answer, id, record)
        except ProtocolError as error:
            if self._observers is not None:
                await self._observers.refused(error, record)
            record.refused(error)
            return told(error).response(id)
        except Exception:
            # Our bug; the others of the batch go on.
            record.outcome = "internal_error"
            log.exception("request_failed", method=message.method)
            return told(InternalError("Internal error.")).response(id)
        finally:
            record.write(self._requests)

    async def _end_of_batch(
        self, running: Running, id: RequestId, record: RequestRecord
    ) -> bytes | None:
        execution = running.execution
        try:
            while not execution.is_settled:
                execution.take_notifications()
                await execution.wait()
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            self._methods.finished(running.session, id)
            record.ended(execution)
        return None if execution.cancelled else result_response(id, running.result())

    async def _send(self, message: bytes, exchange: Exchange) -> None:
        if not exchange.accepts.json:
            await exchange.response.finish(message)
        elif not exchange.response.json_at_once(message):
            await exchange.response.json(message)

    # GET and DELETE

    async def end(self, exchange: Exchange) -> None:
        """DELETE: the session counts no longer.

        Raises:
            ProtocolError: There is none to end.
        """
        exchange.record.method = "session/end"
        session = await self._session(exchange)
        assert session is not None
        await self._methods.end(session)
        await exchange.response.empty(204)

    async def listen(self, exchange: Exchange) -> None:
        """GET: the rest of a stream, or the stream of what changes.

        Raises:
            ProtocolError: There is no such session, or no place for another stream.
        """
        exchange.record.method = "session/listen"
        if not negotiate(exchange.headers.get(b"accept", b"")).stream:
            raise NotAcceptable("This stream is text/event-stream alone.")
        session = await self._session(exchange)
        assert session is not None
        last = exchange.headers.get(b"last-event-id", b"").decode("latin-1")
        place = place_of(last) if session.revision.resumption else None
        stream = self._hub.open(exchange.principal, credential_of(exchange), SLOW_READER_S)
        client = watched(exchange, stream.leave)
        stream.drop = client.abort
        forget = self._methods.on_end(session.id, stream.end)
        try:
            if place is None:
                await exchange.response.open_stream()
            else:
                # At once: other replicas are asked, and nobody must wait for the head meanwhile.
                await exchange.response.open_stream(priming_event(last, RETRY_MS))
                if await self._replay(session, place, stream, exchange):
                    return
            await tell(stream, event(TOOLS_LIST_CHANGED), exchange.response)
            if stream.gone:
                exchange.response.disconnected()
            else:
                await exchange.response.end()
        finally:
            forget()
            client.on_disconnect(None)
            self._hub.close(stream)

    async def _replay(
        self, session: Session, place: Place, stream: Stream, exchange: Exchange
    ) -> bool:
        """Send what a client has missed. False: there is nothing of that stream.

        What changes meanwhile is not told on it: it is the stream of a call.
        """
        response, loop = exchange.response, asyncio.get_running_loop()
        has_found = False
        async with aclosing(self._replays.events(session, place)) as events:
            async for found in events:
                if stream.gone:
                    response.disconnected()
                    return True
                if stream.closing:
                    break
                if found is None and not stream.quiet:
                    continue
                stream.writing_since = loop.time()
                if found is None:
                    await response.keep_alive()
                else:
                    has_found = True
                    await response.notify(event(found[1], found[0]))
                stream.quiet, stream.writing_since = False, None
                stream.quiet_since = loop.time()
        if stream.gone:
            response.disconnected()
        elif has_found or stream.closing:
            await response.end()
        return has_found or stream.gone or stream.closing

    async def _session(self, exchange: Exchange) -> Session | None:
        """The session that a request names; None: it names none.

        Raises:
            ProtocolError: There is no such session (any more) of this caller.
        """
        headers = exchange.headers
        for name, display in _ONCE.items():
            if name in headers.repeated:
                raise InvalidRequest(f"The header {display} was sent more than once.")
        version = _version(headers)
        if version and version not in REVISIONS:
            raise unsupported_in_session(version)
        token = headers.get(SESSION_HEADER)
        if token is None:
            return None
        session = await self._methods.sessions.find(token.decode("latin-1"), exchange.principal)
        exchange.record.of_client(session.client, session.revision.version)
        if exchange.record.span is not None:
            exchange.record.span.of_session(session.id)
        return session


def no_session(method: str) -> MethodNotAllowed:
    """The refusal of a GET or DELETE that names no session."""
    return MethodNotAllowed(
        f"The MCP endpoint takes POST; {method[:16]} is for sessions that initialize has opened, "
        "with the header Mcp-Session-Id.",
        allow=ALLOW_SESSIONS,
    )


def _revision(session: Session | None, version: str | None) -> Revision:
    if session is not None:
        return session.revision
    return ASSUMED if version is None else REVISIONS[version]


def _sender(exchange: Exchange, record: RequestRecord) -> Sender:
    headers = exchange.headers
    trace = context_in_headers(headers) if b"traceparent" in headers else None
    if trace is not None and record.trace_id is None:
        record.trace_id = trace.trace_id
    return Sender(exchange.principal, None, record.address, record, trace)


def _id(message: Message) -> RequestId:
    assert message.id is not None
    return message.id


def _version(headers: HeaderMap) -> str:
    return headers.get(b"mcp-protocol-version", b"").decode("latin-1").strip(" \t")
