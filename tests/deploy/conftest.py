"""What stands behind the balancers, and the balancers."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.certificates import Authority, Certificate
from tests.support.server import ServerProcess

# The programs are there for Linux alone.
if sys.platform != "linux":
    collect_ignore = [
        "test_balancers.py",
        "test_configurations.py",
        "test_failures.py",
        "test_timeouts.py",
    ]

TOOLS: Final = Path(__file__).with_name("tools")


def start_replicas(stack: ExitStack, count: int = 3, **config: Any) -> list[ServerProcess]:
    """Servers that differ in their name alone; each says it in its results."""

    def start(number: int) -> ServerProcess:
        server = {
            "name": f"replica-{number}",
            "trusted_proxies": ["127.0.0.1"],
            **config.get("server", {}),
        }
        return ServerProcess(TOOLS, {"tools": {"reload": False}, **config, "server": server})

    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(start, range(1, count + 1)))
    return [stack.enter_context(each) for each in found]


def address_of(server: ServerProcess) -> str:
    """`host:port` of a server."""
    return f"{server.host}:{server.port}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Of the balancers of a module."""
    return Authority(tmp_path_factory.mktemp("tls")).sign()


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[ServerProcess]]:
    """Three servers that the tests of a module share."""
    with ExitStack() as stack:
        yield start_replicas(stack)
