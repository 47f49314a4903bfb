"""The client of this process in a revision that it has opened with ``initialize``.

Implements ``app.stdio.legacy.LegacyDoor``. One process has one client, so there is one session at
a time; its requests, and those of the server, share the channel.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from app.legacy.errors import told
from app.legacy.notifications import TOOLS_LIST_CHANGED, notified
from app.legacy.revisions import ASSUMED
from app.methods.answers import Sender
from app.methods.subscriptions import Hub
from app.protocol.errors import InvalidRequest, ProtocolError
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Notification, Response
from app.protocol.jsonrpc import BadEnvelope, Message, dumps, message_of, result_response
from app.sessions.methods import LegacyMethods, Running
from app.sessions.tokens import Session
from app.stdio.channel import SLOW_READER_S, Channel
from app.stdio.legacy import Send

MAX_BATCH: Final = 100


class OlderRevisions:
    """Serves the client of this process.

    Args:
        credential: By which who calls becomes known; looked at again while it listens.
    """

    def __init__(
        self, methods: LegacyMethods, hub: Hub, channel: Channel, credential: HeaderMap
    ) -> None:
        self._methods = methods
        self._hub = hub
        self._channel = channel
        self._credential = credential
        self._session: Session | None = None
        self._listening: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def request(
        self, message: Message, sender: Sender, send: Send
    ) -> Coroutine[Any, Any, None] | None:
        return self._request(message, sender, send)

    def batch(
        self, values: Sequence[Any], sender: Sender, send: Send
    ) -> Coroutine[Any, Any, None] | None:
        return self._batch(values, sender, send)

    def tell(self, message: Notification | Response) -> None:
        if isinstance(message, Response) and self._session is not None:
            answering = self._methods.dialogues.answered(self._session, message.message)
            task = asyncio.create_task(answering, name="pass an answer on")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def close(self) -> None:
        """The process ends."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _request(self, message: Message, sender: Sender, send: Send) -> None:
        assert message.id is not None
        try:
            if message.method == "initialize":
                send(result_response(message.id, await self._open(message, sender)))
                return
            answer = await self._answer(message, sender, can_ask=self._session is not None)
            if isinstance(answer, Running):
                result = await self._carry(answer, message, send)
            else:
                result = answer
            if result is not None:
                send(result_response(message.id, result))
        except ProtocolError as error:
            send(dumps({"jsonrpc": "2.0", "id": message.id, "error": told(error).error}))

    async def _open(self, message: Message, sender: Sender) -> bytes:
        opened = self._methods.open(message, sender.principal)
        self._session = await self._methods.sessions.find(opened.token, sender.principal)
        if self._listening is None:
            listening = self._listen(sender)
            self._listening = asyncio.create_task(listening, name="tell of changed tools")
        return opened.result

    async def _answer(self, message: Message, sender: Sender, *, can_ask: bool) -> bytes | Running:
        session = self._session
        revision = ASSUMED if session is None else session.revision
        return await self._methods.answer(message, revision, session, sender, can_ask=can_ask)

    async def _carry(self, running: Running, message: Message, send: Send) -> bytes | None:
        """Send what the tool says; returns the result, or None where the client wants none."""
        execution = running.execution
        assert message.id is not None
        try:
            while not execution.cancelled:
                await self._channel.room()
                for said in execution.take_notifications():
                    send(notified(said, running.revision))
                if execution.result is not None:
                    return running.result()
                await execution.wait()
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            self._methods.finished(self._session, message.id)
        return None

    async def _batch(self, values: Sequence[Any], sender: Sender, send: Send) -> None:
        revision = ASSUMED if self._session is None else self._session.revision
        if not revision.batches or not 0 < len(values) <= MAX_BATCH:
            raise InvalidRequest(
                f"A batch has 1 to {MAX_BATCH} messages, and not each revision it."
            )
        answers: list[bytes] = []
        messages = []
        for value in values:
            try:
                messages.append(message_of(value))
            except BadEnvelope as bad:
                if bad.response is not None:
                    self.tell(Response(bad.response, bad.error))
                    continue
                raise bad.error from None
        if any(message.method == "initialize" for message in messages):
            raise InvalidRequest("initialize must not be part of a batch.")
        requests = [message for message in messages if message.id is not None]
        await asyncio.gather(
            *(self._of_batch(message, sender, answers.append) for message in requests)
        )
        if answers:
            send(b"[%b]" % b",".join(answers))

    async def _of_batch(self, message: Message, sender: Sender, add: Send) -> None:
        """One request of a batch, whose tool can neither ask nor say anything."""
        assert message.id is not None
        try:
            answer = await self._answer(message, sender, can_ask=False)
            if isinstance(answer, Running):
                found = await self._carry(answer, message, lambda _: None)
                if found is None:
                    raise InvalidRequest("The request was cancelled.")
                answer = found
        except ProtocolError as error:
            add(dumps({"jsonrpc": "2.0", "id": message.id, "error": told(error).error}))
        else:
            add(result_response(message.id, answer))

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
                elif stream.closing or stream.gone:
                    return
        finally:
            self._hub.close(stream)
