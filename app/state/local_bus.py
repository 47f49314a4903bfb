"""A bus inside this process: for one server."""

from collections.abc import Callable


class LocalBus:
    """Implements ``app.state.interface.Bus``."""

    def __init__(self) -> None:
        self._hearers: dict[str, list[Callable[[bytes], None]]] = {}

    def subscribe(self, topic: str, hear: Callable[[bytes], None]) -> Callable[[], None]:
        hearers = self._hearers.setdefault(topic, [])
        hearers.append(hear)

        def end() -> None:
            if hear in hearers:
                hearers.remove(hear)
            if not hearers and self._hearers.get(topic) is hearers:
                del self._hearers[topic]

        return end

    def on_return(self, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002  # nothing is ever missed
        return lambda: None

    async def publish(self, topic: str, message: bytes) -> None:
        for hear in tuple(self._hearers.get(topic, ())):
            hear(message)
