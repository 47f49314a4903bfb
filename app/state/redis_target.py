"""Where a Redis or Valkey is, and how a connection to it is made."""

import asyncio
import contextlib
import os
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

CLIENT_NAME: Final = "mcp-tool-server"
"""In the ``CLIENT LIST`` of an operator."""

NONSENSE: Final = "what answers does not speak as Redis does"
"""A reason, in words."""

Host = tuple[str, int]
Connect = Callable[[], Awaitable[AbstractConnection]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where it is, and as whom.

    Attributes:
        kind: ``server``, ``unix``, ``sentinel`` or ``cluster``.
        hosts: Name and port: of the server, of the sentinels, or of some nodes of the cluster.
        password: Read for each connection, so that a new one takes effect.
        timeout_s: For making a connection, and for each answer.
    """

    kind: str
    hosts: tuple[Host, ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: Callable[[], str | None] = field(default=lambda: None, repr=False)
    sentinel_password: Callable[[], str | None] = field(default=lambda: None, repr=False)
    tls: bool = False
    tls_ca_file: Path | None = None
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    timeout_s: float = 1.0

    def connection_to(self, host: Host) -> AbstractConnection:
        """A connection that is not connected yet."""
        kind, options = self._options()
        if self.kind == "unix":
            return UnixDomainSocketConnection(path=self.path, **options)
        return kind(host=host[0], port=host[1], socket_keepalive=True, **options)

    def _options(self) -> tuple[type[Connection], dict[str, Any]]:
        options: dict[str, Any] = {
            "db": self.db,
            "username": self.username,
            "password": self.password(),
            "protocol": 2,
            # Ours bound each answer, and whatever else is waited for.
            "socket_timeout": None,
            "socket_connect_timeout": self.timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "client_name": CLIENT_NAME,
            "driver_info": None,
        }
        if not self.tls:
            return Connection, options
        return SSLConnection, options | self.tls_options()

    def tls_options(self) -> dict[str, Any]:
        """Of TLS, as redis-py names them. Names of hosts are always checked."""
        files = {
            "ssl_ca_certs": self.tls_ca_file,
            "ssl_certfile": self.tls_certificate_file,
            "ssl_keyfile": self.tls_key_file,
        }
        return {
            **{name: str(file) for name, file in files.items() if file is not None},
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            "ssl_min_version": ssl.TLSVersion.TLSv1_2,
        }

    def check(self) -> None:
        """Read the files that it names, to tell of a mistake before anything is served.

        Raises:
            OSError, ValueError: One cannot be read or has not what it should.
        """
        self.password()
        self.sentinel_password()
        if self.tls:
            context = ssl.create_default_context()
            if self.tls_ca_file is not None:
                context.load_verify_locations(self.tls_ca_file)
            if self.tls_certificate_file is not None:
                context.load_cert_chain(self.tls_certificate_file, self.tls_key_file)

    @property
    def name(self) -> str:
        """What people call it, without any secret."""
        if self.kind == "unix":
            return self.path
        hosts = ", ".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.service} of the sentinels {hosts}" if self.kind == "sentinel" else hosts


class CannotConnect(Exception):
    """There is no connection now; the text says why, without any secret."""


async def connected(connection: AbstractConnection, timeout_s: float) -> AbstractConnection:
    """Make the connection.

    Raises:
        CannotConnect: In a sentence.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await connection.connect()  # type: ignore[no-untyped-call]
    except (RedisError, OSError, ValueError) as error:
        await let_go(connection)
        raise CannotConnect(reason(error, timeout_s)) from error
    except BaseException:
        await let_go(connection)
        raise
    return connection


async def let_go(connection: AbstractConnection) -> None:
    """Close a connection without ceremony."""
    with contextlib.suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


async def connect_to_server(target: Target) -> AbstractConnection:
    """A connection to the one server that there is.

    Raises:
        CannotConnect: It cannot be reached.
    """
    host = target.hosts[0] if target.hosts else ("", 0)
    return await connected(target.connection_to(host), target.timeout_s)


class Masters:
    """Finds the server that the sentinels call the master, anew for each connection."""

    def __init__(self, target: Target) -> None:
        self._target = target
        timeout_s = target.timeout_s / 2
        options: dict[str, Any] = {
            "password": target.sentinel_password(),
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,
        }
        if target.tls:
            options |= {"ssl": True, **target.tls_options()}
        self._sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
            list(target.hosts), sentinel_kwargs=options
        )

    async def connect(self) -> AbstractConnection:
        """A connection to the master, which may have become a replica by now.

        Raises:
            CannotConnect: No sentinel knows a master, or it cannot be reached.
        """
        target = self._target
        try:
            async with asyncio.timeout(target.timeout_s * 2):
                host = await self._sentinel.discover_master(target.service)
        except MasterNotFoundError as error:
            text = f"no sentinel knows a master of {target.service}, or none can be reached"
            raise CannotConnect(text) from error
        except (RedisError, OSError) as error:
            raise CannotConnect(f"the sentinels: {reason(error, target.timeout_s)}") from error
        return await connected(target.connection_to(host), target.timeout_s)

    async def close(self) -> None:
        """Let go of the sentinels."""
        for client in self._sentinel.sentinels:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await client.aclose()


async def connect_to_any(target: Target, hosts: Sequence[Host]) -> AbstractConnection:
    """A connection to one of several hosts.

    Raises:
        CannotConnect: None of them answers.
    """
    last: CannotConnect | None = None
    for host in random.sample(hosts, len(hosts)):
        try:
            return await connected(target.connection_to(host), target.timeout_s)
        except CannotConnect as error:
            last = error
    raise last or CannotConnect("there is no host")


def reason(error: BaseException, timeout_s: float) -> str:
    """What an error of the connection, or of every command on it, means for an operator."""
    if isinstance(error, RedisError):
        return _said(error, timeout_s)
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        if error.errno is not None and error.errno > 0:  # else of the look-up of its name
            return os.strerror(error.errno)
        return error.strerror or type(error).__name__
    return f"{type(error).__name__}: {getattr(error, 'reason', None) or 'failed'}"


_KINDS: Final[tuple[tuple[type[RedisError], str], ...]] = (
    (AuthenticationError, "it refuses the user or the password, or wants one (WRONGPASS, NOAUTH)"),
    (BusyLoadingError, "it is loading its data (LOADING)"),
    (InvalidResponse, "what answers does not speak the protocol of Redis"),
)

_MEANINGS: Final = {
    "OOM": "it is full (OOM)",
    "READONLY": "it is a replica, which takes no writes (READONLY)",
    "LOADING": "it is loading its data (LOADING)",
    "NOPERM": "its ACL does not allow what is needed (NOPERM)",
    "MOVED": "it is a node of a cluster: write redis+cluster:// (MOVED)",
    "CROSSSLOT": "it is a node of a cluster: write redis+cluster:// (CROSSSLOT)",
    "CLUSTERDOWN": "its cluster is down (CLUSTERDOWN)",
    "MASTERDOWN": "it has lost its master (MASTERDOWN)",
    "MISCONF": "it cannot write to its disk, and takes no writes (MISCONF)",
    "NOREPLICAS": "it has too few replicas, and takes no writes (NOREPLICAS)",
    "BUSY": "it is busy with a script (BUSY)",
    "Unknown Redis command": "it is older than Redis 6.2",
    "unknown command": "it is older than Redis 6.2",
    "max number of clients": "it has too many clients",
}


def meaning(error: RedisError) -> str | None:
    """The code of an answer that is an error, also of one inside a script; None: another one."""
    if isinstance(error, OutOfMemoryError):
        return "OOM"
    if isinstance(error, ReadOnlyError):
        return "READONLY"
    if isinstance(error, NoPermissionError):
        return "NOPERM"
    text = f"{getattr(error, 'status_code', '') or ''} {error}"
    return next((code for code in _MEANINGS if code in text), None)


def _said(error: RedisError, timeout_s: float) -> str:
    for kind, text in _KINDS:
        if isinstance(error, kind):
            return text
    code = meaning(error)
    if code is not None:
        return _MEANINGS[code]
    inner = error.__cause__ or error.__context__
    if isinstance(inner, OSError):
        return reason(inner, timeout_s)
    if isinstance(error, RedisTimeoutError):
        return f"no answer within {timeout_s:g} s"
    # Of the server's own words the first alone: the others may repeat what it was sent.
    first = str(error).partition(" ")[0]
    if isinstance(error, ResponseError) and re.fullmatch("[A-Z]{1,20}", first):
        return f"it answers with an error ({first})"
    return "it closed the connection" if "closed" in str(error) else "it cannot be reached"
