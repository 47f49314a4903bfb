"""Under steady load through the load balancer, things happen; every call is counted."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crowd import Figures
from tests.chaos.scenarios import run
from tests.chaos.soak import MIB, soak, system_for_soak
from tests.chaos.system import System

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        sys.platform != "linux", reason="the load balancer is there for Linux alone"
    ),
]

RATE = 40.0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("system")) as started:
        yield started


def assert_nothing_ran_twice(figures: Figures) -> None:
    assert figures.duplicated == 0, figures
    assert figures.duplicated_plain == 0, figures
    assert figures.lost == 0, figures


def test_a_rolling_restart_fails_no_call(system: System) -> None:
    figures = run(system, "rolling", rate=RATE)
    assert_nothing_ran_twice(figures)
    assert figures.failures == figures.unknown == 0, figures
    assert figures.sent > 3 * RATE


def test_a_replica_that_is_killed_takes_only_what_it_was_doing_with_it(system: System) -> None:
    figures = run(system, "kill", rate=RATE)
    assert_nothing_ran_twice(figures)
    # Of RATE calls a second, each takes 0.3 s; a third was with that replica.
    under_way = RATE * 0.3 / 3
    assert sum(figures.failed.values()) <= 2 * under_way, figures
    assert set(figures.failed) <= {"502", "503", "RemoteProtocolError", "ReadError"}, figures
    assert figures.failed_keyed == {}, figures
    assert figures.unknown <= 2 * under_way, figures


def test_a_store_that_restarts_costs_calls_that_must_be_counted_meanwhile(system: System) -> None:
    figures = run(system, "store restarts", rate=RATE)
    assert_nothing_ran_twice(figures)
    assert set(figures.failed) <= {"503"}, figures
    assert figures.failed_keyed == {}, figures
    assert sum(figures.failed.values()) <= RATE / 2 * 3, "refused long after it was back"


def test_a_store_that_freezes_holds_nobody_up(system: System) -> None:
    figures = run(system, "store freezes", rate=RATE, seconds=3.0)
    assert_nothing_ran_twice(figures)
    assert set(figures.failed) <= {"503"}, figures
    assert figures.failed_keyed == {}, figures
    assert sum(figures.failed.values()) <= RATE / 2 * 5, "refused long after it was back"


def test_a_replica_that_is_cut_off_from_the_store_gets_no_calls(system: System) -> None:
    figures = run(system, "cable", rate=RATE, seconds=5.0)
    assert_nothing_ran_twice(figures)
    assert set(figures.failed) <= {"503"}, figures
    # A third of the calls, until the load balancer has heard of it.
    assert sum(figures.failed.values()) <= RATE / 2 / 3 * 4, figures
    assert figures.failed_keyed == {}, figures


def test_a_slow_replica_fails_no_call(system: System) -> None:
    figures = run(system, "replica is slow", rate=RATE, seconds=2.0)
    assert_nothing_ran_twice(figures)
    assert figures.failures == figures.unknown == 0, figures


def test_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    with system_for_soak(tmp_path) as system:
        soaked = soak(system, seconds=20.0, rate=RATE)
        assert soaked.figures.failures == 0, soaked.figures
        assert_nothing_ran_twice(soaked.figures)
        assert soaked.opened > 100
        assert soaked.heard > soaked.edits
        for number, (before, after) in enumerate(zip(soaked.before, soaked.after, strict=True)):
            assert soaked.growth_bytes(number) < 4 * MIB
            assert after.threads <= before.threads + 1
        # Beside one outcome for each call with a key there is little, however many came and went.
        assert soaked.keys < soaked.figures.sent / 2 + RATE + 50
    for replica in system.replicas:
        (line,) = replica.logs("stopped")
        assert line["tasks_left_behind"] == 0
