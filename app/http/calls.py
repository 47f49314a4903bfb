"""Carries a running tool call to its client: one JSON object, or a stream once it must be one."""

import asyncio

from app.execution.execution import Execution
from app.http.disconnect import SLOW_READER_S, watched
from app.http.exchange import Exchange
from app.http.responses import Headers, event
from app.protocol.errors import ProtocolError
from app.protocol.jsonrpc import error_response, result_response
from app.protocol.schema import RequestId
from app.settings import ExecutionSettings


async def carry_call(
    execution: Execution, id: RequestId, exchange: Exchange, settings: ExecutionSettings
) -> None:
    """Send what the tool says and how it ends. A client that goes cancels the call."""
    response = exchange.response
    client = watched(exchange, execution.cancel)
    try:
        await execution.wait(execution.time() + settings.silence_s)
        # Most calls are over now, and have said nothing.
        if execution.result is None or execution.has_notifications:
            if exchange.accepts.stream:
                await _until_done(execution, exchange, settings)
            else:
                await _in_silence(execution)
        if execution.result is None:
            response.disconnected()
            return
        if execution.refusal is None:
            message = result_response(id, execution.result)
        else:
            message = _refusal(execution.refusal, id, exchange)
        is_streaming = response.is_streaming
        if execution.headers and not is_streaming:
            _mirror_late(execution, exchange)
        if is_streaming or not exchange.accepts.json:
            async with asyncio.timeout(SLOW_READER_S):
                await response.finish(message)
        elif not response.json_at_once(message):
            await response.json(message)
    except TimeoutError:
        client.abort()  # it does not read
        execution.cancel()
        response.disconnected()
    except BaseException:
        execution.cancel()
        raise
    finally:
        client.on_disconnect(None)
        exchange.record.ended(execution)


def _refusal(refusal: ProtocolError, id: RequestId, exchange: Exchange) -> bytes:
    """The response that says why there is no result.

    Raises:
        ProtocolError: Its HTTP status can still be sent.
    """
    if not exchange.response.is_streaming:
        raise refusal
    exchange.record.refused(refusal)
    return error_response(id, refusal)


def mirror(headers: Headers, exchange: Exchange) -> None:
    """Repeat the mirrored parameters in the response, before its head is sent."""
    exchange.response.add_headers(headers)
    if b"origin" in exchange.headers:  # or a browser would hide them from its page
        names = b", ".join(name for name, _ in headers)
        exchange.response.add_headers([(b"access-control-expose-headers", names)])


def _mirror_late(execution: Execution, exchange: Exchange) -> None:
    # Not before: where hooks stand around a call, they may change what is mirrored.
    if execution.headers:
        mirror(execution.headers, exchange)


async def _in_silence(execution: Execution) -> None:
    """Wait for the end; a client that takes JSON alone cannot be told anything before."""
    while not execution.is_settled:
        execution.take_notifications()
        await execution.wait()


async def _until_done(
    execution: Execution, exchange: Exchange, settings: ExecutionSettings
) -> None:
    """Stream until there is a result, or the client has gone.

    Raises:
        TimeoutError: The client does not read.
    """
    response = exchange.response
    quiet_s = settings.keep_alive_s * 0.9  # so that no comment comes later than promised
    speak_at = execution.time()  # the silence has lasted long enough, or was broken
    while not execution.cancelled:
        if execution.has_notifications:
            if not response.is_streaming:
                _mirror_late(execution, exchange)
            frames = b"".join(map(event, execution.take_notifications()))
            async with asyncio.timeout(SLOW_READER_S):
                await response.notify(frames)
            speak_at = execution.time() + quiet_s
        elif execution.result is not None:
            return
        elif execution.time() >= speak_at:
            if response.is_streaming:
                async with asyncio.timeout(SLOW_READER_S):
                    await response.keep_alive()
            else:
                _mirror_late(execution, exchange)
                await response.open_stream()
            speak_at = execution.time() + quiet_s
        await execution.wait(speak_at)
