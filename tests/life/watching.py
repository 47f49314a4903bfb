"""What clients and load balancers see of a server while it ends."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from tests.support.client import McpClient
from tests.support.http1 import ConnectionEndedError, Response

PERIOD_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer.

    Attributes:
        at: Of `time.monotonic()`, when it was there.
        response: None where the connection was refused or broke.
    """

    at: float
    response: Response | None


@dataclass
class Watch:
    """Asks again and again, each time on a new connection, until the server has gone."""

    ask: Callable[[], Response]
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                response = self.ask()
            except (OSError, ConnectionEndedError):
                self.seen.append(Seen(time.monotonic(), None))
                return
            self.seen.append(Seen(time.monotonic(), response))
            self._stop.wait(PERIOD_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def answers(self) -> list[Response]:
        """All but the refusal at the end."""
        return [each.response for each in self.seen if each.response is not None]

    def during(self, begin: float, end: float) -> list[Response | None]:
        """What was seen between two instants."""
        return [each.response for each in self.seen if begin < each.at < end]


def watches(client: McpClient) -> dict[str, Watch]:
    """Of both probes and of the endpoint."""

    def listed() -> Response:
        return client.ask("tools/list").response

    found = {path: Watch(lambda path=path: client.get(path)) for path in ("/readyz", "/healthz")}  # type: ignore[misc]  # a default binds it
    return {**found, "tools/list": Watch(listed)}


def reasons(response: Response) -> tuple[bool, list[Any]]:
    """What `/readyz` says."""
    said = response.json()
    return said["ready"], said["reasons"]
