"""What carries a call: a task in the event loop, a worker thread, or a worker process."""

from typing import Any, Protocol

from app.execution.execution import Execution
from app.principal import Principal
from app.protocol.inbound import Call


class Carrier(Protocol):
    """Runs the code of tools of one kind. Its methods are called in the event loop alone.

    A carrier tells ``Endings`` how a call ended, and once, when the code has really ended.
    """

    def start(
        self, execution: Execution, keywords: dict[str, Any], call: Call, principal: Principal
    ) -> None:
        """Start a call.

        Raises:
            Unavailable: There is no room; nothing was started.
        """
        ...

    def leave(self, execution: Execution) -> bool:
        """Nobody waits any more: stop the code, as far as it can be stopped.

        Returns:
            Whether it may go on all the same; then ``look_after`` is called a little later.
        """
        ...

    def look_after(self, execution: Execution) -> None:
        """Log and count code that has not ended although it was left."""
        ...

    async def stop(self) -> None:
        """The server ends."""
        ...
