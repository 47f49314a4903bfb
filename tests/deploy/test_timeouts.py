"""Silence and idle connections.

The idle timeouts that ship are 60 s; here they are 2 s, and the server's own intervals are as much
shorter. All balancers are tried at once, since this takes time.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.conftest import address_of, start_replicas
from tests.support.balancers import BALANCERS, Balancer, Pools
from tests.support.certificates import Certificate
from tests.support.http1 import ConnectionEndedError

IDLE_S: Final = 2.0
LONG_S: Final = 5.0
CLIENTS: Final = 16
SPACINGS_S: Final = (1.95, 2.05, 3.05)
"""Around the time after which balancers, and then servers, give up idle connections."""


@pytest.fixture(scope="module")
def balancers(certificate: Certificate) -> Iterator[list[Balancer]]:
    with ExitStack() as stack:
        one, two, three = map(
            address_of,
            start_replicas(
                stack,
                execution={"silence_s": 0.3, "keep_alive_s": 0.7},
                server={"keep_alive_s": 3},
                tools={"reload": True},
            ),
        )
        # Of this one a proxy must think that it has died.
        (quiet,) = start_replicas(stack, 1, execution={"silence_s": 0.3, "keep_alive_s": 60})
        pools = Pools(replicas=(one, two, three), heavy=address_of(quiet), eu=one)
        yield [
            stack.enter_context(kind(pools, certificate, timeout=f"{IDLE_S:g}s"))
            for kind in BALANCERS
        ]


def test_comments_keep_streams_open_that_are_silent_for_longer_than_any_timeout(
    balancers: list[Balancer], tmp_path: Path
) -> None:
    release = tmp_path / "release"

    def listen_and_call(balancer: Balancer) -> str:
        client = balancer.client()
        params = {
            "name": "wait",
            "arguments": {"path": str(tmp_path / balancer.name), "release": str(release)},
        }
        with client.listening() as listener, client.stream("tools/call", params) as stream:
            result = stream.next(LONG_S * 3)["result"]
            # The listener is still there: it gets a comment.
            listener.reader.next_comment()
            text: str = result["content"][0]["text"]
            return text

    with ThreadPoolExecutor(len(balancers)) as pool:
        found = pool.map(listen_and_call, balancers)
        threading.Timer(LONG_S, release.touch).start()
        assert list(found) == ["released"] * len(balancers)


def test_without_comments_they_would_be_cut(balancers: list[Balancer]) -> None:
    def call(balancer: Balancer) -> bool:
        params = {"name": "export_report", "arguments": {"seconds": LONG_S}}
        with balancer.client().stream("tools/call", params) as stream:
            try:
                stream.rest(LONG_S - 1)
            except (ConnectionEndedError, AssertionError) as error:
                return "not within" not in str(error)
        return False

    with ThreadPoolExecutor(len(balancers)) as pool:
        assert list(pool.map(call, balancers)) == [True] * len(balancers)


def test_no_request_meets_a_connection_that_the_server_is_closing(
    balancers: list[Balancer],
) -> None:
    """RT-07, with shorter times: requests come when idle connections are about to end."""
    pause = threading.Event()

    def ask(number: int) -> list[tuple[str, int]]:
        balancer = balancers[number % len(balancers)]
        early_s = (number % 11 - 5) / 100
        found = []
        for spacing in SPACINGS_S:
            status = balancer.client().call("echo", {"text": "x"}).status
            found.append((balancer.name, status))
            pause.wait(spacing - early_s)
        return found

    count = CLIENTS * len(balancers)
    with ThreadPoolExecutor(count) as pool:
        outcomes = Counter(each for found in pool.map(ask, range(count)) for each in found)
    assert outcomes == {(balancer.name, 200): CLIENTS * len(SPACINGS_S) for balancer in balancers}
