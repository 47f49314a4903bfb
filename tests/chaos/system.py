"""The whole system: three replicas behind HAProxy, with a store that they share."""

import secrets
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.chaos.crowd import Crowd
from tests.support.balancers import HAProxy, Pools, free_port
from tests.support.certificates import Authority
from tests.support.relay import Relay
from tests.support.server import ServerProcess
from tests.support.stores import TO_DISK, RedisServer
from tests.support.waiting import eventually

TOOLS: Final = Path(__file__).with_name("tools")
REPLICAS: Final = 3
DRAIN_S: Final = 3.0
"""HAProxy asks each second and believes the second refusal; a request may then be on its way."""

SEEN_BACK_S: Final = 15.0


class System:
    """Started with ``with``; everything is stopped at the end, each part must end well.

    Args:
        folder: An empty one, for the ledger and the certificate.
        config: Sections that differ from those of the system.
        store_args: Of the command line of the store.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any] | None = None,
        *,
        store_args: Sequence[str] = TO_DISK,
        tools: Path = TOOLS,
    ) -> None:
        self.ledger = folder / "ledger"
        self.tools = tools
        self._folder = folder
        self._config = dict(config or {})
        self._stack = ExitStack()
        self._store_args = store_args
        self._key = secrets.token_urlsafe(32)
        self._crowds = 0

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.store = stack.enter_context(RedisServer(args=self._store_args))
            self.cable = stack.enter_context(Relay(self.store.port))
            with ThreadPoolExecutor(REPLICAS) as pool:
                started = list(pool.map(self._start, range(REPLICAS)))
            self.replicas = [stack.enter_context(each) for each in started]
            addresses = [f"{each.host}:{each.port}" for each in self.replicas]
            one, two, three = addresses
            pools = Pools(replicas=(one, two, three), heavy=three, eu=one)
            self._certificate = Authority(self._folder).sign()
            self.balancer = stack.enter_context(HAProxy(pools, self._certificate))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for replica in self.replicas:  # all at once: each has its drain window
            replica.terminate()
        self._stack.__exit__(kind, error, trace)

    def _start(self, number: int) -> ServerProcess:
        return ServerProcess(self.tools, self.config(number), port=free_port())

    def config(self, number: int) -> dict[str, Any]:
        """Of one replica; all have the same, but for its name."""
        settings = {"settings": {"ledger": str(self.ledger)}}
        common = {
            "server": {
                "name": f"replica-{number}",
                "fleet": True,
                "drain_s": DRAIN_S,
                "trusted_proxies": ["127.0.0.1"],
            },
            "tools": {"reload": False},
            "state": {"url": self.store_url(number), "required": True},
            "secrets": {"keys": [self._key]},
            "overrides": dict.fromkeys(("record", "record_slowly"), settings),
        }
        return {**common, **self._config}

    def store_url(self, number: int) -> str:
        """Where a replica finds the store: the first one by a cable that can be cut."""
        return f"redis://127.0.0.1:{self.cable.port}" if number == 0 else self.store.url

    def crowd(self, *, rate: float, tool: str = "record", **arguments: Any) -> Crowd:
        """Callers through the load balancer, with numbers that no other crowd has."""
        self._crowds += 1
        return Crowd(
            self.balancer.url,
            self.ledger,
            rate=rate,
            tool=tool,
            arguments=arguments,
            first=self._crowds * 1_000_000,
            verify=self.context(),
        )

    def context(self) -> ssl.SSLContext:
        """Of a client that trusts the load balancer."""
        return self._certificate.context()

    def pid_that_serves(self) -> int:
        """Process id of the replica that a call through the load balancer reaches."""
        self._crowds += 1
        reply = self.balancer.client().call("record", {"number": -self._crowds})
        pid: int = reply.result["structuredContent"]["by"]
        return pid

    def wait_until_served_by(self, replica: ServerProcess) -> None:
        """Wait until the load balancer sends calls to a replica that has come back."""
        eventually(
            lambda: self.pid_that_serves() == replica.pid,
            "the load balancer uses the replica again",
            SEEN_BACK_S,
        )

    def restart_one_by_one(self) -> None:
        """What a rolling update does: each ends well, and is back before the next one goes."""
        for replica in self.replicas:
            replica.terminate()
            assert replica.wait(30) == 0
            replica.start()
            self.wait_until_served_by(replica)

    def kill(self, replica: ServerProcess) -> None:
        """As a machine that fails, and comes back."""
        replica.kill()
        replica.start()
        self.wait_until_served_by(replica)
