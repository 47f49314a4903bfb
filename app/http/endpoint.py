"""The MCP endpoint: one POST in, one response out."""

import asyncio

import structlog

from app.execution.execution import Execution
from app.http.address import Addresses
from app.http.calls import carry_call
from app.http.exchange import Disconnected, Exchange
from app.http.gate import Gate
from app.http.listening import carry_subscription
from app.http.responses import Receive, Scope, Send
from app.methods.answers import Reply
from app.methods.router import Router
from app.methods.subscriptions import Hub
from app.observability.logs import EventLog
from app.principal import ANONYMOUS
from app.protocol.errors import (
    HeaderMismatch,
    InternalError,
    NotAcceptable,
    ProtocolError,
    Unavailable,
)
from app.protocol.inbound import Call, Legacy, Notification, Rejected, classify, unsupported
from app.protocol.jsonrpc import result_response
from app.protocol.messages import ServerMessages
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS
from app.settings import Settings

log = structlog.get_logger()


class Endpoint:
    """Serves the MCP endpoint.

    Args:
        router: Answers what has passed the checks.
        hub: Opens listen streams.
    """

    def __init__(
        self, settings: Settings, router: Router, hub: Hub, messages: ServerMessages
    ) -> None:
        self._execution_settings = settings.execution
        self._gate = Gate(settings.server)
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
            await self._serve(exchange)
        except ProtocolError as error:
            record.refused(error)
            await response.error(error, record.id)
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
            record.write(self._requests, response.status)

    async def _serve(self, exchange: Exchange) -> None:
        gate, headers, record = self._gate, exchange.headers, exchange.record
        exchange.response.add_headers(gate.check_sender(headers))
        method = exchange.scope["method"]
        if method == "OPTIONS":
            record.method = "preflight"
            await exchange.response.empty(204, gate.preflight(headers))
            return
        gate.check_method(method)
        exchange.accepts = gate.check_media(headers)
        body = exchange.body_at_hand()
        if body is None:
            body = await exchange.read_body(gate.max_body_bytes)
        if body is None or len(body) > gate.max_body_bytes:
            raise gate.too_large()
        match classify(headers, body):
            case Call() as call:
                record.call(call)
                await self._answer(call, exchange)
            case Rejected(error, id, name):
                record.id, record.method = id, name
                raise error
            case Notification(name):
                record.method = name
                await exchange.response.empty(202)
            case Legacy(message, version):
                record.id, record.method = message.id, message.method
                raise _not_served(version)

    async def _answer(self, call: Call, exchange: Exchange) -> None:
        answer = self._router.dispatch(call, ANONYMOUS, exchange.headers)
        record, response = exchange.record, exchange.response
        if isinstance(answer, Execution):
            await carry_call(answer, call, exchange, self._execution_settings)
            record.outcome, record.error_id = answer.outcome, answer.error_id
        elif isinstance(answer, Reply):
            record.outcome = answer.outcome
            message = result_response(call.id, answer.result)
            if not exchange.accepts.json:
                await response.finish(message)
            elif not response.json_at_once(message):
                await response.json(message)
        else:
            if not exchange.accepts.stream:
                raise NotAcceptable("subscriptions/listen answers with text/event-stream alone.")
            await carry_subscription(answer, call, exchange, self._hub, self._messages)


def _not_served(version: str | None) -> ProtocolError:
    """The refusal of a message of the ``initialize`` era, while that is not served."""
    if version is not None:
        return unsupported(version)
    served = ", ".join(MODERN_PROTOCOL_VERSIONS)
    return HeaderMismatch(
        f"The header MCP-Protocol-Version is required and missing. This server serves {served}; "
        "it has no initialize handshake."
    )
