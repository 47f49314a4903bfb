"""The MCP endpoint for clients of the revisions before 2026-07-28: sessions, batches, streams."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

from app.http.disconnect import SLOW_READER_S, Watch
from app.http.exchange import Exchange
from app.http.gate import negotiate
from app.http.legacy_calls import RETRY_MS, LegacyCalls
from app.http.listening import credential_of
from app.http.responses import event, priming_event
from app.legacy.errors import told
from app.legacy.notifications import TOOLS_LIST_CHANGED
from app.legacy.revisions import ASSUMED, REVISIONS, Revision
from app.methods.answers import Sender
from app.methods.subscriptions import Hub, Stream
from app.protocol.errors import (
    InvalidRequest,
    MethodNotAllowed,
    NotAcceptable,
    ParseError,
    ProtocolError,
)
from app.protocol.headers import HeaderMap
from app.protocol.jsonrpc import BadEnvelope, Message, dumps, loads, message_of, result_response
from app.protocol.schema import PROTOCOL_VERSION_KEY, RequestId
from app.sessions.methods import LegacyMethods, Running
from app.sessions.replays import Place, Replays, place_of
from app.sessions.tokens import Session

SESSION_HEADER: Final = b"mcp-session-id"
MAX_BATCH: Final = 100
ALLOW: Final = "GET, POST, DELETE, OPTIONS"


class LegacyEndpoint:
    """Answers what the modern endpoint hands over.

    Args:
        hub: Knows when somebody finds another list.
    """

    def __init__(
        self, methods: LegacyMethods, calls: LegacyCalls, replays: Replays, hub: Hub
    ) -> None:
        self._methods = methods
        self._calls = calls
        self._replays = replays
        self._hub = hub

    @staticmethod
    def is_of_session(headers: HeaderMap) -> bool:
        """Whether a request belongs to a session of these revisions."""
        return SESSION_HEADER in headers

    @staticmethod
    def may_take(body: bytes, headers: HeaderMap) -> bool:
        """Whether a body that is no modern message may be something of these revisions."""
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1").strip()
        if version and version not in REVISIONS:
            return False
        start = body.lstrip()[:1]
        return start == b"[" or (start == b"{" and SESSION_HEADER in headers)

    # POST

    async def request(self, message: Message, version: str | None, exchange: Exchange) -> None:
        """Answer a request."""
        try:
            session = await self._session(exchange)
            if message.method == "initialize":
                opened = self._methods.open(message, exchange.principal)
                token = (b"mcp-session-id", opened.token.encode())
                exchange.response.add_headers([token])
                await self._send(result_response(_id(message), opened.result), exchange)
                return
            answer = await self._methods.answer(
                message,
                _revision(session, version),
                session,
                _sender(exchange),
                can_ask=session is not None and exchange.accepts.stream,
            )
            if isinstance(answer, Running):
                await self._calls.carry(answer, _id(message), session, exchange)
            else:
                await self._send(result_response(_id(message), answer), exchange)
        except ProtocolError as error:
            if exchange.response.is_streaming:
                raise
            await self.refuse(error, message.id, exchange)

    async def notification(
        self, method: str, params: Mapping[str, Any] | None, exchange: Exchange
    ) -> None:
        """Take notice of what a client tells in its session."""
        session = await self._session(exchange)
        if session is not None and method == "notifications/cancelled":
            await self._methods.cancel(session, params)
        await exchange.response.empty(202)

    async def other(self, body: bytes, error: ProtocolError, exchange: Exchange) -> None:
        """A body that is no single request or notification: a batch, or an answer of the client.

        Args:
            error: What is wrong with it on the modern wire.

        Raises:
            ProtocolError: It is wrong here as well.
        """
        try:
            value = loads(body)
        except ParseError:
            raise error from None
        headers = exchange.headers
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1").strip() or None
        session = await self._session(exchange)
        if isinstance(value, list):
            await self._batch(value, _revision(session, version), session, exchange)
        elif session is not None and _is_response(value):
            await self._methods.dialogues.answered(session, value)
            await exchange.response.empty(202)
        else:
            raise error

    async def refuse(self, error: ProtocolError, id: RequestId | None, exchange: Exchange) -> None:
        """Tell an error in the form of these revisions."""
        exchange.record.refused(error)
        legacy = told(error)
        exchange.response.add_headers(legacy.headers)
        await exchange.response.json(_error(legacy.error, id), legacy.http_status)

    async def _batch(
        self, values: list[Any], revision: Revision, session: Session | None, exchange: Exchange
    ) -> None:
        if not revision.batches:
            raise InvalidRequest(
                f"Revision {revision.version} has no batches; send one message per POST."
            )
        if not 0 < len(values) <= MAX_BATCH:
            raise InvalidRequest(f"A batch has 1 to {MAX_BATCH} messages; this has {len(values)}.")
        messages = []
        for value in values:
            if session is not None and _is_response(value):
                await self._methods.dialogues.answered(session, value)
                continue
            try:
                message = message_of(value)
            except BadEnvelope as bad:
                raise bad.error from None
            meta = (message.params or {}).get("_meta")
            if message.method == "initialize":
                raise InvalidRequest("initialize must not be part of a batch.")
            if isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta:
                raise InvalidRequest("Requests of 2026-07-28 come one per POST.")
            messages.append(message)
        exchange.record.method = "batch"
        requests = [message for message in messages if message.id is not None]
        for message in messages:
            if message.id is None and message.method == "notifications/cancelled" and session:
                await self._methods.cancel(session, message.params)
        if not requests:
            await exchange.response.empty(202)
            return
        sender = _sender(exchange)
        answers = await asyncio.gather(
            *(self._of_batch(message, revision, session, sender) for message in requests)
        )
        if exchange.accepts.json:
            await exchange.response.json(b"[%b]" % b",".join(answers))
        else:
            frames = [event(answer) for answer in answers]
            await exchange.response.open_stream(b"".join(frames))
            await exchange.response.end()

    async def _of_batch(
        self, message: Message, revision: Revision, session: Session | None, sender: Sender
    ) -> bytes:
        """The response to one request of a batch: whole, and without a stream to ask on."""
        id = _id(message)
        try:
            answer = await self._methods.answer(message, revision, session, sender, can_ask=False)
            if isinstance(answer, Running):
                try:
                    while not answer.execution.is_over:
                        answer.execution.take_notifications()
                        await answer.execution.wait()
                finally:
                    self._methods.finished(session, id)
                if answer.execution.result is None:
                    raise InvalidRequest("The request was cancelled.")
                answer = answer.result()
        except ProtocolError as error:
            return _error(told(error).error, id)
        return result_response(id, answer)

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
        await self._methods.sessions.end(session)
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
        watch = Watch(exchange.connection, exchange.receive, stream.leave)
        stream.drop = watch.abort
        try:
            if place is None:
                await exchange.response.open_stream()
            else:
                # At once: other replicas are asked, and nobody must wait for the head meanwhile.
                await exchange.response.open_stream(priming_event(last, RETRY_MS))
                if await self._replay(session, place, stream, exchange):
                    return
            await _tell(stream, exchange)
        finally:
            watch.stop()
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
        token = exchange.headers.get(SESSION_HEADER)
        if token is None:
            return None
        if SESSION_HEADER in exchange.headers.repeated:
            raise InvalidRequest("The header Mcp-Session-Id was sent more than once.")
        return await self._methods.sessions.find(token.decode("latin-1"), exchange.principal)


def no_session(method: str) -> MethodNotAllowed:
    """The refusal of a GET or DELETE that names no session."""
    return MethodNotAllowed(
        f"The MCP endpoint takes POST; {method[:16]} is for sessions that initialize has opened, "
        "with the header Mcp-Session-Id.",
        allow=ALLOW,
    )


async def _tell(stream: Stream, exchange: Exchange) -> None:
    response, loop = exchange.response, asyncio.get_running_loop()
    changed = event(TOOLS_LIST_CHANGED)
    while True:
        stream.quiet_since = loop.time()
        await stream.wait()
        if stream.gone:
            response.disconnected()
            return
        stream.writing_since = loop.time()
        if stream.changed:
            stream.changed = False
            await response.notify(changed)
        elif stream.quiet and not stream.closing:
            await response.keep_alive()
        stream.quiet = False
        stream.writing_since = None
        if stream.closing and not stream.changed:
            await response.end()
            return


def _revision(session: Session | None, version: str | None) -> Revision:
    if session is not None:
        return session.revision
    return ASSUMED if version is None else REVISIONS[version]


def _sender(exchange: Exchange) -> Sender:
    return Sender(exchange.principal, None, exchange.record.address)


def _id(message: Message) -> RequestId:
    assert message.id is not None
    return message.id


def _is_response(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("jsonrpc") == "2.0"
        and "method" not in value
        and ("result" in value or "error" in value)
    )


def _error(error: Mapping[str, Any], id: RequestId | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "error": dict(error)}
    if id is not None:
        message["id"] = id
    return dumps(message)
