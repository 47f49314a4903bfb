"""Carries a running tool call to its client: one JSON object, or a stream once it must be one."""

import asyncio

from app.execution.execution import Execution
from app.http.disconnect import Watch
from app.http.exchange import Exchange
from app.http.responses import Headers, Response, event
from app.protocol.inbound import Call
from app.protocol.jsonrpc import result_response
from app.settings import ExecutionSettings


async def carry_call(
    execution: Execution, call: Call, exchange: Exchange, settings: ExecutionSettings
) -> None:
    """Send what the tool says and how it ends. A client that goes cancels the call."""
    response, accepts = exchange.response, exchange.accepts
    watch = Watch(exchange.scope, exchange.receive, execution.cancel)
    try:
        if execution.headers:
            _mirror(execution.headers, exchange)
        if accepts.stream:
            await _until_done(execution, response, settings)
        else:
            while execution.result is None and not execution.cancelled:
                execution.take_notifications()  # a client of JSON alone cannot get them
                await execution.wait()
    except asyncio.CancelledError:
        execution.cancel()
        raise
    finally:
        watch.stop()
    if execution.result is None:
        response.disconnected()
        return
    message = result_response(call.id, execution.result)
    if response.is_streaming or not accepts.json:
        await response.finish(message)
    else:
        await response.json(message)


def _mirror(headers: Headers, exchange: Exchange) -> None:
    exchange.response.add_headers(headers)
    if b"origin" in exchange.headers:  # or a browser would hide them from its page
        names = b", ".join(name for name, _ in headers)
        exchange.response.add_headers([(b"access-control-expose-headers", names)])


async def _until_done(
    execution: Execution, response: Response, settings: ExecutionSettings
) -> None:
    clock = asyncio.get_running_loop().time
    speak_at = clock() + settings.silence_s
    while True:
        await execution.wait(speak_at)
        if execution.has_notifications:
            notifications = execution.take_notifications()
            if not execution.cancelled:
                await response.notify(b"".join(map(event, notifications)))
        elif execution.result is not None or execution.cancelled:
            return
        elif clock() < speak_at:
            continue
        elif response.is_streaming:
            await response.keep_alive()
        else:
            await response.open_stream()
        speak_at = clock() + settings.keep_alive_s
