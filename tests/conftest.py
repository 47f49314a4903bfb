"""Servers for the tests, one per worker and as many more as a test asks for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support.client import McpClient
from tests.support.server import ServerFactory, ServerProcess

FIXTURE_TOOLS = Path(__file__).parent / "fixtures" / "tools"

# Small limits, so that tests reach them with little data; the rest is as shipped.
CONFIG: Mapping[str, Any] = {
    "server": {
        "name": "fixture-server",
        "instructions": "Use these tools to test a client.",
        "max_body_bytes": 1_048_576,
    },
    "tools": {"reload": False},
    "overrides": {"context_seen": {"settings": {"greeting": "hello"}}},
}


@pytest.fixture(autouse=True)
def _log_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands that run in the process of the tests set up its log, with streams of their own."""
    configure = structlog.configure

    def without_memory(**how: Any) -> None:
        # A logger that was used once would keep the stream of that test for all others.
        configure(**{**how, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", without_memory)
    monkeypatch.setattr("app.observability.logs._redact", None)
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is not None:
        configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


def _factory(stack: ExitStack) -> Callable[..., ServerProcess]:
    def start(
        tools: Path = FIXTURE_TOOLS, config: Mapping[str, Any] | str | None = None, **how: Any
    ) -> ServerProcess:
        return stack.enter_context(ServerProcess(tools, config, **how))

    return start


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A server with the fixture tools."""
    with ServerProcess(FIXTURE_TOOLS, CONFIG) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> McpClient:
    """A client of `server`."""
    return server.client


@pytest.fixture
def server_factory() -> Iterator[ServerFactory]:
    """Servers with a configuration or tools of their own."""
    with ExitStack() as stack:
        yield _factory(stack)


@pytest.fixture(scope="module")
def module_server_factory() -> Iterator[ServerFactory]:
    """Servers that the tests of one module share."""
    with ExitStack() as stack:
        yield _factory(stack)
