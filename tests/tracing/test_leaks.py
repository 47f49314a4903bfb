"""Spans leave nothing behind but what waits to be exported."""

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import CONFIG, FIXTURE_TOOLS
from tests.http.test_leaks import resident_bytes, traffic
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.collector import Collector
from tests.support.http1 import Request
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def server(collector: Collector) -> Iterator[ServerProcess]:
    """A server whose spans are dropped soon: its queue is short, and nobody empties it."""
    env = collector.environment | {
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
        "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64",
    }
    collector.fault = lambda: collector.ended.wait(60) or 503
    with ServerProcess(FIXTURE_TOOLS, {**CONFIG, "tracing": {"enabled": True}}, env=env) as process:
        yield process
        collector.ended.set()


@rows(
    "build",
    ("a list", lambda c: c.request("tools/list")),
    ("a call", lambda c: c.request("tools/call", {"name": "no_arguments"})),
    ("a call in a thread", lambda c: c.request("tools/call", {"name": "quick_sync"})),
    ("an unknown tool", lambda c: c.request("tools/call", {"name": "nobody"})),
    ("bad arguments", lambda c: c.request("tools/call", {"name": "echo"})),
)
def test_a_request_with_a_span_is_freed_without_the_garbage_collector(
    client: McpClient, server: ServerProcess, build: Callable[[McpClient], Request]
) -> None:
    traffic(client, build(client), 100)
    client.call("collect_garbage")
    before = resident_bytes(server)
    traffic(client, build(client), 500)

    assert client.call("collect_garbage").value < 500
    assert resident_bytes(server) - before < 500 * 512 + 1024 * 1024
