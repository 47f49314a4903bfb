"""Round trips to shared state are spans of the requests that wait for them."""

import secrets
from collections.abc import Iterator

import pytest

from tests.support.client import McpClient
from tests.support.collector import Collector
from tests.support.server import ServerProcess
from tests.support.stores import ANY_KIND, BINARIES, RedisServer
from tests.support.waiting import eventually
from tests.tracing.conftest import TOOLS, Trace, config

pytestmark = pytest.mark.skipif(BINARIES[ANY_KIND] is None, reason="no server for shared state")


@pytest.fixture(scope="module")
def store() -> Iterator[RedisServer]:
    with RedisServer(ANY_KIND) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(store: RedisServer, collector: Collector) -> Iterator[ServerProcess]:
    """A server whose state is shared."""
    sections = config(state={"url": store.url}, secrets={"keys": ["k" * 32]})
    with ServerProcess(TOOLS, sections, env=collector.environment) as process:
        yield process


@pytest.fixture
def client(sharing: ServerProcess) -> McpClient:
    return sharing.client


def test_what_a_call_waits_for_is_named_and_what_is_kept_is_not(
    client: McpClient, collector: Collector, caller: Trace
) -> None:
    key = f"key-{secrets.token_hex(8)}"
    about = caller.meta(**{"mcp-tool-server/idempotencyKey": key})
    assert client.call("take", {}, meta_=about).text == "0"

    title = "tools/call take"
    spans = collector.wait(caller.id, title, "run take", "admit limits", "take outcomes")
    for name, kind in (("admit limits", "CLIENT"), ("take outcomes", "CLIENT")):
        assert (spans[name].parent, spans[name].kind) == (spans[title].id, kind)
        operation, store = name.split()
        assert spans[name].attributes == {
            "db.system.name": "redis",
            "db.operation.name": operation,
            "db.collection.name": store,
        }
    assert key.encode() not in collector.received


def test_a_list_is_counted_too(client: McpClient, collector: Collector, caller: Trace) -> None:
    client.ask("tools/list", meta_=caller.meta())

    spans = collector.wait(caller.id, "tools/list", "admit limits")
    assert spans["admit limits"].parent == spans["tools/list"].id


def test_state_that_does_not_answer_shows_in_the_trace(
    client: McpClient, collector: Collector, caller: Trace, store: RedisServer
) -> None:
    with store.frozen():
        assert caller.call(client, "take").code == -31503

    spans = collector.wait(caller.id, "admit limits", "tools/call take")
    assert (spans["admit limits"].error, spans["admit limits"].status) == (
        "StoreUnavailable",
        "ERROR",
    )
    assert spans["tools/call take"].error == "-31503"


def test_each_process_of_a_server_has_its_name(store: RedisServer, collector: Collector) -> None:
    sections = config(state={"url": store.url}, secrets={"keys": ["k" * 32]})
    found: set[tuple[str, int]] = set()
    with ServerProcess(
        TOOLS, sections, args=["--workers", "2"], env=collector.environment
    ) as server:

        def both_have_answered() -> bool:
            caller = Trace()
            caller.call(server.client, "take")
            resource = collector.wait(caller.id, "tools/call take")["tools/call take"].resource
            found.add((resource["service.instance.id"], resource["process.pid"]))
            return len(found) == 2

        eventually(both_have_answered, "both processes have answered", 20)
    assert server.pid not in {pid for _, pid in found}
