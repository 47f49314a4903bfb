"""Carries a tool's call to a client of an older revision.

A client that goes does not cancel its call (2025-03-26 and later, "Sending Messages to the
Server"): it says so where it wants that, and in 2025-11-25 it may come back for the rest.
"""

import asyncio
import math

from app.http.calls import mirror
from app.http.disconnect import SLOW_READER_S, Watch
from app.http.exchange import Exchange
from app.http.responses import event, priming_event
from app.legacy.errors import told
from app.legacy.notifications import notified
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

    async def carry(
        self, running: Running, id: RequestId, session: Session | None, exchange: Exchange
    ) -> None:
        """Send what the tool says and how it ends.

        Raises:
            ProtocolError: The call was refused, and nothing was sent yet.
        """
        execution = running.execution
        carriage = _Carriage(running, id, exchange, self._settings)
        watch = Watch(exchange.connection, exchange.receive, carriage.leave)
        try:
            silence_s, away_s = self._settings.silence_s, self._poll_after_s
            if away_s is not None and session is not None and session.revision.resumption:
                silence_s = min(silence_s, away_s)
            await execution.wait(execution.time() + silence_s)
            await self._send(carriage, session, exchange)
        except TimeoutError:  # it does not read
            watch.abort()
            exchange.response.disconnected()
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            watch.stop()
            if execution.refusal is None:
                record = exchange.record
                record.outcome, record.error_id = execution.outcome, execution.error_id
            if not execution.is_over:
                self._replays.follow(self._follow(carriage, session))
            else:
                self._end(carriage, session)

    async def _send(
        self, carriage: "_Carriage", session: Session | None, exchange: Exchange
    ) -> None:
        execution = carriage.running.execution
        if execution.headers and not carriage.is_gone:
            mirror(execution.headers, exchange)
        if not execution.is_over or execution.has_notifications or not exchange.accepts.json:
            if exchange.accepts.stream:
                if session is not None and session.revision.resumption:
                    carriage.recording = self._replays.begin(session)
                    carriage.recording.on_detach = carriage.detach
                await carriage.stream(self._poll_after_s)
            else:
                await carriage.in_silence()
        if execution.is_over:
            await carriage.finish()

    def _end(self, carriage: "_Carriage", session: Session | None) -> None:
        self._methods.finished(session, carriage.id)
        if carriage.recording is not None:
            self._replays.end(carriage.recording)

    async def _follow(self, carriage: "_Carriage", session: Session | None) -> None:
        """The client has gone, and its call goes on."""
        recording = carriage.recording
        execution = carriage.running.execution
        try:
            while True:
                for message in carriage.messages():
                    if recording is not None:
                        recording.add(message)
                if execution.is_over:
                    break
                if recording is not None:
                    await recording.write()
                await execution.wait()
            if recording is not None:
                last = carriage.last()
                if last is not None:
                    recording.add(last)
                recording.finish()
                await recording.write()
        finally:
            self._end(carriage, session)
            if not execution.is_over:
                execution.cancel()


class _Carriage:
    """One call on its way to its client."""

    def __init__(
        self, running: Running, id: RequestId, exchange: Exchange, settings: ExecutionSettings
    ) -> None:
        self.running = running
        self.id = id
        self.recording: Recording | None = None
        self.is_gone = False
        self._is_sent_away = False
        self._exchange = exchange
        self._settings = settings

    def leave(self) -> None:
        """The client has gone."""
        self.is_gone = True
        self.running.execution.wake()

    def detach(self) -> None:
        """The client has come back elsewhere: this connection is dead, or as good as that."""
        self._is_sent_away = True
        self.running.execution.wake()

    def messages(self) -> list[bytes]:
        """What the tool has said since the last time."""
        taken = self.running.execution.take_notifications()
        return [notified(message, self.running.revision) for message in taken]

    def last(self) -> bytes | None:
        """The response; None: the client has cancelled its request, and gets none."""
        if self.running.execution.cancelled:
            return None
        try:
            return result_response(self.id, self.running.result())
        except ProtocolError as error:
            self._exchange.record.refused(error)
            return dumps({"jsonrpc": "2.0", "id": self.id, "error": told(error).error})

    async def in_silence(self) -> None:
        """Wait for the end, where nothing can be told before."""
        execution = self.running.execution
        while not execution.is_over and not self.is_gone:
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
            await response.open_stream(priming_event(self.recording.first_id, RETRY_MS))
            if poll_after_s is not None:
                away_at = execution.time() + poll_after_s
        elif not response.is_streaming:
            await response.open_stream()
        speak_at = execution.time() + quiet_s
        while not (execution.cancelled or self.is_gone or self._is_sent_away):
            if execution.has_notifications:
                frames = b"".join(map(self._event, self.messages()))
                async with asyncio.timeout(SLOW_READER_S):
                    await response.notify(frames)
                speak_at = execution.time() + quiet_s
            elif execution.result is not None:
                return
            elif execution.time() >= away_at:
                self._is_sent_away = True
                break
            elif execution.time() >= speak_at:
                async with asyncio.timeout(SLOW_READER_S):
                    await response.keep_alive()
                speak_at = execution.time() + quiet_s
            await execution.wait(min(speak_at, away_at))
        if self.is_gone:
            response.disconnected()
        elif self._is_sent_away:
            await response.end()

    async def finish(self) -> None:
        """Send the response, if there is one and somebody to take it.

        Raises:
            ProtocolError: The call was refused, and nothing was sent yet.
            TimeoutError: The client does not read.
        """
        exchange, response = self._exchange, self._exchange.response
        if not response.is_streaming and self.running.execution.cancelled:
            if self.is_gone:
                response.disconnected()
            else:
                await response.empty(202)  # "SHOULD NOT send a response" (Cancellation)
            return
        if response.is_streaming or not exchange.accepts.json:
            last = self.last()
            frame = b"" if last is None else self._event(last)
            if self.recording is not None:
                self.recording.finish()
                await self.recording.write()  # it may be lost on its way
            if not response.is_streaming:
                await response.open_stream(b"")
            async with asyncio.timeout(SLOW_READER_S):
                await response.end(frame)
            return
        message = result_response(self.id, self.running.result())
        if self.is_gone:
            response.disconnected()
        elif not response.json_at_once(message):
            await response.json(message)

    def _event(self, message: bytes) -> bytes:
        return event(message, None if self.recording is None else self.recording.add(message))
