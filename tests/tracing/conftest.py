"""A server whose spans a collector takes."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.auth.office import RESOURCE
from tests.support.client import McpClient, Reply, meta
from tests.support.collector import Collector
from tests.support.issuer import Issuer
from tests.support.server import PLENTY, ServerProcess

TOOLS: Final = Path(__file__).with_name("tools")
PUBLIC_URL: Final = RESOURCE.removesuffix("/mcp")
TRACING: Final = {"enabled": True, "baggage": ["tier", "tenant.id"]}
RARE: Final = {"tools": ["rare"], "bucket": "tool", "capacity": 1, "period_s": 3600}


def config(**sections: Any) -> dict[str, Any]:
    """The configuration of a server that makes spans."""
    return {
        "server": {"name": "traced", "public_url": PUBLIC_URL, "allowed_hosts": ["127.0.0.1"]},
        "tools": {"reload": False},
        "tracing": TRACING,
        "policies": [
            {"tools": ["guarded"], "conditions": {"networks": ["10.0.0.0/8"]}},
            {"tools": ["*"]},
        ],
        "limits": {"rates": [RARE, *PLENTY["rates"]]},
        "execution": {"threads": 1, "processes": 1},
        **sections,
    }


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=RESOURCE) as running:
        yield running


@pytest.fixture(scope="module")
def server(collector: Collector, issuer: Issuer) -> Iterator[ServerProcess]:
    auth = {"issuers": [issuer.settings()], "allow_unauthenticated": True}
    with ServerProcess(TOOLS, config(auth=auth), env=collector.environment) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> McpClient:
    return server.client


class Trace:
    """A trace of a caller.

    Attributes:
        id: 32 hexadecimal digits.
        span: Of the caller, 16.
    """

    def __init__(self, *, flags: str = "01") -> None:
        self.id, self.span = secrets.token_hex(16), secrets.token_hex(8)
        self.parent = f"00-{self.id}-{self.span}-{flags}"

    def meta(self, **others: Any) -> dict[str, Any]:
        """`_meta` of a request in it."""
        return meta(traceparent=self.parent) | others

    def call(self, client: McpClient, tool: str, arguments: Any = None, **how: Any) -> Reply:
        """Call a tool in it."""
        return client.call(tool, arguments or {}, meta_=self.meta(), **how)


@pytest.fixture
def caller() -> Trace:
    return Trace()
