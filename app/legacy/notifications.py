"""Notifications for clients of older revisions."""

from typing import Final

from app.legacy.encoding import decode
from app.legacy.revisions import Revision
from app.protocol.jsonrpc import dumps

TOOLS_LIST_CHANGED: Final = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
"""Without ``_meta``: there are no subscriptions that it could belong to."""


def notified(notification: bytes, revision: Revision) -> bytes:
    """Progress or a log message of one call, in the revision's vocabulary."""
    if revision.progress_messages:
        return notification  # nothing else about them has changed
    message = decode(notification)
    if message["method"] == "notifications/progress":
        message["params"].pop("message", None)
    return dumps(message)
