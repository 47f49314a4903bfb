"""How long a request waits while hundreds of tool files are loaded again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes, servers, toolset, wire
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.traffic import Caller, Latencies, Traffic

_DEADLINE_S = 60.0
# A pause between calls: a steady stream of requests, not a flood that starves the reload.
_CALL_PAUSE_S = 0.001
_LIST_PAUSE_S = 0.02
_REPLACED_A_TURN = 5


@dataclass(frozen=True, slots=True)
class Reloading:
    """One kind of change: how long until it was served, and how requests fared meanwhile."""

    what: str
    files: int
    done_s: float
    latencies: Latencies


def measure(plan: Plan, folder: Path) -> tuple[float, list[Reloading]]:
    """(seconds until the server answers with all files, the kinds of change).

    Raises:
        RuntimeError: a change was not served within a minute.
    """
    pair = processes.cores()
    count = plan.reload_files
    with (
        processes.on_core(pair[1] if pair else None),
        servers.ours(folder, files=count) as server,
        Traffic(server.port) as traffic,
    ):
        servers.CALL.check(server, min(count, 250))
        traffic.open_streams(wire.listen(server.path, server.port), 1)
        lister = _start(plan, server, traffic)
        traffic.run_for(0.5)
        found = [Reloading("nothing changes", 0, 1.0, traffic.run_for(1.0))]
        revision = 0
        for _ in range(plan.reload_repeats):
            for what, numbers in (("one file changes", [0]), ("every file changes", range(count))):
                revision += 1
                found.append(
                    _change(
                        folder / "tools",
                        traffic,
                        lister,
                        what=what,
                        numbers=list(numbers),
                        revision=revision,
                    )
                )
                traffic.run_for(0.4)
        return server.started_s, found


def _start(plan: Plan, server: Server, traffic: Traffic) -> Caller:
    call = servers.CALL.request(server)
    for _ in range(plan.background - 1):
        traffic.add_caller(call, pause_s=_CALL_PAUSE_S)
    return traffic.add_caller(
        wire.listing(server.path, server.port), pause_s=_LIST_PAUSE_S, keep=True
    )


def _change(
    tools: Path,
    traffic: Traffic,
    lister: Caller,
    *,
    what: str,
    numbers: list[int],
    revision: int,
) -> Reloading:
    """Write the files between turns of the client and go on until the first page shows them all."""
    drafts = tools.parent / "drafts"
    drafts.mkdir(exist_ok=True)
    for number in numbers:
        toolset.write_one(drafts, number, revision=revision)
    expected = sum(1 for number in numbers if number < 250)
    mark = f"revision {revision}.".encode()
    traffic.heard.clear()
    began = time.perf_counter()
    latencies = traffic.run(
        lambda: bool(traffic.heard) and lister.body.count(mark) >= expected,
        deadline_s=_DEADLINE_S,
        work=_replace(drafts, tools, numbers),
    )
    return Reloading(what, len(numbers), time.perf_counter() - began, latencies)


def _replace(drafts: Path, tools: Path, numbers: list[int]) -> Iterator[object]:
    for index, number in enumerate(numbers, 1):
        toolset.path_of(drafts, number).replace(toolset.path_of(tools, number))
        if index % _REPLACED_A_TURN == 0:
            yield index
