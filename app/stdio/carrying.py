"""Carries what takes its time to the client: a running call, a subscription."""

from app.execution.execution import Execution
from app.methods.answers import Subscription
from app.methods.subscriptions import Hub, Stream
from app.observability.metrics import NOTIFICATIONS
from app.principal import Principal
from app.protocol.headers import HeaderMap
from app.protocol.jsonrpc import result_response
from app.protocol.messages import ServerMessages, acknowledged, cancelled, tools_list_changed
from app.stdio.channel import SLOW_READER_S, Channel
from app.stdio.flight import Flight


async def carry_call(execution: Execution, flight: Flight, channel: Channel) -> None:
    """Send what the tool says and how it ends.

    What it says is taken when there is room for it, so that little waits for a slow client.
    """
    try:
        while not execution.cancelled:
            await channel.room()
            for notification in execution.take_notifications():
                flight.send(notification)
            if execution.result is not None:
                break
            await execution.wait()
        if execution.refusal is not None:
            flight.refuse(execution.refusal)
        elif execution.result is not None:
            flight.send(result_response(flight.id, execution.result))
    except BaseException:
        execution.cancel()
        raise
    finally:
        flight.record.ended(execution)


async def carry_subscription(
    subscription: Subscription,
    flight: Flight,
    channel: Channel,
    *,
    hub: Hub,
    messages: ServerMessages,
    principal: Principal,
    credential: HeaderMap,
) -> None:
    """Acknowledge, then tell of changes until the client or the server ends it.

    Raises:
        Unavailable: Before the acknowledgement, when every place is taken.
    """
    acknowledgement = acknowledged(flight.id, subscription.kinds)
    if subscription.kinds:
        known_by = None if principal.issuer is None else credential
        stream = hub.open(principal, known_by, SLOW_READER_S)
        try:
            await channel.room()
            flight.send(acknowledgement)
            await _tell(stream, flight, channel)
        finally:
            hub.close(stream)
    else:  # nothing was honoured, so nothing is going to be told
        flight.send(acknowledgement)
    # The result says that it ends in peace; the notification is what stdio demands (Cancellation).
    flight.send(messages.listen_result(flight.id))
    flight.send(cancelled(flight.id))


async def _tell(stream: Stream, flight: Flight, channel: Channel) -> None:
    changed = tools_list_changed(flight.id)
    while True:
        await stream.wait()
        stream.quiet = False  # nobody has to be kept awake here
        await channel.room()
        if stream.changed:
            stream.changed = False
            flight.send(changed)
            NOTIFICATIONS.inc("notifications/tools/list_changed")
        elif stream.closing or stream.gone:
            return
