"""From a method's name to its handler."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from app.methods.answers import Answer, Sender
from app.protocol.errors import MethodNotFound
from app.protocol.inbound import Call
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS

Handler = Callable[[Call, Sender], Answer | Coroutine[Any, Any, Answer]]
"""Answers a request or raises ``ProtocolError``.

What the tool does is an Execution. A coroutine answers where something else must be waited for,
such as a count in the store; without it a call is cheaper.
"""


class Router:
    """Dispatches modern requests.

    Args:
        handlers: By method name.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = dict(handlers)

    def dispatch(self, call: Call, sender: Sender) -> Answer | Coroutine[Any, Any, Answer]:
        """Answer a call.

        Raises:
            ProtocolError: The request cannot be served.
        """
        handler = self._handlers.get(call.method)
        if handler is None:
            raise _unknown(call.method)
        return handler(call, sender)


def _unknown(method: str) -> MethodNotFound:
    if method == "initialize":
        # Versioning: legacy clients may show nothing but this message.
        served = ", ".join(MODERN_PROTOCOL_VERSIONS)
        return MethodNotFound(
            f"Requests of {served} stand alone: there is no initialize among them. Without that "
            "version in _meta it opens a session of an older revision, where those are served."
        )
    return MethodNotFound("This server does not have the requested method.")
