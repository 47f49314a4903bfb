"""Batches of the revisions that had them: an array of messages, read as a whole or refused."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeGuard

from app.legacy.revisions import Revision
from app.protocol.errors import InvalidRequest
from app.protocol.jsonrpc import BadEnvelope, Batch, Message, message_of, request_id
from app.protocol.schema import PROTOCOL_VERSION_KEY, RequestId

MAX_BATCH: Final = 100


def read_batch(values: Sequence[Any], revision: Revision, *, in_session: bool) -> Batch:
    """The messages of a batch. Nothing of one that is refused may have an effect.

    Args:
        in_session: Whether the client can have been asked something.

    Raises:
        InvalidRequest: It is none, or one of its messages must not be in it.
    """
    if not revision.batches:
        raise InvalidRequest(
            f"Revision {revision.version} has no batches; send one message at a time."
        )
    if not 0 < len(values) <= MAX_BATCH:
        raise InvalidRequest(f"A batch has 1 to {MAX_BATCH} messages; this has {len(values)}.")
    messages: list[Message] = []
    responses: list[dict[str, Any]] = []
    for value in values:
        if in_session and is_response(value):
            responses.append(value)
        else:
            messages.append(_message(value))
    requests = [message for message in messages if message.id is not None]
    if len({_key(message.id) for message in requests}) < len(requests):
        raise InvalidRequest("Each request of a batch needs an id of its own.")
    notifications = [message for message in messages if message.id is None]
    cancelled = {_key(id) for id in _cancelled(notifications)}
    return Batch(
        [message for message in requests if _key(message.id) not in cancelled],
        notifications,
        responses,
    )


def is_response(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a message answers something."""
    return (
        isinstance(value, dict)
        and value.get("jsonrpc") == "2.0"
        and "method" not in value
        and ("result" in value or "error" in value)
    )


def _message(value: Any) -> Message:
    try:
        message = message_of(value)
    except BadEnvelope as bad:
        raise bad.error from None
    meta = (message.params or {}).get("_meta")
    if message.method == "initialize":
        raise InvalidRequest("initialize must not be part of a batch.")
    if isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta:
        raise InvalidRequest("Requests of 2026-07-28 come one at a time.")
    return message


def _cancelled(notifications: Sequence[Message]) -> Iterator[RequestId]:
    for message in notifications:
        if message.method == "notifications/cancelled":
            try:
                yield request_id((message.params or {}).get("requestId"))
            except BadEnvelope:
                continue  # malformed, and so ignored (Cancellation, "Error Handling")


def _key(id: RequestId | None) -> tuple[type, RequestId | None]:
    return type(id), id
