"""The MCP endpoint: one POST in, one response out."""

import asyncio

import structlog

from app.execution.execution import Execution
from app.http.address import Addresses
from app.http.calls import carry_call
from app.http.gate import Accepts, Gate
from app.http.listening import carry_subscription
from app.http.record import RequestRecord
from app.http.responses import Receive, Response, Scope, Send
from app.methods.router import Reply, Router, Subscription
from app.methods.subscriptions import Hub
from app.principal import ANONYMOUS
from app.protocol.errors import (
    HeaderMismatch,
    InternalError,
    NotAcceptable,
    ProtocolError,
)
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Call, Legacy, Notification, Rejected, classify, unsupported
from app.protocol.jsonrpc import result_response
from app.protocol.messages import ServerMessages
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS
from app.settings import Settings

log = structlog.get_logger()


class Disconnected(Exception):
    """The client went before its request was complete."""


class Endpoint:
    """Serves the MCP endpoint.

    Args:
        router: Answers what has passed the checks.
        hub: Opens listen streams.
    """

    def __init__(
        self, settings: Settings, router: Router, hub: Hub, messages: ServerMessages
    ) -> None:
        self._settings = settings
        self._gate = Gate(settings.server)
        self._addresses = Addresses(settings.server.trusted_proxies)
        self._router = router
        self._hub = hub
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = HeaderMap(scope["headers"])
        response = Response(send)
        record = RequestRecord(self._addresses.of(scope, headers))
        try:
            await self._serve(scope, receive, headers, response, record)
        except ProtocolError as error:
            record.error(error)
            await response.error(error, record.id)
        except Disconnected:
            record.outcome = "cancelled"
        except asyncio.CancelledError:
            record.outcome = "cancelled"
            raise
        except Exception:  # noqa: BLE001  # our bug; the client must still get an answer
            record.outcome = "internal_error"
            log.exception("request_failed", method=record.method)
            if not response.is_streaming and response.status == 0:
                await response.error(InternalError("Internal error."), record.id)
            else:
                raise
        finally:
            record.write(response.status)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        headers: HeaderMap,
        response: Response,
        record: RequestRecord,
    ) -> None:
        response.add_headers(self._gate.check_sender(headers))
        if scope["method"] == "OPTIONS":
            record.method = "preflight"
            await response.empty(204, self._gate.preflight(headers))
            return
        self._gate.check_method(scope["method"])
        accepts = self._gate.check_media(headers)
        body = await self._read_body(receive)
        message = classify(headers, body)
        match message:
            case Call():
                record.call(message)
                await self._answer(message, scope, receive, headers, accepts, response, record)
            case Rejected(error, id, method):
                record.id, record.method = id, method
                raise error
            case Notification(method):
                record.method = method
                await response.empty(202)
            case Legacy(legacy, version):
                record.id, record.method = legacy.id, legacy.method
                raise _not_served(version)

    async def _answer(
        self,
        call: Call,
        scope: Scope,
        receive: Receive,
        headers: HeaderMap,
        accepts: Accepts,
        response: Response,
        record: RequestRecord,
    ) -> None:
        answer = self._router.dispatch(call, ANONYMOUS, headers)
        if isinstance(answer, Reply):
            record.outcome = answer.outcome
            response.add_headers(answer.headers)
            message = result_response(call.id, answer.result)
            if accepts.json:
                await response.json(message)
            else:
                await response.finish(message)
        elif isinstance(answer, Execution):
            await carry_call(
                answer, call, scope, receive, accepts, response, self._settings.execution
            )
            record.outcome, record.error_id = answer.outcome.value, answer.error_id
        else:
            await self._listen(answer, call, scope, receive, accepts, response)

    async def _listen(
        self,
        subscription: Subscription,
        call: Call,
        scope: Scope,
        receive: Receive,
        accepts: Accepts,
        response: Response,
    ) -> None:
        if not accepts.stream:
            raise NotAcceptable("subscriptions/listen answers with text/event-stream alone.")
        await carry_subscription(
            subscription, call, scope, receive, response, self._hub, self._messages
        )

    async def _read_body(self, receive: Receive) -> bytes:
        """The whole body, never more than the bound of it in memory.

        Raises:
            PayloadTooLarge: Chunked or announced, it is over the bound.
            Disconnected: The client left in the middle.
        """
        message = await receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.disconnect":
            raise Disconnected
        if not message.get("more_body", False):
            if len(body) > self._gate.max_body_bytes:
                raise self._gate.too_large()
            return body
        parts, size = [body], len(body)
        while message.get("more_body", False):
            if size > self._gate.max_body_bytes:
                raise self._gate.too_large()
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if size > self._gate.max_body_bytes:
            raise self._gate.too_large()
        return b"".join(parts)


def _not_served(version: str | None) -> ProtocolError:
    """The refusal of a message of the ``initialize`` era, while that is not served."""
    if version is not None:
        return unsupported(version)
    served = ", ".join(MODERN_PROTOCOL_VERSIONS)
    return HeaderMismatch(
        f"The header MCP-Protocol-Version is required and missing. This server serves {served}; "
        "it has no initialize handshake."
    )


