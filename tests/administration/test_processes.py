"""The same with real processes and a real Valkey: what in-process replicas cannot show."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import httpx2
import pytest

from tests.administration.replicas import ADMIN_KEY, CONFIG, KEYS, TOOLS
from tests.support.client import Stream
from tests.support.server import ServerProcess
from tests.support.sse import Comment
from tests.support.stores import ANY_KIND, NO_DISK, RedisServer
from tests.support.waiting import eventually

CHANGED: Final = "notifications/tools/list_changed"
SOON_S: Final = 2.0
ALL: Final = {"alpha", "beta", "gamma"}


def config(redis: RedisServer, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Of one replica."""
    keys = [{"id": name, "hash": key["hash"]} for name, key in _by_id().items()]
    return {
        "server": {"fleet": True, "drain_s": 0},
        "tools": {"reload": False},
        "execution": {"keep_alive_s": 0.3},
        "admin": dict(CONFIG["admin"]),
        "auth": {"api_keys": keys, "allow_unauthenticated": True},
        "state": {"url": redis.url},
        "secrets": dict(CONFIG["secrets"]),
        "limits": {"rates": [], "list_rates": []},  # what is not counted needs no store
        **sections,
    }


def _by_id() -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in CONFIG["auth"]["api_keys"]}


class Replica:
    """A server process and its administrative listener."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server

    @property
    def admin(self) -> str:
        line = self.server.wait_for_log(lambda log: log.get("event") == "administration_listening")
        return str(line["url"])

    def names(self) -> set[str]:
        return set(self.server.client.tools())

    def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        url = f"{self.admin}/admin/v1/{path}"
        with httpx2.Client(trust_env=False, timeout=10, verify=False) as client:
            return client.request(method, url, json=body, headers={"X-API-Key": ADMIN_KEY})

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("GET", "status").json()
        return answer


class Fleet:
    """Three replicas over one Valkey."""

    def __init__(self, redis: RedisServer, servers: list[ServerProcess]) -> None:
        self.redis = redis
        self.replicas = [Replica(server) for server in servers]

    def __getitem__(self, number: int) -> Replica:
        return self.replicas[number % len(self.replicas)]

    def know_each_other(self) -> None:
        for replica in self.replicas:
            eventually(partial(_knows_all, replica), "all are known")


def _knows_all(replica: Replica) -> bool:
    return len(replica.status()["fleet"]) == 3


@pytest.fixture(scope="module")
def trio() -> Iterator[Fleet]:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(ANY_KIND, args=NO_DISK))
        servers = [ServerProcess(TOOLS, config(redis), start=False) for _ in range(3)]
        for server in servers:
            stack.enter_context(server)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(ServerProcess.start, servers))
        trio = Fleet(redis, servers)
        trio.know_each_other()
        yield trio


def is_told(stream: Stream, trio: Fleet) -> tuple[float, list[set[str]]]:
    """When a listener is told, and what lists from all replicas said just then."""
    assert stream.next(SOON_S + 2)["method"] == CHANGED
    told_at = time.monotonic()
    return told_at, [trio[number].names() for number in range(6)]


def is_left_alone(stream: Stream) -> None:
    for _ in range(3):
        assert isinstance(stream.reader.next(2.0), Comment)


@pytest.mark.timeout(120)
def test_one_change_is_told_once_to_six_listeners_in_time(trio: Fleet) -> None:
    took = []
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        streams = [
            stack.enter_context(trio[n].server.client.listening()) for n in (0, 0, 1, 1, 2, 2)
        ]
        for round_, enabled in enumerate((False, True, False)):
            waiting = [pool.submit(is_told, stream, trio) for stream in streams]
            began = time.monotonic()
            answer = trio[round_].ask("PATCH", "tools/beta/switch", {"enabled": enabled})
            assert answer.json()["complete"] and answer.json()["lasting"], answer.text
            expected = ALL if enabled else ALL - {"beta"}
            for told in waiting:
                at, lists = told.result()
                took.append(at - began)
                assert lists == [expected] * 6
        for stream in streams:
            is_left_alone(stream)
    assert max(took) < SOON_S, took


@pytest.mark.timeout(120)
def test_a_store_that_is_restarted_empty_gets_back_what_was_decided(trio: Fleet) -> None:
    assert trio[0].ask("PATCH", "tools/beta/switch", {"enabled": False}).status_code in (200, 202)
    with trio[1].server.client.listening() as stream:
        trio.redis.stop()
        refused = trio[1].ask("PATCH", "tools/gamma/switch", {"enabled": False})
        assert refused.status_code == 503
        assert trio[2].names() == {"alpha", "gamma"}
        trio.redis.start()
        eventually(lambda: all(each.status()["problem"] is None for each in trio.replicas), "back")
        is_left_alone(stream)
        trio.know_each_other()

        def is_done() -> bool:
            answer = trio[2].ask("PATCH", "tools/gamma/switch", {"enabled": False})
            return answer.is_success

        eventually(is_done, "it can be decided again")
        assert is_told(stream, trio)[1] == [{"alpha"}] * 6
    for name in ("beta", "gamma"):
        trio[0].ask("DELETE", f"tools/{name}/switch")


@pytest.mark.timeout(120)
def test_a_replica_that_is_killed_holds_nobody_up_and_knows_everything_when_it_is_back(
    trio: Fleet,
) -> None:
    victim = ServerProcess(TOOLS, config(trio.redis))
    eventually(lambda: len(trio[0].status()["fleet"]) == 4, "it is known")
    with trio[0].server.client.listening() as stream, ThreadPoolExecutor(1) as pool:
        victim.kill()
        told = pool.submit(stream.next, SOON_S + 1)
        began = time.monotonic()
        answer = trio[1].ask("PATCH", "tools/alpha/switch", {"enabled": False}).json()
        assert len(answer["missing"]) == 1
        assert told.result()["method"] == CHANGED
        assert time.monotonic() - began < SOON_S + 0.5
    victim.discard()
    body = {"issuer": "api-key", "id": "eve"}
    assert trio[1].ask("POST", "credentials/revoke", body).is_success
    with ServerProcess(TOOLS, config(trio.redis)) as another:
        assert set(another.client.tools()) == {"beta", "gamma"}
        eve = {"X-API-Key": KEYS["eve"]}
        assert another.client.ask("tools/list", headers=eve).status == 401
        eventually(lambda: trio[0].status()["one_revision"], "all are of one revision")


@pytest.mark.timeout(120)
def test_workers_of_one_replica_share_its_listener_and_drain_together(trio: Fleet) -> None:
    alone = config(trio.redis, state={"url": trio.redis.url, "prefix": "workers:"})
    with ServerProcess(TOOLS, alone, args=["--workers", "2"]) as server:
        eventually(lambda: len(server.logs("listening")) == 2, "both workers listen", 20)
        both = Replica(server)
        eventually(lambda: len(both.status()["fleet"]) == 2, "both workers are known")
        (replica,) = {member["replica"] for member in both.status()["fleet"]}
        assert both.ask("POST", f"replicas/{replica}/drain").status_code == 200
        assert {server.client.get("/readyz").status for _ in range(20)} == {503}
        assert both.ask("DELETE", f"replicas/{replica}/drain").status_code == 200
        assert {server.client.get("/readyz").status for _ in range(20)} == {200}
        assert both.ask("PATCH", "tools/beta/switch", {"enabled": False}).status_code == 200
        assert {frozenset(both.names()) for _ in range(20)} == {frozenset({"alpha", "gamma"})}
