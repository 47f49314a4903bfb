"""What each part of the server does while its Redis is gone, frozen, full or flushed.

The table of docs/operations.md, row by row.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.asking.rounds import accept, ask, questions, state_of
from tests.courses.test_idempotency import keyed
from tests.fleet.conftest import ADA, NEW, TOOLS, config, start_all
from tests.sessions.conversation import CLIENT, Conversation
from tests.support.client import McpClient, Reply
from tests.support.relay import Relay
from tests.support.server import ServerProcess
from tests.support.stores import ANY_KIND, RedisServer
from tests.support.waiting import eventually

TIMEOUT_S = 0.3
LIMITED: dict[str, Any] = {
    "rates": [{"tools": ["limited"], "bucket": "user", "capacity": 1000, "period_s": 60}],
    "list_rates": [],
}


@dataclass
class Place:
    """A server that refuses what it cannot count, one that admits it, and their Redis.

    Attributes:
        relay: Between the first one and the Redis.
    """

    redis: RedisServer
    relay: Relay
    strict: ServerProcess
    lenient: ServerProcess

    def is_well(self) -> bool:
        """Whether both servers use the store again."""
        return all(
            server.client.call("limited", {}, ADA).status == 200
            and not server.client.call("begin", {}, ADA).is_error
            for server in (self.strict, self.lenient)
        )


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """It is well when a test begins and when it ends."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(ANY_KIND))
        relay = stack.enter_context(Relay(redis.port))
        servers = [
            ServerProcess(
                TOOLS,
                config(
                    redis,
                    [NEW],
                    state={"url": f"redis://127.0.0.1:{port}", "timeout_s": TIMEOUT_S},
                    limits={**LIMITED, "when_uncounted": way},
                ),
                start=False,
            )
            for way, port in (("refuse", relay.port), ("admit", redis.port))
        ]
        start_all(stack, servers)
        yield Place(redis, relay, *servers)


@pytest.fixture(autouse=True)
def _well_again(place: Place) -> Iterator[None]:
    """Whatever a test has done to the store, or left undone, does not concern the next one."""
    yield
    assert place.redis.process is not None
    if place.redis.process.poll() is not None:
        place.redis.start()
    place.redis.thaw()
    place.redis.empty()
    eventually(place.is_well, "all is well", 5.0)


class Client:
    """What a client had begun before, and how it goes on."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.strict, self.lenient = place.strict.client, place.lenient.client
        self.handle = self.strict.call("begin", {}, ADA).text
        self.asked = state_of(ask(self.strict, "redeem"))
        self.key = str(uuid.uuid4())
        self.paid = self.pay(self.key)
        assert self.paid.value["runs"] == 1

    def pay(self, key: str | None = None) -> Reply:
        key = key or str(uuid.uuid4())
        arguments = {"folder": str(self.folder), "order": self.key}
        return keyed(self.strict, key, "pay", arguments, ADA)

    def put(self) -> Reply:
        return self.strict.call("put", {"handle": self.handle, "item": "x"}, ADA)

    def redeem(self) -> Reply:
        return ask(self.strict, "redeem", answers={"city": accept(city="Oslo")}, state=self.asked)


def without_state(client: McpClient) -> None:
    """What needs none: it is served at once, whatever the store does."""
    since = time.perf_counter()
    assert client.call("add", {"a": 1}).value == 2
    assert client.tools()
    assert questions(ask(client, "travel"))
    with client.listening():
        pass
    assert client.get("/readyz").status == 200
    assert client.get("/healthz").status == 200
    assert time.perf_counter() - since < 2.0


def unavailable(reply: Reply) -> None:
    """A 503 that says when to come again."""
    assert reply.status == 503, reply.last
    assert int(reply.header("retry-after") or 0) > 0


def nothing_that_needs_it_is_guessed(client: Client) -> None:
    """What a store that cannot be asked does to each part."""
    unavailable(client.strict.call("limited", {}, ADA))
    assert client.lenient.call("limited", {}, ADA).status == 200
    unavailable(client.pay())
    unavailable(client.pay(client.key))
    for refused in (client.put(), client.strict.call("begin", {}, ADA)):
        assert refused.is_error and "cannot be reached" in refused.text
    unavailable(client.redeem())
    lines = (client.folder / client.key).read_text().splitlines()
    assert lines == ["paid"], "nothing has run that could not be claimed"


def test_a_store_that_is_gone_and_back(place: Place, tmp_path: Path) -> None:
    client = Client(place, tmp_path)
    with Conversation([place.strict]) as old:
        old.open()
        place.redis.stop()
        eventually(lambda: place.strict.logs("state_lost", part="store"), "it is told")
        without_state(client.strict)
        nothing_that_needs_it_is_guessed(client)
        assert old.ask("ping").code == -31503, "nobody can say whether the session has ended"
        assert old.end().status_code == 503
        with Conversation([place.strict]) as new:
            asked = {"protocolVersion": new.version, "capabilities": {}, "clientInfo": CLIENT}
            assert new.ask("initialize", asked).result["protocolVersion"] == new.version
        place.redis.start()
        eventually(place.is_well, "all is well", 5.0)
        assert old.ask("ping").code is None
        assert old.end().status_code == 204
    assert len(place.strict.logs("state_lost", part="store")) == 1
    assert len(place.strict.logs("state_back", part="store")) == 1


def test_a_store_that_is_frozen(place: Place, tmp_path: Path) -> None:
    client = Client(place, tmp_path)
    with place.redis.frozen():
        since = time.perf_counter()
        unavailable(client.strict.call("limited", {}, ADA))
        assert time.perf_counter() - since < TIMEOUT_S + 1.0
        without_state(client.strict)
        nothing_that_needs_it_is_guessed(client)
    eventually(place.is_well, "all is well", 5.0)
    assert client.pay(client.key).result == client.paid.result
    assert not client.put().is_error
    assert client.redeem().text == "redeemed Oslo"


def test_a_store_that_is_full(place: Place, tmp_path: Path) -> None:
    client = Client(place, tmp_path)
    with Conversation([place.strict]) as old:
        old.open()
        place.redis.fill()
        try:
            without_state(client.strict)
            unavailable(client.strict.call("limited", {}, ADA))
            assert client.lenient.call("limited", {}, ADA).status == 200
            unavailable(client.pay())
            assert client.pay(client.key).result == client.paid.result, "it can be read"
            refused = client.strict.call("begin", {}, ADA)
            assert refused.is_error and "no room" in refused.text
            unavailable(client.redeem())
            assert old.ask("ping").code is None
            assert old.end().status_code == 503
        finally:
            place.redis.empty()
    eventually(place.is_well, "all is well", 5.0)
    assert not client.put().is_error


def test_a_store_that_is_flushed(place: Place, tmp_path: Path) -> None:
    """It has forgotten what it was told to keep: who loses what stands in the documentation."""
    client = Client(place, tmp_path)
    with Conversation([place.strict]) as old:
        old.open()
        assert old.end().status_code == 204
        assert old.ask("ping").status == 404
        place.redis.flush()
        without_state(client.strict)
        assert client.strict.call("limited", {}, ADA).status == 200
        gone = client.put()
        assert gone.is_error and "no such list" in gone.text
        assert client.pay(client.key).value["runs"] == 2, "its outcome is forgotten"
        assert old.ask("ping").code is None, "that it has ended is forgotten"
        assert client.redeem().text == "redeemed Oslo"
    assert place.is_well()


def test_a_call_that_needs_no_shared_state_does_not_ask_for_any(place: Place) -> None:
    client = place.strict.client
    client.call("add", {"a": 1})
    before = place.redis.commands()
    for _ in range(5):
        assert client.call("add", {"a": 1}).status == 200
        client.tools()
        ask(client, "travel")
    after = place.redis.commands()
    asked = {
        name: count - before.get(name, 0)
        for name, count in after.items()
        # The bus looks whether the server is there; the test asks as well.
        if name not in {"ping", "info", "hello"} and not name.startswith("client")
    }
    assert not any(asked.values()), asked


def test_the_network_between_one_server_and_the_store_is_cut(place: Place) -> None:
    strict, lenient = place.strict.client, place.lenient.client
    place.relay.cut()
    try:
        unavailable(strict.call("limited", {}, ADA))
        without_state(strict)
        before = place.redis.commands()["evalsha"]
        assert lenient.call("limited", {}, ADA).status == 200
        assert place.redis.commands()["evalsha"] == before + 1, "the other one counts on"
    finally:
        place.relay.mend()
    eventually(place.is_well, "all is well", 5.0)


def test_a_call_goes_to_the_store_once_before_and_with_a_key_once_after(
    place: Place, tmp_path: Path
) -> None:
    client, sent = place.strict.client, place.relay.sent

    def ways(call: Callable[[], Reply]) -> int:
        call()  # what is connected and known from here on
        before = list(sent)
        assert call().status == 200
        # The connection of the bus asks now and then whether somebody is there.
        return max(after - b for after, b in zip(sent, before, strict=True))

    def keyed_call() -> Reply:
        return keyed(client, str(uuid.uuid4()), "limited", {}, ADA)

    assert ways(lambda: client.call("limited", {}, ADA)) == 1
    assert ways(keyed_call) == 2
    arguments = {"folder": str(tmp_path), "order": "one"}
    assert ways(lambda: keyed(client, str(uuid.uuid4()), "pay", arguments, ADA)) == 2


def test_a_server_that_starts_while_the_store_is_gone(place: Place, tmp_path: Path) -> None:
    place.redis.stop()
    state = {"url": place.redis.url, "timeout_s": TIMEOUT_S}
    settings = config(place.redis, [NEW], state=state, limits=LIMITED)
    with ServerProcess(TOOLS, settings) as server:
        assert server.logs("state_lost", part="store")
        without_state(server.client)
        unavailable(server.client.call("limited", {}, ADA))
        place.redis.start()
        eventually(lambda: server.client.call("limited", {}, ADA).status == 200, "it is used", 5.0)
