"""How long and how large each measurement is: the default run and the quick one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of one run. Times are in seconds."""

    tools: int = 51
    connections: int = 16
    rounds: int = 9
    # Long enough that a server's own working set is in the caches again after the others' turns.
    round_s: float = 0.5
    streams: int = 5_000
    # One keep-alive period (15 s) and a little more, so that the idle figure contains a keep-alive.
    idle_s: float = 16.0
    changes: int = 3
    reload_files: int = 500
    reload_repeats: int = 3
    # Connections that go on calling while listeners hear of a change or files are reloaded.
    background: int = 4


DEFAULT = Plan()
QUICK = Plan(
    rounds=5,
    round_s=0.08,
    streams=1_000,
    idle_s=2.0,
    changes=2,
    reload_repeats=1,
)
