"""The MCP endpoint: one POST in, one response out."""

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

import structlog

from app.auth.authenticator import Authenticator
from app.execution.execution import Execution
from app.http.address import Addresses
from app.http.calls import carry_call, mirror
from app.http.exchange import Disconnected, Exchange
from app.http.gate import NO_MEDIA, Gate
from app.http.legacy import LegacyEndpoint, no_session
from app.http.listening import carry_subscription
from app.http.responses import Receive, Scope, Send
from app.http.tracing import span_of
from app.methods.answers import Answer, Reply, Sender
from app.methods.observing import Observers
from app.methods.router import Router
from app.methods.subscriptions import Hub
from app.observability.logs import EventLog
from app.observability.spans import Spans
from app.principal import Principal
from app.protocol.errors import (
    HeaderMismatch,
    InternalError,
    NotAcceptable,
    ProtocolError,
    Unavailable,
    UnsupportedProtocolVersion,
)
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Call, Legacy, Notification, Rejected, classify, unsupported
from app.protocol.jsonrpc import result_response
from app.protocol.messages import ServerMessages
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS, RequestId
from app.settings import Settings

log = structlog.get_logger()
new: Final = tuple.__new__  # of a NamedTuple, in half the time


class Endpoint:
    """Serves the MCP endpoint.

    Args:
        router: Answers what has passed the checks.
        hub: Opens listen streams.
        legacy: Answers clients of older revisions; None: they are not served.
        observers: Told of calls that are refused here; None: nobody is.
        spans: Makes the spans of requests; None: there are none.

    Attributes:
        authenticator: Says who calls. Replaced in the step in which the rules are, when settings
            change.
    """

    def __init__(
        self,
        settings: Settings,
        router: Router,
        hub: Hub,
        messages: ServerMessages,
        authenticator: Authenticator,
        *,
        legacy: LegacyEndpoint | None,
        observers: Observers | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.authenticator = authenticator
        self._observers = observers
        self._legacy = legacy
        self._spans = spans
        self._execution_settings = settings.execution
        self._gate = Gate(settings.server, sessions=legacy is not None)
        self._addresses = Addresses(settings.server.trusted_proxies)
        self._router = router
        self._hub = hub
        self._messages = messages
        self._requests = EventLog("request")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        record, response = exchange.record, exchange.response
        record.address = self._addresses.of(scope, exchange.headers)
        try:
            if self._admit(exchange):
                known = self.authenticator.known(exchange.headers, scope["query_string"])
                exchange.principal = known or await self._ask(exchange)
                if scope["method"] != "POST":
                    await self._of_session(exchange)
                    return
                body = self._take(exchange)
                if body is None:
                    body = await self._read(exchange)
                rest = self._answer(exchange, body)
                del body  # a stream may live for days
                if rest is not None:
                    await rest
            else:
                await response.empty(204, self._gate.preflight(exchange.headers))
        except ProtocolError as error:
            record.refused(error)
            await self._refuse(error, exchange)
        except Disconnected:
            record.outcome = "cancelled"
            record.is_written = exchange.was_refused
        except asyncio.CancelledError:
            # Nobody but the end of the process cancels a request.
            record.outcome = "cancelled"
            if response.status:
                raise
            leaving = Unavailable("The server is shutting down.", retry_after_s=1)
            await response.error(leaving, record.id)
        except Exception:
            # Our bug, never the client's; it must get an answer all the same.
            record.outcome = "internal_error"
            log.exception("request_failed", method=record.method)
            if response.status:
                raise
            await response.error(InternalError("Internal error."), record.id)
        finally:
            self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        record = exchange.record
        if record.span is not None:
            record.span.leave()
        record.write(self._requests, exchange.response.status)

    def _admit(self, exchange: Exchange) -> bool:
        """Look at who may send here at all. False: it is a preflight.

        Raises:
            ProtocolError: The head is refused.
        """
        gate, headers = self._gate, exchange.headers
        method = exchange.scope["method"]
        if method == "POST" and not headers.repeated:
            try:
                cors, exchange.accepts = gate.admit(headers)
            except ProtocolError:
                # Media types come after who calls, so that a stranger learns nothing of them.
                cors = gate.check_sender(headers)
            if cors:
                exchange.response.add_headers(cors)
            return True
        exchange.response.add_headers(gate.check_sender(headers))
        if method == "OPTIONS":
            exchange.record.method = "preflight"
            return False
        if method != "POST":
            self._check_method(method, headers)
        return True

    def _check_method(self, method: str, headers: HeaderMap) -> None:
        """GET and DELETE are for sessions of older revisions.

        Raises:
            MethodNotAllowed: It is neither POST nor of a session.
        """
        if self._legacy is None or method not in ("GET", "DELETE"):
            self._gate.check_method(method)
        elif not self._legacy.is_of_session(headers):
            raise no_session(method)

    async def _of_session(self, exchange: Exchange) -> None:
        exchange.record.principal = exchange.principal
        legacy = self._legacy
        assert legacy is not None
        try:
            if exchange.scope["method"] == "GET":
                await legacy.listen(exchange)
            else:
                await legacy.end(exchange)
        except ProtocolError as error:
            if exchange.response.is_streaming:
                raise
            await legacy.refuse(error, None, exchange)

    # Who calls. Nothing may wait between the answer to this and the rules: what neither the old
    # settings nor the new ones allow must not pass while they are exchanged.

    async def _ask(self, exchange: Exchange) -> Principal:
        since = time.perf_counter()
        while True:
            authenticator, query = self.authenticator, exchange.scope["query_string"]
            try:
                principal = await authenticator.authenticate(exchange.headers, query)
            except ProtocolError:
                if authenticator is self.authenticator:
                    raise
                continue  # what the old settings could not say the new ones may
            if authenticator is self.authenticator:
                exchange.asked = (since, time.perf_counter())
                return principal

    def _take(self, exchange: Exchange) -> bytes | None:
        """The whole body, where that needs no waiting."""
        exchange.record.principal = exchange.principal
        if exchange.accepts is NO_MEDIA:
            exchange.accepts = self._gate.check_media(exchange.headers)
        connection = exchange.connection
        return connection.take_body() if connection is not None else None

    async def _read(self, exchange: Exchange) -> bytes | None:
        """The whole body; None if it is too large."""
        self._gate.check_size(exchange.headers)
        body = await exchange.read_body(self._gate.max_body_bytes)
        known = self.authenticator.known(exchange.headers, exchange.scope["query_string"])
        exchange.principal = known or await self._ask(exchange)
        exchange.record.principal = exchange.principal
        return body

    def _answer(self, exchange: Exchange, body: bytes | None) -> Awaitable[None] | None:
        """Answer a body. Returns what is left to wait for, if anything.

        Raises:
            ProtocolError: The message is refused.
        """
        if body is None or len(body) > self._gate.max_body_bytes:
            raise self._gate.too_large()
        record = exchange.record
        inbound = classify(exchange.headers, body, legacy=self._legacy is not None)
        if self._spans is not None:
            record.span = span_of(self._spans, inbound, exchange)
        match inbound:
            case Call() as call:
                record.call(call)
                return self._dispatch(call, exchange)
            case Rejected(error, id, name):
                record.id, record.method = id, name
                refusal = self._reject(error, id, body, exchange)
                del error, inbound  # its traceback holds this frame
                return refusal
            case Notification(name, params):
                record.method = name
                if self._legacy is not None and self._legacy.may_hear(exchange.headers):
                    return self._legacy.notification(name, params, exchange)
                return exchange.response.empty(202)
            case Legacy(message, version):
                record.of_legacy(message)
                if self._legacy is None:
                    raise _not_served(version)
                return self._legacy.request(message, version, exchange)

    def _reject(
        self, error: ProtocolError, id: RequestId | None, body: bytes, exchange: Exchange
    ) -> Awaitable[None]:
        """What is no message of the modern protocol, or is wrong in it."""
        legacy = self._legacy
        if legacy is not None:
            if legacy.may_take(body, exchange.headers):
                return legacy.other(body, error, exchange)
            is_version = isinstance(error, UnsupportedProtocolVersion)
            if is_version and legacy.is_of_session(exchange.headers):
                return legacy.refuse(error, id, exchange)
        exchange.record.refused(error)
        return self._refuse(error, exchange)

    async def _refuse(self, error: ProtocolError, exchange: Exchange) -> None:
        if self._observers is not None:
            await self._observers.refused(error, exchange.record)
        await exchange.response.error(error, exchange.record.id)

    def _dispatch(self, call: Call, exchange: Exchange) -> Awaitable[None] | None:
        sender = new(
            Sender,
            (exchange.principal, exchange.headers, exchange.record.address, exchange.record, None),
        )
        answer = self._router.dispatch(call, sender)
        if type(answer) is Execution:  # most are, and asking about a union takes its time
            return carry_call(answer, call.id, exchange, self._execution_settings)
        if isinstance(answer, Answer):
            return self._carry(answer, call, exchange)
        return self._carry_later(answer, call, exchange)

    async def _carry_later(
        self, coming: Coroutine[Any, Any, Answer], call: Call, exchange: Exchange
    ) -> None:
        rest = self._carry(await coming, call, exchange)
        if rest is not None:
            await rest

    def _carry(self, answer: Answer, call: Call, exchange: Exchange) -> Awaitable[None] | None:
        if isinstance(answer, Execution):
            return carry_call(answer, call.id, exchange, self._execution_settings)
        if isinstance(answer, Reply):
            exchange.record.answered(answer.outcome, answer.result)
            if answer.headers:
                mirror(answer.headers, exchange)
            message = result_response(call.id, answer.result)
            if not exchange.accepts.json:
                return exchange.response.finish(message)
            return (
                None if exchange.response.json_at_once(message) else exchange.response.json(message)
            )
        if not exchange.accepts.stream:
            raise NotAcceptable("subscriptions/listen answers with text/event-stream alone.")
        return carry_subscription(answer, call.id, exchange, self._hub, self._messages)


def _not_served(version: str | None) -> ProtocolError:
    """The refusal of a message of the ``initialize`` era, while that is not served."""
    if version is not None:
        return unsupported(version)
    served = ", ".join(MODERN_PROTOCOL_VERSIONS)
    return HeaderMismatch(
        f"The header MCP-Protocol-Version is required and missing. This server serves {served}; "
        "it has no initialize handshake."
    )
