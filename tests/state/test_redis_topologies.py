"""Sentinels, clusters and TLS: where the right server has to be found, and to be the right one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from app.state.interface import Quota, StoreFull, StoreUnavailable, Wait
from app.state.redis_store import RedisStore
from tests.state.conftest import OpenState
from tests.state.inside import of_redis
from tests.state.test_redis_outages import ACL, OPERATIONS, usable
from tests.state.test_stores import LONG_S, admit
from tests.support.cases import rows
from tests.support.certificates import Authority
from tests.support.relay import Relay
from tests.support.stores import RedisServer
from tests.support.topologies import Cluster, cluster, watched
from tests.support.waiting import Deadline

# -- sentinels ----------------------------------------------------------------------


async def test_after_a_failover_the_new_master_is_found(kind: str, open_state: OpenState) -> None:
    with watched(kind) as found:
        state = await open_state(found.url, timeout_s=0.5)
        assert state.problem is None
        returned: list[int] = []
        state.bus.on_return(lambda: returned.append(1))
        await state.kept.set("a", b"1", ttl_s=LONG_S, owner="ada")
        with found.master.connection() as client:
            client.execute_command("WAIT", 1, 2000)
        found.master.kill()
        deadline = Deadline(20)
        while found.master_port() != found.replica.port or state.problem is not None:
            assert not deadline.expired, state.problem
            await asyncio.sleep(0.02)
        await usable(state)
        assert await state.kept.get("a") == b"1"
        await state.kept.set("a", b"2", ttl_s=LONG_S, owner="ada")
        assert found.replica.keys("*:v:a") == ["mcp:kept:v:a"]
        while not returned:
            assert not deadline.expired
            await asyncio.sleep(0.01)


async def test_sentinels_that_know_no_master_are_told_of(kind: str, open_state: OpenState) -> None:
    with RedisServer(kind, sentinel=True, config="") as sentinel:
        state = await open_state(f"redis+sentinel://{sentinel.address}/unknown", timeout_s=0.3)
        assert "no sentinel knows a master of unknown" in (state.problem or "")
        with pytest.raises(StoreUnavailable):
            await state.kept.get("a")


async def test_a_replica_is_no_server_to_write_to(kind: str, open_state: OpenState) -> None:
    with watched(kind) as found:
        state = await open_state(found.replica.url, timeout_s=0.3)
        assert "it is a replica" in (state.problem or "")


# -- clusters -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["redis", "valkey"])
def nodes(request: pytest.FixtureRequest) -> Any:
    """A cluster that is left as it is."""
    with cluster(request.param) as found:
        yield found


async def test_what_a_store_does_it_does_in_a_cluster(
    nodes: Cluster, open_state: OpenState, prefix: str
) -> None:
    state = await open_state(nodes.url, prefix=prefix)
    assert state.problem is None
    for operation in OPERATIONS.values():
        await operation(state)
    names = [f"name {number}" for number in range(30)]
    await asyncio.gather(
        *(state.kept.set(name, name.encode(), ttl_s=LONG_S, owner="ada") for name in names)
    )
    found = await asyncio.gather(*(state.kept.get(name) for name in names))
    assert found == [name.encode() for name in names]
    assert all(node.keys(f"{prefix}*") for node in nodes.nodes)
    assert not any(node.keys_without_end() for node in nodes.nodes)


async def test_in_a_cluster_the_rights_that_the_documentation_names_are_enough(
    nodes: Cluster, open_state: OpenState
) -> None:
    for node in nodes.nodes:
        with node.connection() as client:
            client.execute_command("ACL", "SETUSER", *ACL.split(), "+cluster|slots", "+asking")
    try:
        state = await open_state(nodes.url.replace("://", "://app:pw@"))
        assert state.problem is None
        for operation in OPERATIONS.values():
            await operation(state)
        await state.kept.set("a", b"1", ttl_s=LONG_S, owner="ada")
    finally:
        for node in nodes.nodes:
            with node.connection() as client:
                client.execute_command("ACL", "DELUSER", "app")


async def test_in_a_cluster_an_owner_has_its_part_and_no_more(
    nodes: Cluster, open_state: OpenState, prefix: str
) -> None:
    state = await open_state(nodes.url, prefix=prefix)
    kept: Any = of_redis(state.kept)
    store = RedisStore(kept._link, f"{prefix}small:", max_entries=8)
    for _ in range(2):
        assert await store.take("a", b"1", ttl_s=LONG_S, owner="ada") is None
        assert await store.replace("b", None, b"1", ttl_s=LONG_S, owner="ada")
        assert not await store.replace("b", None, b"2", ttl_s=LONG_S, owner="ada")
        with pytest.raises(StoreFull):
            await store.set("c", b"1", ttl_s=LONG_S, owner="ada")
        await store.delete("a")
        await store.set("c", b"1", ttl_s=LONG_S, owner="ada")
        await store.delete("b")
        await store.delete("c")


async def test_in_a_cluster_all_windows_count_or_none(
    nodes: Cluster, open_state: OpenState, prefix: str
) -> None:
    state = await open_state(nodes.url, prefix=prefix)
    quotas = [Quota(f"n{number}", 5 + number, LONG_S) for number in range(6)]
    slots = {nodes.owner(key_slot(f"{prefix}limits:w:{quota.name}".encode())) for quota in quotas}
    assert len(slots) > 1, "they lie on several nodes"
    for _ in range(5):
        assert await admit(state.limits, *quotas) is None
    for _ in range(3):
        refused = await admit(state.limits, *quotas)
        assert isinstance(refused, Wait) and refused.quota == 0
    assert await admit(state.limits, *quotas[1:]) is None
    done = await asyncio.gather(
        *(admit(state.limits, Quota("many", 10, LONG_S), Quota("x", 99, LONG_S)) for _ in range(64))
    )
    assert sum(each is None for each in done) == 10


async def test_a_slot_that_has_moved_is_found_and_what_is_told_is_heard_everywhere(
    nodes: Cluster, open_state: OpenState, prefix: str
) -> None:
    one = await open_state(nodes.url, prefix=prefix)
    key = next(f"k{n}" for n in range(99) if not nodes.nodes[2].keys(f"{prefix}kept:v:k{n}"))
    slot = key_slot(f"{prefix}kept:v:{key}".encode())
    home = nodes.owner(slot)
    other = next(node for node in nodes.nodes if node is not home)
    nodes.move(slot, other)
    try:
        await one.kept.set(key, b"1", ttl_s=LONG_S)
        assert await one.kept.get(key) == b"1"
        assert other.keys(f"{prefix}*") == [f"{prefix}kept:v:{key}"]
        await one.kept.delete(key)
    finally:
        nodes.move(slot, home)
    heard: list[bytes] = []
    others = [
        await open_state(f"redis+cluster://{node.address}", prefix=prefix) for node in nodes.nodes
    ]
    for state in others:
        state.bus.subscribe("topic", heard.append)
    deadline = Deadline()
    while len(heard) < len(others):
        assert not deadline.expired
        heard.clear()
        await one.bus.publish("topic", b"1")
        await asyncio.sleep(0.05)


async def test_a_node_that_is_gone_fails_what_it_has_and_comes_back(
    kind: str, open_state: OpenState
) -> None:
    with cluster(kind) as found:
        for node in found.nodes:
            with node.connection() as client:
                client.config_set("cluster-require-full-coverage", "no")
        state = await open_state(found.url, timeout_s=0.5)
        names = [f"name {number}" for number in range(12)]
        by_node = {
            name: found.nodes.index(found.owner(key_slot(f"mcp:kept:v:{name}".encode())))
            for name in names
        }
        assert set(by_node.values()) == {0, 1, 2}
        for name in names:
            await state.kept.set(name, b"1", ttl_s=LONG_S)
        found.nodes[1].freeze()
        for name in names:
            if by_node[name] == 1:
                with pytest.raises(StoreUnavailable):
                    await state.kept.get(name)
            else:
                assert await state.kept.get(name) == b"1"
        assert state.problem is not None
        found.nodes[1].thaw()
        await usable(state, 10.0)
        deadline = Deadline()
        for name in names:
            while True:
                try:
                    assert await state.kept.get(name) == b"1"
                    break
                except StoreUnavailable:
                    assert not deadline.expired
                    await asyncio.sleep(0.02)


async def test_a_node_of_a_cluster_is_no_single_server(
    nodes: Cluster, open_state: OpenState, redis_server: RedisServer
) -> None:
    state = await open_state(nodes.nodes[0].url, timeout_s=0.5)
    reads = [state.kept.get(f"{number}") for number in range(20)]
    done = await asyncio.gather(*reads, return_exceptions=True)
    assert any("redis+cluster://" in str(each) for each in done)
    state = await open_state(f"redis+cluster://{redis_server.address}", timeout_s=0.5)
    assert state.problem is not None


# -- TLS ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs what the tests trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_over_tls_everything_works(
    authority: Authority, redis_server: RedisServer, open_state: OpenState, prefix: str
) -> None:
    with Relay(redis_server.port, certificate=authority.sign().both) as relay:
        url = f"rediss://127.0.0.1:{relay.port}"
        state = await open_state(url, prefix=prefix, tls_ca_file=authority.ca_file)
        assert state.problem is None
        for operation in OPERATIONS.values():
            await operation(state)


async def test_a_server_may_want_a_certificate_of_its_clients(
    authority: Authority, redis_server: RedisServer, open_state: OpenState, prefix: str
) -> None:
    with Relay(
        redis_server.port,
        certificate=authority.sign().both,
        client_ca=authority.ca_file,
    ) as relay:
        url = f"rediss://127.0.0.1:{relay.port}"
        tls: dict[str, Path] = {"tls_ca_file": authority.ca_file}
        without = await open_state(url, prefix=prefix, timeout_s=0.5, **tls)
        assert without.problem is not None
        state = await open_state(
            url, prefix=prefix, tls_certificate_file=authority.sign("client").both, **tls
        )
        assert state.problem is None
        await state.kept.set("a", b"1", ttl_s=LONG_S)


@rows(
    "address, trusted",
    ("unknown authority", "127.0.0.1", False),
    ("another address", "127.0.0.2", True),
)
async def test_a_certificate_that_is_not_the_servers_is_refused(
    address: str,
    trusted: bool,
    authority: Authority,
    redis_server: RedisServer,
    open_state: OpenState,
) -> None:
    certificate = authority.sign("other", of=[address])
    with Relay(redis_server.port, certificate=certificate.both) as relay:
        tls = {"tls_ca_file": authority.ca_file} if trusted else {}
        state = await open_state(f"rediss://127.0.0.1:{relay.port}", timeout_s=0.5, **tls)
        assert "is not trusted" in (state.problem or "")


async def test_a_server_without_tls_is_not_spoken_to_in_clear(
    redis_server: RedisServer, open_state: OpenState
) -> None:
    before = redis_server.commands()
    state = await open_state(f"rediss://{redis_server.address}", timeout_s=0.5)
    assert state.problem is not None
    after = redis_server.commands()
    assert after.get("eval", 0) == before.get("eval", 0)
