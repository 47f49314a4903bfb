"""Where the revisions that begin with ``initialize`` join: what this door asks of them."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from app.methods.answers import Sender
from app.protocol.inbound import Notification, Response
from app.protocol.jsonrpc import Message

Send = Callable[[bytes], None]


class LegacyDoor(Protocol):
    """Serves the client of this process in a revision that it has opened with ``initialize``."""

    def request(
        self, message: Message, sender: Sender, send: Send
    ) -> Coroutine[Any, Any, None] | None:
        """Answer a request that carries no modern ``_meta``.

        Args:
            sender: Who calls, as for modern requests.
            send: Takes the response and all that belongs to the request. It sends nothing more
                once the request was cancelled.

        Returns:
            What is left to wait for. It is cancelled when the client cancels the request or the
            process ends.

        Raises:
            ProtocolError: The request is refused; the door sends that.
        """

    def batch(
        self, values: Sequence[Any], sender: Sender, send: Send
    ) -> Coroutine[Any, Any, None] | None:
        """Answer a line that is an array. Arguments and errors as of ``request``."""

    def tell(self, message: Notification | Response) -> None:
        """A notification, or the answer to a question of the server.

        ``notifications/cancelled`` for a request that is under way has taken effect before.
        """
