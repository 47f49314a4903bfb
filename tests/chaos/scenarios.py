"""What happens to a system under steady load, and what it must not cost."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.chaos.crowd import Figures
from tests.chaos.system import System


class Scenario(NamedTuple):
    """Something that happens while callers go on.

    Attributes:
        title: What happens, for the table.
        happen: Does it, for so many seconds where it has a length.
        seconds: That length, in a full run.
        tool: What the callers call.
        thinks_s: How long it takes; None: it takes no such argument.
    """

    title: str
    happen: Callable[[System, float], None]
    seconds: float
    tool: str = "record"
    thinks_s: float | None = None


def pause(seconds: float) -> None:
    """Let time pass: load is measured over it."""
    threading.Event().wait(seconds)


def _nothing(_: System, seconds: float) -> None:
    pause(seconds)


def _rolling(system: System, _: float) -> None:
    system.restart_one_by_one()


def _kill(system: System, _: float) -> None:
    system.kill(system.replicas[1])


def _store_restarts(system: System, seconds: float) -> None:
    system.store.stop()
    pause(seconds)
    system.store.start()


def _store_freezes(system: System, seconds: float) -> None:
    with system.store.frozen():
        pause(seconds)


def _cable_is_cut(system: System, seconds: float) -> None:
    system.cable.cut()
    pause(seconds)
    system.cable.mend()


def _replica_freezes(system: System, seconds: float) -> None:
    pid = system.replicas[2].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        pause(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def _replica_is_slow(system: System, seconds: float) -> None:
    """It gets a tenth of its time."""
    pid = system.replicas[2].pid
    for _ in range(int(seconds / 0.1)):
        os.kill(pid, signal.SIGSTOP)
        try:
            pause(0.09)
        finally:
            os.kill(pid, signal.SIGCONT)
        pause(0.01)


SCENARIOS: Final[dict[str, Scenario]] = {
    "quiet": Scenario("nothing", _nothing, 10.0),
    "rolling": Scenario("rolling restart of all three", _rolling, 0.0),
    "kill": Scenario(
        "`kill -9` of one replica, calls of 0.3 s",
        _kill,
        0.0,
        tool="record_slowly",
        thinks_s=0.3,
    ),
    "store restarts": Scenario("the store restarts", _store_restarts, 1.0),
    "store freezes": Scenario("the store answers nothing for 10 s", _store_freezes, 10.0),
    "cable": Scenario(
        "one replica is cut off from the store for 10 s",
        _cable_is_cut,
        10.0,
    ),
    "replica freezes": Scenario(
        "one replica answers nothing for 5 s",
        _replica_freezes,
        5.0,
    ),
    "replica is slow": Scenario(
        "one replica gets a tenth of its time, for 5 s", _replica_is_slow, 5.0
    ),
}


def run(system: System, name: str, *, rate: float, seconds: float | None = None) -> Figures:
    """Let it happen under load, and count."""
    scenario = SCENARIOS[name]
    arguments = {} if scenario.thinks_s is None else {"seconds": scenario.thinks_s}
    with system.crowd(rate=rate, tool=scenario.tool, **arguments) as crowd:
        pause(0.5)
        scenario.happen(system, scenario.seconds if seconds is None else seconds)
        pause(1.5)
    return crowd.figures()
