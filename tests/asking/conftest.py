"""A server whose tools ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import McpClient
from tests.support.server import ServerProcess

TOOLS = Path(__file__).with_name("tools")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server that the tests of one module share."""
    with ServerProcess(TOOLS, {"tools": {"reload": False}}) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> McpClient:
    """A client of `server`."""
    return server.client
