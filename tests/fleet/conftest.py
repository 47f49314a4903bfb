"""Three servers as processes of their own, which share one Redis or Valkey."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.auth.office import Headers, api_key, key_table
from tests.support.client import McpClient
from tests.support.server import ServerProcess
from tests.support.stores import ANY_KIND, RedisServer

TOOLS: Final = Path(__file__).parent / "tools"
KEYS: Final = {name: api_key(name)[0] for name in ("ada", "eve")}
WHO: Final[dict[str, Headers]] = {name: {"X-API-Key": key} for name, key in KEYS.items()}
ADA, EVE = WHO.values()
OLD, NEW, OLDEST = (letter * 32 for letter in "onz")
RINGS: Final = ([OLD, NEW], [NEW, OLD], [NEW, OLD, OLDEST])
"""As while the keys are rotated: each server seals with its first, and opens with any."""


AHEAD_S: Final = (0.0, 0.0, 60.0)
"""The clock of one server is a minute ahead."""


def config(redis: RedisServer, keys: list[str], **sections: Any) -> dict[str, Any]:
    """Of a server of the fleet."""
    return {
        "server": {"fleet": True, "drain_s": 0},
        "tools": {"reload": False, "page_size": 7},
        "auth": {
            "api_keys": [key_table(name, key) for name, key in KEYS.items()],
            "allow_unauthenticated": True,
        },
        "policies": [{"tools": ["*"]}],
        "state": {"url": redis.url},
        "secrets": {"keys": keys},
        **sections,
    }


LIMITS: Final[Mapping[str, Any]] = {
    "rates": [
        {"tools": ["limited"], "bucket": "user", "capacity": 100, "period_s": 60},
        {"tools": ["pay", "add"], "bucket": "user", "capacity": 1_000_000, "period_s": 1},
    ]
}


class Fleet:
    """Its servers, and what they share."""

    def __init__(self, redis: RedisServer, servers: list[ServerProcess]) -> None:
        self.redis = redis
        self.servers = servers
        self._turns = itertools.cycle(servers)

    @property
    def client(self) -> McpClient:
        """Of another server each time."""
        return next(self._turns).client


@pytest.fixture(scope="package")
def fleet() -> Iterator[Fleet]:
    """A fleet that is left as it is."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(ANY_KIND))
        servers = [
            ServerProcess(TOOLS, config(redis, keys, limits=LIMITS), ahead_s=ahead_s, start=False)
            for keys, ahead_s in zip(RINGS, AHEAD_S, strict=True)
        ]
        start_all(stack, servers)
        yield Fleet(redis, servers)


def start_all(stack: ExitStack, servers: Sequence[ServerProcess]) -> None:
    """Start servers at the same time; the stack ends them."""
    with ThreadPoolExecutor(len(servers)) as pool:
        for server in servers:
            stack.enter_context(server)
        list(pool.map(ServerProcess.start, servers))
