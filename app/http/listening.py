"""Carries a subscription to its listener."""

import asyncio

from app.auth.credentials import CREDENTIALS
from app.http.disconnect import SLOW_READER_S, watched
from app.http.exchange import Exchange
from app.http.responses import Response, event
from app.methods.answers import Subscription
from app.methods.subscriptions import Hub, Stream
from app.observability.metrics import NOTIFICATIONS
from app.observability.spans import RequestSpan
from app.protocol.headers import HeaderMap
from app.protocol.messages import ServerMessages, acknowledged, tools_list_changed
from app.protocol.schema import RequestId


async def carry_subscription(
    subscription: Subscription,
    id: RequestId,
    exchange: Exchange,
    hub: Hub,
    messages: ServerMessages,
) -> None:
    """Acknowledge, then tell of changes until the client goes or the server ends the stream.

    Raises:
        Unavailable: Before the acknowledgement, when every place is taken.
    """
    response = exchange.response
    acknowledgement = event(acknowledged(id, subscription.kinds))
    if not subscription.kinds:
        # Nothing was honoured: an open stream would only hold a socket.
        await response.notify(acknowledgement)
        await response.finish(messages.listen_result(id))
        return
    stream = hub.open(exchange.principal, credential_of(exchange), SLOW_READER_S)
    client = watched(exchange, stream.leave)
    stream.drop = client.abort
    try:
        await response.notify(acknowledgement)
        await tell(stream, event(tools_list_changed(id)), response, exchange.record.span)
        if stream.gone:
            response.disconnected()
        else:
            await response.finish(messages.listen_result(id))
    finally:
        client.on_disconnect(None)
        hub.close(stream)


def credential_of(exchange: Exchange) -> HeaderMap | None:
    """What is needed to ask again whether the caller's credential counts, and no more."""
    if exchange.principal.issuer is None:
        return None
    return HeaderMap(
        [(name, exchange.headers[name]) for name in CREDENTIALS & exchange.headers.keys()]
    )


async def tell(
    stream: Stream, changed: bytes, response: Response, span: RequestSpan | None = None
) -> None:
    """Send what a listener has to be told, until it has gone or the stream is to end.

    Args:
        changed: The event that says that the list of tools is another one.
    """
    loop = asyncio.get_running_loop()
    while True:
        stream.quiet_since = loop.time()
        await stream.wait()
        if stream.gone:
            return
        stream.writing_since = loop.time()
        if stream.changed:
            stream.changed = False
            await response.notify(changed)
            NOTIFICATIONS.inc("notifications/tools/list_changed")
            if span is not None:
                span.event("notifications/tools/list_changed")
        elif stream.quiet and not stream.closing:
            await response.keep_alive()
        stream.quiet = False
        stream.writing_since = None
        if stream.closing and not stream.changed:
            return
