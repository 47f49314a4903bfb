"""A server with pages, and an OpenID provider whose people come to them."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.landing.browser import Browser, Call
from tests.support.identity import IdentityProvider
from tests.support.server import ServerFactory, ServerProcess

TOOLS = Path(__file__).with_name("tools")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def start(
    factory: ServerFactory, provider: IdentityProvider, *, browser: Any, **sections: Any
) -> ServerProcess:
    """A server that knows its own address, and whose pages have this login."""
    port = free_port()
    config = {
        "server": {"public_url": f"http://127.0.0.1:{port}", "title": "The <vault>"},
        "tools": {"reload": False},
        "auth": {
            "issuers": [provider.settings(**({"browser": browser} if browser else {}))],
            "allow_unauthenticated": True,
        },
        **sections,
    }
    server = factory(TOOLS, config, port=port)
    server.wait_for_log(lambda log: log["event"] == "issuer_keys_refreshed", timeout=30)
    return server


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def server(provider: IdentityProvider, module_server_factory: ServerFactory) -> ServerProcess:
    """A server that the tests of one module share."""
    return start(module_server_factory, provider, browser=provider.browser_settings())


@pytest.fixture
def alice(provider: IdentityProvider) -> Iterator[Browser]:
    with Browser(provider, "alice") as browser:
        yield browser


@pytest.fixture
def bob(provider: IdentityProvider) -> Iterator[Browser]:
    with Browser(provider, "bob") as browser:
        yield browser


@pytest.fixture(scope="module")
def token(server: ServerProcess, provider: IdentityProvider) -> str:
    """Of alice, for calls."""
    return provider.log_in("alice", resource=f"http://127.0.0.1:{server.port}/mcp").access


@pytest.fixture
def call(server: ServerProcess, token: str) -> Callable[..., Call]:
    """Calls of alice."""

    def begin(tool: str = "connect", **arguments: Any) -> Call:
        return Call(server, token, tool, **arguments)

    return begin
