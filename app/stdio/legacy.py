"""Where the revisions that begin with ``initialize`` join: what this door asks of them."""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from app.methods.answers import Sender
from app.protocol.inbound import Notification, Response
from app.protocol.jsonrpc import Batch, Message
from app.stdio.flight import Flight


class LegacyDoor(Protocol):
    """Serves the client of this process in a revision that it has opened with ``initialize``."""

    def request(
        self, message: Message, sender: Sender, flight: Flight, *, in_batch: bool
    ) -> Coroutine[Any, Any, None] | None:
        """Answer a request that carries no modern ``_meta``.

        Args:
            sender: Who calls, as for modern requests.
            flight: Takes the response and all that belongs to the request, and what the log will
                say of it. It sends nothing more once the request was cancelled.
            in_batch: Whether nothing but the response can be sent.

        Returns:
            What is left to wait for. It is cancelled when the client cancels the request or the
            process ends.

        Raises:
            ProtocolError: The request is refused; the door sends that.
        """

    def batch(self, values: Sequence[Any]) -> Batch:
        """What is in a line that is an array.

        Raises:
            ProtocolError: It is refused as a whole.
        """

    def tell(self, message: Notification | Response) -> None:
        """A notification, or the answer to a question of the server.

        ``notifications/cancelled`` for a request that is under way has taken effect before.
        """
