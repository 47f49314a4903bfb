"""What an idle listener costs, and how soon one change reaches all of them while calls go on."""

from __future__ import annotations

import contextlib
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes, servers, toolset, wire
from benchmarks.load import ask
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.traffic import Latencies, Traffic

# Descriptors beside the streams: listening socket, callers, log, interpreter.
_SPARE_DESCRIPTORS = 300
_DEADLINE_S = 20.0


@dataclass(slots=True)
class Listening:
    """The figures of one server with many idle streams."""

    server: str
    streams: int
    kib_a_stream: float
    idle_percent: float
    delivery_us: float
    quiet: Latencies
    during: list[Latencies] = field(default_factory=list)
    # From the first listener's notification to the last one's, with calls going on.
    spread_ms: list[float] = field(default_factory=list)
    # From the moment the file was written, so with the watcher's own patience and the reload.
    total_ms: list[float] = field(default_factory=list)

    @property
    def calls_worst_ms(self) -> float:
        return max(window.worst_ms for window in self.during)

    @property
    def worst_spread_ms(self) -> float:
        return max(self.spread_ms)

    @property
    def median_total_ms(self) -> float:
        return statistics.median(self.total_ms)


def allow_descriptors(wanted: int) -> int:
    """Raise the limit of open files as far as permitted; the number of streams that then fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted + _SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        target = min(target, hard)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return min(wanted, max(soft, target) - _SPARE_DESCRIPTORS)


def measure(plan: Plan, folder: Path) -> list[Listening]:
    """Measure the floor and this server.

    Raises:
        RuntimeError: a stream was refused or lost, or a change did not arrive in time.
    """
    count = allow_descriptors(plan.streams)
    pair = processes.cores()
    found = []
    size = 300
    with contextlib.ExitStack() as stack:
        stack.enter_context(processes.on_core(pair[1] if pair else None))
        if servers.have_ours():
            with servers.ours(folder, files=plan.tools) as server:
                size = servers.CALL.check(server, plan.tools).size
                revisions = iter(range(1, 1000))
                tools = folder / "tools"
                found.append(
                    _measure(
                        plan,
                        server,
                        count,
                        listen=wire.listen(server.path, server.port),
                        change=lambda: toolset.write_one(tools, 1, revision=next(revisions)),
                    )
                )
        with servers.floor(folder, {"/call": size, "/change": 2}) as server:
            found.insert(
                0,
                _measure(
                    plan,
                    server,
                    count,
                    listen=wire.listen("/listen", server.port),
                    change=lambda: ask_for_change(server),
                ),
            )
    return found


def ask_for_change(server: Server) -> None:
    """Have the floor notify its listeners."""
    ask(server.port, wire.post("/change", server.port, "x", {}))


def _measure(
    plan: Plan, server: Server, count: int, *, listen: bytes, change: Callable[[], None]
) -> Listening:
    call = servers.CALL.request(server)
    # What the first streams and calls allocate once is not the price of the others.
    with Traffic(server.port) as early:
        early.open_streams(listen, min(count, 100))
        early.add_caller(call)
        early.run_for(0.3)
    time.sleep(0.3)
    before = server.rss_bytes()
    with Traffic(server.port) as traffic:
        traffic.open_streams(listen, count)
        traffic.run_for(0.3)
        each = (server.rss_bytes() - before) / count / 1024

        used = server.cpu_s()
        traffic.run_for(plan.idle_s)
        idle = (server.cpu_s() - used) / plan.idle_s * 100

        used = server.cpu_s()
        _one_change(traffic, change)
        delivery = (server.cpu_s() - used) / count * 1e6
        traffic.run_for(0.7)

        for _ in range(plan.background):
            traffic.add_caller(call)
        found = Listening(server.label, count, each, idle, delivery, quiet=traffic.run_for(0.7))
        for _ in range(plan.changes):
            latencies, spread, total = _one_change(traffic, change)
            found.during.append(latencies)
            found.spread_ms.append(spread * 1e3)
            found.total_ms.append(total * 1e3)
            traffic.run_for(0.7)
        if traffic.lost:
            raise RuntimeError(f"{server.label} dropped {traffic.lost} of {count} idle streams")
    return found


def _one_change(traffic: Traffic, change: Callable[[], None]) -> tuple[Latencies, float, float]:
    """Cause one visible change; (call latencies, first to last hearing, total), in seconds."""
    traffic.heard.clear()
    began = time.perf_counter()
    change()
    latencies = traffic.run(lambda: len(traffic.heard) >= traffic.streams, deadline_s=_DEADLINE_S)
    times = traffic.heard.values()
    return latencies, max(times) - min(times), max(times) - began
