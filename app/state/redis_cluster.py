"""Commands to a cluster: each to the node that has its slot."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, NoScriptError, RedisError, ResponseError, TryAgainError

from app.state.interface import StoreUnavailable
from app.state.redis_link import ServerLink
from app.state.redis_scripts import Script
from app.state.redis_target import (
    CannotConnect,
    Host,
    Target,
    connect_to_any,
    connected,
    let_go,
    reason,
)

LOOK_S: Final = 1.0
"""How often the cluster is asked who has which slot while something is wrong."""

LOOK_ANYWAY_S: Final = 30.0


class ClusterLink:
    """A connection to each node that has slots. Implements ``app.state.redis_link.Link``.

    A node that is gone fails the calls about its slots at once, and no others. Who has which slot
    is asked again when a node says that a slot has moved, when one is gone, and now and then.
    """

    is_cluster = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self._problem: str | None = None
        self._links: dict[Host, ServerLink] = {}
        self._owners: list[Host | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._must_look = asyncio.Event()

    @property
    def problem(self) -> str | None:
        if self._problem is not None:
            return self._problem
        return next((link.problem for link in self._links.values() if link.problem), None)

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep_looking(), name="keep cluster")
        await self._looked.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        links, self._links = self._links, {}
        self._problem = "the server ends"
        await asyncio.gather(*(link.close() for link in links.values()))

    async def connect(self) -> AbstractConnection:
        """A connection to one of the nodes, for a bus: what one is told, all of them tell.

        Raises:
            CannotConnect: None of them answers.
        """
        hosts = {
            *self._target.hosts,
            *(host for host, link in self._links.items() if not link.problem),
        }
        return await connect_to_any(self._target, sorted(hosts))

    async def command(self, key: str, *command: bytes | str | int) -> Any:
        return await self._send(key, command)

    async def run(self, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> Any:
        try:
            return await self._send(keys[0], ("EVALSHA", script.sha, len(keys), *keys, *arguments))
        except NoScriptError:
            return await self._send(keys[0], ("EVAL", script.text, len(keys), *keys, *arguments))

    def distrust(self, key: str) -> StoreUnavailable:
        return self._link(key).distrust()

    async def _send(self, key: str, command: tuple[bytes | str | int, ...]) -> Any:
        """The answer of whoever has the slot of a key, also where it moves just now.

        Raises:
            NoScriptError: The node does not know the script.
        """
        link = self._link(key)
        answer = await link.send(*command)
        if isinstance(answer, AskError):  # also where it has moved for good
            if type(answer) is not AskError:
                self._must_look.set()
            host = (answer.host or self._target.hosts[0][0], answer.port)
            link = await self._link_to(host)
            asking = link.send("ASKING")
            sent = link.send(*command)
            await asking
            answer = await sent
        if isinstance(answer, NoScriptError):
            raise answer
        if isinstance(answer, ResponseError):
            self._must_look.set()
        if isinstance(answer, TryAgainError):
            raise StoreUnavailable("the cluster is moving what was asked for (TRYAGAIN)")
        return link.checked(answer)

    def _link(self, key: str) -> ServerLink:
        if self._problem is not None:
            raise StoreUnavailable(self._problem)
        host = self._owners[key_slot(key.encode())]
        link = self._links.get(host) if host is not None else None
        if link is None:
            self._must_look.set()
            raise StoreUnavailable("no node of the cluster has the slot")
        if link.problem is not None:
            self._must_look.set()
        return link

    async def _link_to(self, host: Host) -> ServerLink:
        link = self._links.get(host)
        if link is None:
            target = self._target
            link = self._links[host] = ServerLink(
                partial(_connect, target, host),
                name=f"{host[0]}:{host[1]}",
                timeout_s=target.timeout_s,
                probe=None,
            )
            await link.start()
        return link

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._look()
            except CannotConnect as error:
                self._problem = f"{self._target.name}: {error}"
            else:
                self._problem = None
            self._looked.set()
            await asyncio.sleep(LOOK_S)
            if self.problem is None:
                self._must_look.clear()
                try:
                    async with asyncio.timeout(LOOK_ANYWAY_S):
                        await self._must_look.wait()
                except TimeoutError:
                    pass

    async def _look(self) -> None:
        """Ask one of the nodes who has which slot, and connect to them.

        Raises:
            CannotConnect: None of them says it.
        """
        connection = await self.connect()
        timeout_s = self._target.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await connection.send_command("CLUSTER", "SLOTS", check_health=False)
                ranges = await connection.read_response(disable_decoding=True)
            owners: list[Host | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
            for first, last, (host, port, *_), *_ in ranges:
                at = (host.decode() or self._target.hosts[0][0], port)
                owners[first : last + 1] = [at] * (last - first + 1)
        except (RedisError, OSError) as error:
            raise CannotConnect(reason(error, timeout_s)) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise CannotConnect("what answers is no node of a cluster") from error
        finally:
            await let_go(connection)
        hosts = {host for host in owners if host is not None}
        await asyncio.gather(*map(self._link_to, hosts))
        self._owners = owners
        gone = [self._links.pop(host) for host in set(self._links) - hosts]
        await asyncio.gather(*(link.close() for link in gone))
        if None in owners:
            raise CannotConnect("some slots of the cluster have no node")


async def _connect(target: Target, host: Host) -> AbstractConnection:
    return await connected(target.connection_to(host), target.timeout_s)
