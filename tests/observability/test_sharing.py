"""Several processes tell the metrics of all, whoever is asked, and whoever has died."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.observability import metrics
from app.observability.sharing import Folder, Snapshot, added, decoded, take

CALLS, TIME = metrics.TOOL_CALLS.name, metrics.RESPONSE_TIME.name
FLIGHT, MOST, LEAST = "mcp_calls_in_flight", "mcp_tools", "process_start_time_seconds"
LABELS = ("echo", "ok")


def snapshot(calls: int, *, bounds: tuple[float, ...] = (0.1, 1.0)) -> Snapshot:
    """Of a process with so many calls, of which as many run, and as many tools."""
    return Snapshot(
        {
            CALLS: {LABELS: calls},
            TIME: {("echo",): [calls, 0, 0, 0.05 * calls]},
            FLIGHT: {(): calls},
            MOST: {(): calls},
            LEAST: {(): calls},
        },
        {TIME: bounds},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """That of the process under test."""
    with closing(Folder(tmp_path, "own")) as own:
        yield own


def test_a_snapshot_comes_through_as_it_was() -> None:
    own = take()

    assert decoded(own.encoded()) == own


def test_counts_are_added_and_what_is_the_case_is_joined_as_fits() -> None:
    both = added(snapshot(2), snapshot(3)).values

    assert both[CALLS] == {LABELS: 5}
    assert both[TIME] == {("echo",): [5, 0, 0, 0.25]}
    assert (both[FLIGHT], both[MOST], both[LEAST]) == ({(): 5}, {(): 3}, {(): 2})


def test_of_a_process_that_is_gone_the_counts_stay() -> None:
    both = added(snapshot(2), snapshot(3), is_gone=True).values

    assert both[CALLS] == {LABELS: 5}
    assert (both[FLIGHT], both[MOST], both[LEAST]) == ({(): 2}, {(): 2}, {(): 2})


def test_buckets_of_other_settings_are_left_out() -> None:
    both = added(snapshot(2), snapshot(3, bounds=(0.5,)))

    assert both.values[TIME] == {("echo",): [2, 0, 0, 0.1]}
    assert both.bounds == {TIME: (0.1, 1.0)}


def test_a_metric_that_this_version_does_not_have_is_left_out() -> None:
    strange = Snapshot({"mcp_other_total": {(): 1}}, {})

    assert added(snapshot(1), strange) == snapshot(1)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6))
def test_the_order_of_the_processes_does_not_matter(counts: list[int]) -> None:
    def together(order: list[int]) -> Snapshot:
        sum_ = snapshot(order[0])
        for each in order[1:]:
            sum_ = added(sum_, snapshot(each))
        return sum_

    one, other = together(counts), together(counts[::-1])
    assert one.values[CALLS] == other.values[CALLS]
    assert one.values[MOST] == other.values[MOST]


def test_those_that_live_and_those_that_do_not_are_counted(folder: Folder, tmp_path: Path) -> None:
    with closing(Folder(tmp_path, "living")) as living:
        living.write(snapshot(10).encoded())
        gone = Folder(tmp_path, "gone")
        gone.write(snapshot(100).encoded())
        gone.close()

        for _ in range(3):  # those that are gone are put away, once
            together = folder.with_others(snapshot(1)).values
            assert together[CALLS] == {LABELS: 111}
            assert together[FLIGHT] == {(): 11}
        assert sorted(file.name for file in tmp_path.glob("*.json")) == [
            "living.json",
            "own.json",
            "retired.json",
        ]
        # Whoever is asked next knows as much.
        assert living.with_others(snapshot(10)).values[CALLS] == {LABELS: 111}


def test_what_a_process_says_at_its_end_counts_also_if_somebody_is_just_reading(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = Folder(tmp_path, "leaving")
    leaving.write(snapshot(10).encoded())
    lives = Folder._lives

    def ends_first(reading: Folder, name: str) -> bool:
        leaving.write(snapshot(20).encoded())
        leaving.close()
        return lives(reading, name)

    monkeypatch.setattr(Folder, "_lives", ends_first)
    assert folder.with_others(snapshot(1)).values[CALLS] == {LABELS: 21}


def test_one_that_has_begun_and_said_nothing_changes_nothing(
    folder: Folder, tmp_path: Path
) -> None:
    with closing(Folder(tmp_path, "silent")):
        assert folder.with_others(snapshot(1)).values[CALLS] == {LABELS: 1}


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b"[1,2]", b'[{"a":1},{}]', b"\xff", b"null"])
def test_what_cannot_be_read_is_left_out(folder: Folder, tmp_path: Path, left: bytes) -> None:
    (tmp_path / "strange.json").write_bytes(left)
    (tmp_path / "retired.json").write_bytes(left)

    assert folder.with_others(snapshot(1)).values[CALLS] == {LABELS: 1}
    assert not (tmp_path / "strange.json").exists()


def _live(path: Path, says: Connection) -> None:
    folder = Folder(path, f"p{os.getpid()}")
    folder.write(snapshot(7).encoded())
    says.send(None)
    says.recv()  # until it is killed


def test_a_process_that_is_killed_is_gone_and_what_it_counted_stays(
    folder: Folder, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_live, args=(tmp_path, theirs))
    process.start()
    assert ours.poll(30)
    assert folder.with_others(snapshot(1)).values[FLIGHT] == {(): 8}

    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    together = folder.with_others(snapshot(1)).values

    assert (together[CALLS], together[FLIGHT]) == ({LABELS: 8}, {(): 1})
    ours.close()
    theirs.close()
