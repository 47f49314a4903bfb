"""Several Redis or Valkey that belong together: with sentinels, and as a cluster."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from tests.support.stores import NO_DISK, RedisServer, free_port
from tests.support.waiting import eventually

SERVICE: Final = "state"
ELECTION_MS: Final = 300
"""How long a server may say nothing until it counts as down."""


@dataclass
class Watched:
    """A master, its replica, and the sentinel that watches them."""

    master: RedisServer
    replica: RedisServer
    sentinel: RedisServer

    @property
    def url(self) -> str:
        """What a client takes."""
        return f"redis+sentinel://{self.sentinel.address}/{SERVICE}"

    def master_port(self) -> int:
        """Where the master is, as the sentinel says."""
        with self.sentinel.connection() as client:
            said: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            return int(said[1])


@contextlib.contextmanager
def watched(kind: str) -> Iterator[Watched]:
    """A master and a replica, watched by one sentinel, ready for a failover."""
    # Else a master waits for more replicas before it begins.
    at_once = [*NO_DISK, "--repl-diskless-sync-delay", "0"]
    with RedisServer(kind, args=at_once) as master:
        port = str(master.port)
        with RedisServer(kind, args=[*at_once, "--replicaof", "127.0.0.1", port]) as replica:
            config = "\n".join(
                [
                    f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 1",
                    f"sentinel down-after-milliseconds {SERVICE} {ELECTION_MS}",
                    f"sentinel failover-timeout {SERVICE} 2000",
                ]
            )
            with RedisServer(kind, sentinel=True, config=config) as sentinel:
                found = Watched(master, replica, sentinel)
                eventually(lambda: _knows_replica(found), "the sentinel knows the replica")
                yield found


def _knows_replica(found: Watched) -> bool:
    with found.sentinel.connection() as client, found.replica.connection() as replica:
        said: Any = client.execute_command("SENTINEL", "REPLICAS", SERVICE)
        link: Any = replica.info("replication")
        return len(said) == 1 and link["master_link_status"] == "up"


@dataclass
class Cluster:
    """Nodes that share the slots."""

    nodes: Sequence[RedisServer]

    @property
    def url(self) -> str:
        """What a client takes."""
        return "redis+cluster://" + ",".join(node.address for node in self.nodes)

    def owner(self, slot: int) -> RedisServer:
        """Who has a slot at the start."""
        return self.nodes[slot * len(self.nodes) // REDIS_CLUSTER_HASH_SLOTS]

    def move(self, slot: int, to: RedisServer) -> None:
        """Give a slot to another node, with everybody knowing."""
        with to.connection() as client:
            node_id: Any = client.execute_command("CLUSTER", "MYID")
        for node in (to, *self.nodes):
            with node.connection() as client:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", node_id)


@contextlib.contextmanager
def cluster(kind: str, size: int = 3) -> Iterator[Cluster]:
    """Nodes that have met, and between them every slot."""
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(size):
            bus_port = free_port()
            args = [*NO_DISK, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]
            if kind == "valkey":  # Redis 6.2 takes its own port and ten thousand more
                args += ["--cluster-port", str(bus_port)]
                nodes.append(stack.enter_context(RedisServer(kind, args=args)))
            else:
                port = bus_port % 20_000 + 20_000
                nodes.append(stack.enter_context(RedisServer(kind, port=port, args=args)))
        for place, node in enumerate(nodes):
            with node.connection() as client:
                slots = range(
                    place * REDIS_CLUSTER_HASH_SLOTS // size,
                    (place + 1) * REDIS_CLUSTER_HASH_SLOTS // size,
                )
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
                for other in nodes[:place]:
                    bus = int(_option(other, "cluster-port", other.port + 10_000))
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        for node in nodes:
            eventually(lambda node=node: _is_whole(node, size), "the nodes have met")  # type: ignore[misc]
        yield Cluster(nodes)


def _option(node: RedisServer, name: str, otherwise: int) -> int:
    with node.connection() as client:
        found: Any = client.config_get(name)
        return int(found.get(name.encode(), found.get(name, 0)) or otherwise)


def _is_whole(node: RedisServer, size: int) -> bool:
    with node.connection() as client:
        said: Any = client.execute_command("CLUSTER", "INFO")
        return _says(said, "cluster_state", "ok") and _says(said, "cluster_known_nodes", str(size))


def _says(said: Any, name: str, value: str) -> bool:
    if isinstance(said, dict):
        return str(said.get(name)) == value
    return f"{name}:{value}" in said.decode()
