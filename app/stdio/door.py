"""The stdio door: one line in, as many lines out as it takes."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from app.auth.authenticator import Authenticator
from app.execution.execution import Execution
from app.methods.answers import Answer, Reply, Sender
from app.methods.observing import CALL, Observers
from app.methods.record import RequestRecord
from app.methods.router import Router
from app.methods.subscriptions import Hub
from app.observability.logs import EventLog
from app.observability.spans import RequestSpan, Spans
from app.protocol.errors import (
    InternalError,
    InvalidRequest,
    PayloadTooLarge,
    ProtocolError,
    Unavailable,
)
from app.protocol.headers import HeaderMap
from app.protocol.inbound import (
    Call,
    Legacy,
    Notification,
    Rejected,
    Response,
    classify_message,
    without_version,
)
from app.protocol.jsonrpc import (
    BadEnvelope,
    Message,
    error_response,
    loads,
    request_id,
    result_response,
)
from app.protocol.messages import ServerMessages
from app.protocol.schema import RequestId
from app.stdio.carrying import carry_call, carry_subscription
from app.stdio.channel import Channel
from app.stdio.flight import Flight, Together
from app.stdio.legacy import LegacyDoor

LAST_WORD_S: Final = 0.5
"""How long calls that were stopped may take to say so."""

log = structlog.get_logger()

Rest = Coroutine[Any, Any, None] | None
Serve = Callable[[Flight, Sender], Rest]
"""Answers a request; what it returns is still to be waited for."""


class Door:
    """Serves the one client of this process.

    Args:
        authenticator: Gives the one that counts now. Who calls is asked for each request, since
            a credential may expire or be revoked while the process runs.
        credential: The headers by which who calls becomes known.
        max_line_bytes: For the refusal of a line that was too long.
        legacy: Serves requests without a modern ``_meta``; None: nobody does.
        observers: Told of calls that are refused here; None: nobody is.
        spans: Makes the spans of requests; None: there are none.
    """

    def __init__(
        self,
        channel: Channel,
        router: Router,
        hub: Hub,
        messages: ServerMessages,
        *,
        authenticator: Callable[[], Authenticator],
        credential: HeaderMap,
        max_line_bytes: int,
        legacy: LegacyDoor | None = None,
        observers: Observers | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._observers = observers
        self._channel = channel
        self._router = router
        self._hub = hub
        self._messages = messages
        self._authenticator = authenticator
        self._credential = credential
        self._max_line_bytes = max_line_bytes
        self._legacy = legacy
        self._spans = spans
        self._flights: dict[RequestId, Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = EventLog("request")

    async def read(self) -> None:
        """Take the client's lines until there are no more."""
        async for line in self._channel.lines():
            # Ours: an empty line says nothing, and some clients end their last line twice.
            if line is None or line.strip():
                try:
                    self.take(line)
                except Exception:  # a bug of ours, which must not cost the client its server
                    log.exception("request_failed", method=None)

    def take(self, line: bytes | None) -> None:
        """One line of the client; None: it was too long."""
        if line is None:
            text = f"The line is longer than {self._max_line_bytes} bytes."
            self._refuse(PayloadTooLarge(text))
            return
        match classify_message(line):
            case Call() as call:
                message = Message(call.id, call.method, call.params)
                self._begin(message, partial(self._dispatch, call), call)
            case Legacy(message, _):
                self._begin(message, partial(self._pass_on, message, False))
            case Notification() as notification:
                self._hear(notification)
            case Response(_, error) as response:
                if self._legacy is None:
                    self._refuse(error)
                else:
                    self._legacy.tell(response)
            case Rejected(_, None) if self._legacy is not None and line.lstrip()[:1] == b"[":
                self._take_batch(line)
            case Rejected(error, id, method, meta):
                self._refuse(error, id, method, meta=meta)

    async def finish(self, grace_s: float, give_up: Callable[[], None]) -> None:
        """No more lines come: let what runs end, then end it.

        Args:
            give_up: Stops running calls, so that they answer.
        """
        self._hub.shut_down()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        if self._tasks:
            give_up()
            await asyncio.wait(self._tasks, timeout=LAST_WORD_S)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORD_S)

    # Requests. Nothing may wait between who calls and the rules: what neither the old settings
    # nor the new ones allow must not pass while they are exchanged.

    def _begin(
        self,
        message: Message,
        serve: Serve,
        call: Call | None = None,
        batch: Together | None = None,
    ) -> None:
        id, method, meta = message.id, message.method, (message.params or {}).get("_meta")
        assert id is not None
        put = self._channel.put if batch is None else batch.add
        if id in self._flights:
            text = "A request with this id is under way; each needs an id of its own."
            self._refuse(InvalidRequest(text), id, method, batch, meta)
            return
        flight = Flight(id, method, put)
        if call is not None:
            flight.record.call(call)
        if self._spans is not None:
            version = None if call is None else call.meta.protocol_version
            flight.record.span = _begin_span(self._spans, method, id, meta, version)
        try:
            self._serve(flight, serve, batch)
        finally:
            if flight.record.span is not None:
                flight.record.span.leave()

    def _serve(self, flight: Flight, serve: Serve, batch: Together | None) -> None:
        id, method = flight.id, flight.record.method or ""
        try:
            principal = self._authenticator().known(self._credential, b"")
            if principal is None:
                rest: Rest = self._ask(flight, serve)
            else:
                flight.record.principal = principal
                rest = serve(flight, Sender(principal, record=flight.record))
        except ProtocolError as error:
            rest = self._refuse_flight(error, flight)
        except Exception:
            # Our bug, never the client's; it must get an answer all the same.
            log.exception("request_failed", method=method)
            flight.refuse(InternalError("Internal error."))
            rest = None
        if rest is None:
            flight.record.write(self._requests)
            return
        self._flights[id] = flight
        flight.task = asyncio.create_task(self._carry(flight, rest), name=f"request {method[:64]}")
        self._tasks.add(flight.task)
        flight.task.add_done_callback(self._tasks.discard)
        if batch is not None:
            batch.wait_for(flight.task)

    async def _carry(self, flight: Flight, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except ProtocolError as error:
            refusing = self._refuse_flight(error, flight)
            if refusing is not None:
                await refusing
        except asyncio.CancelledError:
            # The client's wish, after which nothing is sent; or the end of the process.
            leaving = Unavailable("The server is shutting down.", retry_after_s=1)
            flight.send(error_response(flight.id, leaving))
            flight.record.outcome = "cancelled"
        except Exception:
            log.exception("request_failed", method=flight.record.method)
            flight.refuse(InternalError("Internal error."))
        finally:
            if self._flights.get(flight.id) is flight:
                del self._flights[flight.id]
            flight.record.write(self._requests)

    def _refuse_flight(self, error: ProtocolError, flight: Flight) -> Rest:
        flight.record.refused(error)
        if self._observers is not None:
            return self._refuse_observed(self._observers, error, flight.record, flight.send)
        flight.send(error_response(flight.id, error))
        return None

    async def _refuse_observed(
        self,
        observers: Observers,
        error: ProtocolError,
        record: RequestRecord,
        send: Callable[[bytes], None],
    ) -> None:
        await observers.refused(error, record)
        send(error_response(record.id, error))

    async def _ask(self, flight: Flight, serve: Serve) -> None:
        while True:
            authenticator = self._authenticator()
            try:
                principal = await authenticator.authenticate(self._credential, b"")
            except ProtocolError:
                if authenticator is self._authenticator():
                    raise
                continue  # what the old settings could not say the new ones may
            if authenticator is self._authenticator():
                break
        flight.record.principal = principal
        rest = serve(flight, Sender(principal, record=flight.record))
        if rest is not None:
            await rest

    def _dispatch(self, call: Call, flight: Flight, sender: Sender) -> Rest:
        answer = self._router.dispatch(call, sender)
        if isinstance(answer, Answer):
            return self._give(answer, flight, sender)
        return self._give_later(answer, flight, sender)

    async def _give_later(
        self, coming: Coroutine[Any, Any, Answer], flight: Flight, sender: Sender
    ) -> None:
        rest = self._give(await coming, flight, sender)
        if rest is not None:
            await rest

    def _give(self, answer: Answer, flight: Flight, sender: Sender) -> Rest:
        if isinstance(answer, Execution):
            return carry_call(answer, flight, self._channel)
        if isinstance(answer, Reply):
            flight.record.answered(answer.outcome, answer.result)
            flight.send(result_response(flight.id, answer.result))
            return None
        return carry_subscription(
            answer,
            flight,
            self._channel,
            hub=self._hub,
            messages=self._messages,
            principal=sender.principal,
            credential=self._credential,
        )

    def _pass_on(self, message: Message, in_batch: bool, flight: Flight, sender: Sender) -> Rest:
        if self._legacy is None:
            raise without_version(message)
        flight.record.of_legacy(message)
        return self._legacy.request(message, sender, flight, in_batch=in_batch)

    def _take_batch(self, line: bytes) -> None:
        """An array: of revisions that had batches."""
        assert self._legacy is not None
        try:
            batch = self._legacy.batch(loads(line))
        except ProtocolError as error:
            self._refuse(error, method="batch")
            return
        for response in batch.responses:
            self._legacy.tell(Response(response, InvalidRequest("Nothing was asked.")))
        together = Together(self._channel.put)
        for message in batch.requests:
            self._begin(message, partial(self._pass_on, message, True), batch=together)
        together.close()
        for message in batch.notifications:
            self._hear(Notification(message.method, message.params))

    # Everything else

    def _hear(self, notification: Notification) -> None:
        if notification.method == "notifications/cancelled":
            self._cancel(notification.params or {})
        if self._legacy is not None:
            self._legacy.tell(notification)
        record = RequestRecord()
        record.method = notification.method
        if self._spans is not None:
            meta = (notification.params or {}).get("_meta")
            record.span = _begin_span(self._spans, notification.method, None, meta)
            record.span.leave()
        record.write(self._requests)

    def _cancel(self, params: dict[str, Any]) -> None:
        """Cancellation, "Error Handling": what is unknown, over or malformed is ignored."""
        try:
            flight = self._flights.pop(request_id(params.get("requestId")), None)
        except BadEnvelope:
            return
        if flight is not None:
            flight.cancel()

    def _refuse(
        self,
        error: ProtocolError,
        id: RequestId | None = None,
        method: str | None = None,
        batch: Together | None = None,
        meta: Any = None,
    ) -> None:
        """Answer a line that has not become a request."""
        record = RequestRecord()
        record.id, record.method = id, method
        if self._spans is not None and method is not None:
            record.span = _begin_span(self._spans, method, id, meta)
            record.span.leave()
        record.refused(error)
        put = self._channel.put if batch is None else batch.add
        if self._observers is not None and method == CALL:
            refusing = self._refuse_observed(self._observers, error, record, put)
            task = asyncio.create_task(refusing, name="refuse a call")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if batch is not None:
                batch.wait_for(task)
        else:
            put(error_response(id, error))
        record.write(self._requests)


def _begin_span(
    spans: Spans, method: str, id: RequestId | None, meta: Any, version: str | None = None
) -> RequestSpan:
    transport = {"network.transport": "pipe"}
    return spans.request(
        method, id, meta, None, transport=transport, began_ns=time.time_ns(), version=version
    )
