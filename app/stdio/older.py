"""The client of this process in a revision that it has opened with ``initialize``.

Implements ``app.stdio.legacy.LegacyDoor``. One process has one client, so there is one session at
a time; its requests, and those of the server, share the channel.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import structlog

from app.legacy.errors import told
from app.legacy.notifications import TOOLS_LIST_CHANGED, notified
from app.legacy.revisions import ASSUMED
from app.methods.answers import Sender
from app.methods.observing import Observers
from app.methods.subscriptions import Hub
from app.observability.metrics import NOTIFICATIONS
from app.protocol.errors import ProtocolError
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Notification, Response
from app.protocol.jsonrpc import Batch, Message, result_response
from app.sessions.batches import read_batch
from app.sessions.methods import LegacyMethods, Running
from app.sessions.tokens import Session
from app.stdio.channel import SLOW_READER_S, Channel
from app.stdio.flight import Flight

log = structlog.get_logger()


class OlderRevisions:
    """Serves the client of this process.

    Args:
        credential: By which who calls becomes known; looked at again while it listens.
        observers: Told of calls that are refused here; None: nobody is.
    """

    def __init__(
        self,
        methods: LegacyMethods,
        hub: Hub,
        channel: Channel,
        credential: HeaderMap,
        *,
        observers: Observers | None = None,
    ) -> None:
        self._observers = observers
        self._methods = methods
        self._hub = hub
        self._channel = channel
        self._credential = credential
        self._session: Session | None = None
        self._listening: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def request(
        self, message: Message, sender: Sender, flight: Flight, *, in_batch: bool
    ) -> Coroutine[Any, Any, None] | None:
        return self._request(message, sender, flight, in_batch=in_batch)

    def batch(self, values: Sequence[Any]) -> Batch:
        session = self._session
        revision = ASSUMED if session is None else session.revision
        return read_batch(values, revision, in_session=session is not None)

    def tell(self, message: Notification | Response) -> None:
        if isinstance(message, Response) and self._session is not None:
            answering = self._pass_on(self._session, message.message)
            task = asyncio.create_task(answering, name="pass an answer on")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _pass_on(self, session: Session, response: Mapping[str, Any]) -> None:
        try:
            await self._methods.dialogues.answered(session, response)
        except ProtocolError as error:  # an answer has none, so nobody but the log can be told
            log.warning("answer_not_passed_on", problem=error.message)

    async def close(self) -> None:
        """The process ends."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _request(
        self, message: Message, sender: Sender, flight: Flight, *, in_batch: bool
    ) -> None:
        assert message.id is not None
        try:
            if message.method == "initialize":
                flight.send(result_response(message.id, await self._open(message, sender, flight)))
                return
            session = self._session
            revision = ASSUMED if session is None else session.revision
            if session is not None:
                flight.record.of_client(session.client, session.revision.version)
            if flight.record.span is not None:
                flight.record.span.of_version(revision.version)
            answer = await self._methods.answer(
                message,
                revision,
                session,
                sender,
                can_ask=session is not None and not in_batch,
                withdraw=self._channel.put,
            )
            if isinstance(answer, Running):
                await self._carry(answer, flight, in_batch=in_batch)
            else:
                flight.record.answered(answer.outcome, answer.result)
                flight.send(result_response(message.id, answer.result))
        except ProtocolError as error:
            flight.record.refused(error)
            legacy = told(error)
            if flight.record.span is not None:
                flight.record.span.refused(error, legacy.error["code"])
            if self._observers is not None:
                await self._observers.refused(error, flight.record)
            flight.send(legacy.response(message.id))

    async def _open(self, message: Message, sender: Sender, flight: Flight) -> bytes:
        opened = self._methods.open(message, sender.principal)
        flight.record.of_client(opened.client, opened.revision.version)
        if flight.record.span is not None:
            flight.record.span.of_version(opened.revision.version)
        self._session = await self._methods.sessions.find(opened.token, sender.principal)
        if self._listening is None:
            listening = self._listen(sender)
            self._listening = asyncio.create_task(listening, name="tell of changed tools")
        return opened.result

    async def _carry(self, running: Running, flight: Flight, *, in_batch: bool) -> None:
        """Send what the tool says, and its result where the client still wants one."""
        execution = running.execution
        try:
            while not execution.cancelled:
                await self._channel.room()
                for said in execution.take_notifications():
                    if not in_batch:
                        flight.send(notified(said, running.revision))
                if execution.result is not None:
                    flight.send(result_response(flight.id, running.result()))
                    break
                await execution.wait()
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            self._methods.finished(running.session, flight.id)
            flight.record.ended(execution)

    async def _listen(self, sender: Sender) -> None:
        known_by = None if sender.principal.issuer is None else self._credential
        stream = self._hub.open(sender.principal, known_by, SLOW_READER_S)
        try:
            while True:
                await stream.wait()
                stream.quiet = False  # nobody has to be kept awake here
                await self._channel.room()
                if stream.changed:
                    stream.changed = False
                    self._channel.put(TOOLS_LIST_CHANGED)
                    NOTIFICATIONS.inc("notifications/tools/list_changed")
                elif stream.closing or stream.gone:
                    return
        finally:
            self._hub.close(stream)
