"""``Context``: the call that a tool answers."""

from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from app.principal import Principal
from app.protocol.schema import Implementation


class Finished(Awaitable[None]):
    """Done already; ``await`` lets other work run once. Returned where awaiting is optional."""

    def __await__(self) -> Generator[None, None, None]:
        yield


FINISHED: Final = Finished()


class CallChannel(Protocol):
    """What a running call offers to its Context (see ``app.execution``)."""

    @property
    def is_over(self) -> bool: ...
    @property
    def remaining_s(self) -> float: ...
    def progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def log(self, level: str, data: Any, logger: str | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The call that a tool answers. Declare a parameter of this type to get it.

    Attributes:
        tool_name: The tool's name as served.
        request_id: JSON-RPC id of the request; unique only to its sender.
        principal: Who calls.
        protocol_version: Revision of the request.
        client: What the client says it is; for display only.
        meta: The request's ``_meta`` object.
        settings: ``[overrides."<tool>".settings]`` and their environment variables.
        lifespan: What the module's ``lifespan()`` yielded, else None.
    """

    tool_name: str
    request_id: str | int
    principal: Principal
    protocol_version: str
    client: Implementation | None
    meta: Mapping[str, Any]
    settings: Mapping[str, Any]
    lifespan: Any
    channel: CallChannel = field(repr=False)

    def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Tell the client how far the call is. From the event loop and from threads alike.

        Values that do not increase are dropped, floods are thinned out, and nothing is sent to
        a client that did not ask for progress. Awaiting the returned object is optional.

        Raises:
            TypeError, ValueError: Not a finite number, or the message is not text.
        """
        self.channel.progress(done, total, message)
        return FINISHED

    def log(self, level: str, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client if it asked for this level.

        The protocol has deprecated this feature; prefer progress, results and your own logs.

        Raises:
            ValueError: The level is not one of the eight of RFC 5424, or a number is not finite.
            TypeError: The data has no JSON form.
        """
        self.channel.log(level, data, logger)
        return FINISHED

    @property
    def cancelled(self) -> bool:
        """Whether the caller has gone or the deadline has passed. For threads to look at."""
        return self.channel.is_over

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; never negative."""
        return self.channel.remaining_s
