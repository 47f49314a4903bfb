"""CPU time per request, all servers in the same run, their rounds interleaved."""

from __future__ import annotations

import contextlib
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes, servers
from benchmarks.load import Pool
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.servers import WORKLOADS, Workload

_WARM_UP = 200
_SLOW_WARM_UP = 20


@dataclass(slots=True)
class Series:
    """The rounds of one server under one workload."""

    server: str
    workload: str
    count: int
    answer_bytes: int
    cpu_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    over_floor: list[float] = field(default_factory=list)

    @property
    def median_us(self) -> float:
        return statistics.median(self.cpu_us)

    @property
    def least_us(self) -> float:
        return min(self.cpu_us)

    @property
    def ratio(self) -> float:
        """Median over the rounds of this server's cost to the floor's in the round beside it."""
        return statistics.median(self.over_floor)


def measure(plan: Plan, folder: Path, *, with_peers: bool = True) -> list[Series]:
    """Time every installed server under every workload.

    Raises:
        RuntimeError: a server does not start or answers wrongly.
    """
    pair = processes.cores()
    with contextlib.ExitStack() as stack:
        running: list[Server] = []
        if servers.have_ours():
            running.append(stack.enter_context(servers.ours(folder, files=plan.tools)))
            running.append(stack.enter_context(servers.guarded(folder, files=plan.tools)))
            running.append(stack.enter_context(servers.audited(folder, files=plan.tools)))
            running.append(stack.enter_context(servers.older(folder, files=plan.tools)))
        if with_peers:
            running += [
                stack.enter_context(servers.peer(folder, label, plan.tools))
                for label in servers.peers()
            ]
        if not running:
            raise RuntimeError(
                "nothing to measure: neither this server nor an alternative is installed"
            )
        sizes = {f"/{load.key}": load.check(running[0], plan.tools).size for load in WORKLOADS}
        stack.enter_context(processes.on_core(pair[1] if pair else None))
        running.insert(0, stack.enter_context(servers.floor(folder, sizes)))
        return [series for workload in WORKLOADS for series in interleaved(plan, running, workload)]


def interleaved(plan: Plan, running: list[Server], workload: Workload) -> list[Series]:
    """Time each server under one workload, in turns; the first is what the others are held to."""
    found: list[Series] = []
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(Pool(server.port, plan.connections)) for server in running]
        requests = [workload.request(server) for server in running]
        for server, pool, request in zip(running, pools, requests, strict=True):
            size = workload.check(server, plan.tools).size
            # The first requests compile and cache; the next ones say how many fit into a round.
            pool.run(request, _SLOW_WARM_UP)
            pace = pool.run(request, _SLOW_WARM_UP)
            if pace.wall_s < 0.05:
                pool.run(request, _WARM_UP)
                pace = pool.run(request, _WARM_UP)
            count = max(plan.connections * 2, int(pace.count / pace.wall_s * plan.round_s))
            found.append(Series(server.label, workload.name, count, size))
        for _ in range(plan.rounds):
            for series, server, pool, request in zip(found, running, pools, requests, strict=True):
                before = server.cpu_s()
                taken = pool.run(request, series.count)
                series.cpu_us.append((server.cpu_s() - before) / taken.count * 1e6)
                series.per_second.append(taken.count / taken.wall_s)
                series.over_floor.append(series.cpu_us[-1] / found[0].cpu_us[-1])
    return found
