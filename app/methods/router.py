"""From a method's name to its handler."""

from collections.abc import Callable, Mapping

from app.methods.answers import Answer, Sender
from app.protocol.errors import MethodNotFound
from app.protocol.inbound import Call
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS

Handler = Callable[[Call, Sender], Answer]
"""Answers a request or raises ``ProtocolError``. Never waits: what takes time is an Execution."""


class Router:
    """Dispatches modern requests.

    Args:
        handlers: By method name.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = dict(handlers)

    def dispatch(self, call: Call, sender: Sender) -> Answer:
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
            f"This server has no initialize handshake; it serves the protocol versions {served}, "
            "whose requests stand alone."
        )
    return MethodNotFound("This server does not have the requested method.")
