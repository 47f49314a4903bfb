"""Replicas that die, and replicas that drain, behind each balancer."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.conftest import address_of, start_replicas
from tests.support.balancers import BALANCERS, Balancer, Pools
from tests.support.certificates import Certificate
from tests.support.client import McpClient, modern_request
from tests.support.http1 import ConnectionEndedError
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from tests.support.waiting import Deadline, eventually

KINDS = pytest.mark.parametrize("kind", BALANCERS, ids=lambda kind: kind.name)


@dataclass
class Fleet:
    """Three servers and what stands in front of them."""

    replicas: list[ServerProcess]
    balancer: Balancer

    @property
    def client(self) -> McpClient:
        return self.balancer.client()


@pytest.fixture
def fleet(kind: type[Balancer], certificate: Certificate) -> Iterator[Fleet]:
    with ExitStack() as stack:
        replicas = start_replicas(stack)
        one, two, three = map(address_of, replicas)
        pools = Pools(replicas=(one, two, three), heavy=three, eu=one)
        yield Fleet(replicas, stack.enter_context(kind(pools, certificate)))


@KINDS
def test_a_call_is_not_repeated_when_its_replica_dies(fleet: Fleet, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    params = {"name": "wait", "arguments": {"path": str(notes)}}
    client = fleet.client
    with client.connect() as connection:
        connection.send(client.request("tools/call", params).encode())
        eventually(notes.exists, "the call has begun")
        pid = int(notes.read_text().split()[1])
        (victim,) = (each for each in fleet.replicas if each.pid == pid)
        victim.discard()
        victim.process = None  # it need not end well
        try:
            response = connection.read_response()
        except ConnectionEndedError:
            pytest.fail("the client is told nothing")
    assert response.status in (502, 503)
    assert response.json()["error"]["code"] in (-31502, -31503)

    # Nobody else notices: what cannot be sent goes to another replica.
    assert {client.call("echo", {"text": "x"}).text for _ in range(40)} == {"x"}
    assert notes.read_text().count("started") == 1


@dataclass
class Stubs:
    """Three servers whose readiness the test decides."""

    upstreams: list[Upstream]
    balancer: Balancer

    def ask(self) -> int:
        """One call; its status."""
        request = modern_request("tools/call", {"name": "x"}, host="localhost")
        with self.balancer.client().connect() as connection:
            return connection.exchange(request).status

    def counts(self) -> list[int]:
        return [each.requests for each in self.upstreams]


@pytest.fixture
def stubs(kind: type[Balancer], certificate: Certificate) -> Iterator[Stubs]:
    with ExitStack() as stack:
        upstreams = [stack.enter_context(Upstream()) for _ in range(3)]
        one, two, three = (each.address for each in upstreams)
        pools = Pools(replicas=(one, two, three), heavy=three, eu=one)
        yield Stubs(upstreams, stack.enter_context(kind(pools, certificate)))


@KINDS
def test_a_replica_that_drains_gets_nothing_new_and_keeps_its_streams(stubs: Stubs) -> None:
    request = modern_request("subscriptions/listen", {"hold": 1}, host="localhost")
    with stubs.balancer.client().connect() as stream:
        stream.send(request.encode())
        response = stream.open_response()
        eventually(lambda: any(each.holding for each in stubs.upstreams), "a stream has begun")
        (draining,) = (each for each in stubs.upstreams if each.holding)
        draining.is_ready = False

        def gets_nothing() -> bool:
            before = draining.requests
            assert {stubs.ask() for _ in range(12)} == {200}
            return draining.requests == before

        if stubs.balancer.name == "nginx":  # of open source: it asks nobody for readiness
            eventually(lambda: draining.requests > 1 or not gets_nothing(), "it is asked")
        else:
            eventually(gets_nothing, "nothing new")
        draining.released.set()
        assert response.stream is not None
        rest = b""
        while b"two" not in rest:
            rest += response.stream.read(Deadline(5.0))

        draining.is_ready = True

        def is_asked() -> bool:
            before = draining.requests
            stubs.ask()
            return draining.requests > before

        eventually(is_asked, "it is asked again")


@KINDS
def test_where_nobody_is_ready_clients_are_told_to_wait(stubs: Stubs) -> None:
    if stubs.balancer.name == "nginx":
        for each in stubs.upstreams:
            each.__exit__(None, None, None)
    for each in stubs.upstreams:
        each.is_ready = False
    eventually(lambda: stubs.ask() in (502, 503), "no server is asked")

    with stubs.balancer.client().connect() as connection:
        request = modern_request("tools/call", {"name": "x"}, host="localhost")
        response = connection.exchange(request)
    assert response.json()["error"]["code"] in (-31502, -31503)
    if stubs.balancer.name != "nginx":
        assert response.header("retry-after") == "1"
        assert response.json()["error"]["data"] == {"retryAfterMs": 1000}
