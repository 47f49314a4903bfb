"""Carries a tool's call to a client of an older revision.

A client that goes does not cancel its call (2025-03-26 and later, "Sending Messages to the
Server"): it says so where it wants that, and in 2025-11-25 it may come back for the rest.
"""

import asyncio
import math
from collections.abc import Awaitable

from app.http.calls import mirror
from app.http.disconnect import SLOW_READER_S, watched
from app.http.exchange import Exchange
from app.http.responses import event, priming_event
from app.legacy.errors import told
from app.legacy.notifications import notified
from app.observability.logs import EventLog
from app.protocol.errors import ProtocolError
from app.protocol.jsonrpc import dumps, result_response
from app.protocol.schema import RequestId
from app.sessions.methods import LegacyMethods, Running
from app.sessions.replays import Recording, Replays
from app.sessions.tokens import Session
from app.settings import ExecutionSettings

RETRY_MS = 500
"""When a client should come back for the rest of a stream."""


class LegacyCalls:
    """Carries the calls of one server.

    Args:
        poll_after_s: Streams that can be resumed are closed after so long; None: they are not.
    """

    def __init__(
        self,
        methods: LegacyMethods,
        replays: Replays,
        settings: ExecutionSettings,
        *,
        poll_after_s: float | None,
    ) -> None:
        self._methods = methods
        self._replays = replays
        self._settings = settings
        self._poll_after_s = poll_after_s
        self._requests = EventLog("request")

    async def carry(
        self, running: Running, id: RequestId, session: Session | None, exchange: Exchange
    ) -> None:
        """Send what the tool says and how it ends.

        Raises:
            ProtocolError: The call was refused, and nothing was sent yet.
        """
        execution = running.execution
        carriage = _Carriage(running, id, exchange, self._settings)
        client = watched(exchange, carriage.leave)
        try:
            silence_s, away_s = self._settings.silence_s, self._poll_after_s
            if away_s is not None and session is not None and session.revision.resumption:
                silence_s = min(silence_s, away_s)
            await execution.wait(execution.time() + silence_s)
            await self._send(carriage, session, exchange)
        except TimeoutError:  # it does not read
            client.abort()
            exchange.response.disconnected()
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            client.on_disconnect(None)
            if execution.is_settled and not carriage.owes:
                carriage.note()
                self._end(carriage, session)
            else:
                # How it ends is known later, and so is what the log line says.
                exchange.record.is_written = True
                if not self._replays.follow(self._follow(carriage, session)):
                    self._leave(carriage, session)

    async def _send(
        self, carriage: "_Carriage", session: Session | None, exchange: Exchange
    ) -> None:
        execution = carriage.running.execution
        if execution.headers and not carriage.is_gone:
            mirror(execution.headers, exchange)
        if not execution.is_settled or execution.has_notifications or not exchange.accepts.json:
            if not exchange.accepts.stream:
                await carriage.in_silence()
            elif not carriage.is_gone:
                if session is not None and session.revision.resumption:
                    recording = self._replays.begin(session, exchange.principal)
                    carriage.recording, recording.on_attach = recording, carriage.detach
                await carriage.stream(self._poll_after_s)
        if carriage.is_gone:
            exchange.response.disconnected()
        elif execution.is_settled and not carriage.is_sent_away:
            await carriage.finish()

    async def _follow(self, carriage: "_Carriage", session: Session | None) -> None:
        """The client has gone, or did not get all, and its call goes on."""
        execution, recording = carriage.running.execution, carriage.recording
        if recording is not None and not recording.is_known:
            recording = None
        try:
            while True:
                for message in carriage.messages():
                    if recording is not None:
                        recording.add(message)
                if execution.is_settled:
                    break
                if recording is None:
                    await execution.wait()
                elif execution.time() >= recording.write_at:
                    await recording.write()
                else:
                    await execution.wait(recording.write_at)
            if recording is not None:
                carriage.conclude()
                await recording.write()
        finally:
            self._leave(carriage, session)

    def _leave(self, carriage: "_Carriage", session: Session | None) -> None:
        """Nobody follows a call (any more) whose client has gone."""
        carriage.running.execution.cancel()  # unless it is over
        carriage.note()
        carriage.write_line(self._requests)
        self._end(carriage, session)

    def _end(self, carriage: "_Carriage", session: Session | None) -> None:
        self._methods.finished(session, carriage.id)
        execution = carriage.running.execution
        if execution.result is not None:
            # It leads back to the execution. Where the call was cancelled its code may still run,
            # and what it has asked decides whether its result may be kept.
            execution.asking = None
        if carriage.recording is not None:
            self._replays.end(carriage.recording)


class _Carriage:
    """One call on its way to its client.

    Attributes:
        recording: What a client can come back to; None: it cannot.
        is_gone: Whether the client has gone.
        is_sent_away: Whether it is to come back for the rest, or has done so: whoever follows the
            call writes down how it ends.
    """

    def __init__(
        self, running: Running, id: RequestId, exchange: Exchange, settings: ExecutionSettings
    ) -> None:
        self.running = running
        self.id = id
        self.recording: Recording | None = None
        self.is_gone = False
        self.is_sent_away = False
        self._is_concluded = False
        self._is_delivered = False
        self._write_s = SLOW_READER_S
        self._writing: asyncio.Timeout | None = None
        self._exchange = exchange
        self._settings = settings

    @property
    def owes(self) -> bool:
        """Whether a client that comes back has still to find something."""
        recording = self.recording
        return recording is not None and recording.is_known and not self._is_delivered

    def leave(self) -> None:
        """The client has gone."""
        self.is_gone = True
        self.running.execution.wake()

    def detach(self) -> None:
        """The client has come back elsewhere: this connection is dead, or as good as that."""
        self.is_sent_away = True
        self._write_s = 0.0  # what can be written at once
        if self._writing is not None:
            self._writing.reschedule(self.running.execution.time())
        self.running.execution.wake()

    def messages(self) -> list[bytes]:
        """What the tool has said since the last time."""
        taken = self.running.execution.take_notifications()
        return [notified(message, self.running.revision) for message in taken]

    def note(self) -> None:
        """How the call ended, for the log."""
        execution, record = self.running.execution, self._exchange.record
        if execution.refusal is not None:
            record.refused(execution.refusal)
        record.ended(execution)

    def write_line(self, requests: EventLog) -> None:
        """The log line of a request whose exchange ended before it."""
        self._exchange.record.is_written = False
        self._exchange.record.write(requests, self._exchange.response.status)

    def conclude(self) -> bytes:
        """The last event, once; nothing where the client has cancelled its request: it gets no
        response.
        """
        if self._is_concluded:
            return b""
        self._is_concluded = True
        last = self._last()
        frame = b"" if last is None else self._event(last)
        if self.recording is not None:
            self.recording.finish()
        return frame

    async def in_silence(self) -> None:
        """Wait for the end, where nothing can be told before."""
        execution = self.running.execution
        while not execution.is_settled and not self.is_gone:
            execution.take_notifications()
            await execution.wait()

    async def stream(self, poll_after_s: float | None) -> None:
        """Stream until the call has ended, the client has gone, or is to come back later.

        Raises:
            TimeoutError: The client does not read.
        """
        execution, response = self.running.execution, self._exchange.response
        quiet_s = self._settings.keep_alive_s * 0.9
        away_at = math.inf
        if self.recording is not None:
            await self._write(
                response.open_stream(priming_event(self.recording.first_id, RETRY_MS))
            )
            self.recording.is_known = not self.is_gone
            if poll_after_s is not None:
                away_at = execution.time() + poll_after_s
        elif not response.is_streaming:
            await self._write(response.open_stream())
        speak_at = execution.time() + quiet_s
        while not (execution.cancelled or self.is_gone or self.is_sent_away):
            if execution.has_notifications:
                frames = b"".join(map(self._event, self.messages()))
                await self._write(response.notify(frames))
                speak_at = execution.time() + quiet_s
            elif execution.result is not None:
                return
            elif execution.time() >= away_at:
                self.is_sent_away = True
                break
            elif execution.time() >= speak_at:
                await self._write(response.keep_alive())
                speak_at = execution.time() + quiet_s
            await execution.wait(min(speak_at, away_at))
        if self.is_gone:
            response.disconnected()
        elif self.is_sent_away:
            await self._write(response.end())

    async def finish(self) -> None:
        """Send the response, if there is one and somebody to take it.

        Raises:
            ProtocolError: The call was refused, and nothing was sent yet.
            TimeoutError: The client does not read.
        """
        exchange, response = self._exchange, self._exchange.response
        if not response.is_streaming:
            if self.running.execution.cancelled:
                await response.empty(202)  # "SHOULD NOT send a response" (Cancellation)
                return
            if exchange.accepts.json:
                message = result_response(self.id, self.running.result())
                if not response.json_at_once(message):
                    await response.json(message)
                return
        frame = self.conclude()
        if self.recording is not None:
            await self.recording.write(is_delivered=True)  # it may be lost on its way
        if not response.is_streaming:
            await self._write(response.open_stream(b""))
        await self._write(response.end(frame))
        self._is_delivered = not (self.is_gone or self.is_sent_away)

    def _last(self) -> bytes | None:
        if self.running.execution.cancelled:
            return None
        try:
            return result_response(self.id, self.running.result())
        except ProtocolError as error:
            self._exchange.record.refused(error)
            return dumps({"jsonrpc": "2.0", "id": self.id, "error": told(error).error})

    def _event(self, message: bytes) -> bytes:
        return event(message, None if self.recording is None else self.recording.add(message))

    async def _write(self, sending: Awaitable[None]) -> None:
        """Wait for a write, but not for ever, nor once the client has come back elsewhere.

        Raises:
            TimeoutError: The client does not read.
        """
        try:
            async with asyncio.timeout(self._write_s) as self._writing:
                await sending
        finally:
            self._writing = None
