"""The directory of recordings: bounded whatever comes, fair between tools, shared, and its own."""

import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.recording.folder import Folder, Sealed, read_file
from app.recording.recording import Unusable
from tests.support.server import ROOT
from tests.support.waiting import Deadline

NOON = 1_785_240_000.0
DAY = 86_400.0


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def _folder(path: Path, clock: Clock | None = None, **bounds: Any) -> Folder:
    limits = {"max_recordings": 10, "max_bytes": 1000, "max_age_s": DAY, **bounds}
    return Folder(path, clock=clock or Clock(), **limits)


def _sealed(number: int, tool: str = "a", at: float = NOON, size: int = 10) -> Sealed:
    return Sealed(f"{number:016x}", tool, at, b"x" * size)


def _ids(folder: Folder) -> list[int]:
    return [int(entry.id, 16) for entry in folder.entries()]


def test_what_is_kept_is_found_oldest_first(tmp_path: Path) -> None:
    folder = _folder(tmp_path)

    kept, problem = folder.keep([_sealed(2, at=NOON), _sealed(1, at=NOON - 5)])

    assert [int(id, 16) for id in kept] == [2, 1]
    assert problem is None
    assert _ids(folder) == [1, 2]
    assert folder.read(folder.entries()[0]) == b"x" * 10


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "new" / "recordings")
    folder.prepare()
    folder.keep([_sealed(1)])

    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(each.stat().st_mode) for each in folder.path.iterdir()}
    assert modes == {0o600}
    assert [each.name for each in folder.path.iterdir() if each.suffix == ".draft"] == []


def test_the_oldest_goes_when_there_are_too_many(tmp_path: Path) -> None:
    folder = _folder(tmp_path, max_recordings=3)
    folder.keep(_sealed(number, at=NOON + number / 10) for number in range(5))

    assert _ids(folder) == [2, 3, 4]


def test_the_oldest_goes_when_they_are_too_large(tmp_path: Path) -> None:
    folder = _folder(tmp_path, max_bytes=100)
    folder.keep(_sealed(number, at=NOON + number / 10, size=40) for number in range(4))

    assert _ids(folder) == [2, 3]


def test_what_is_too_old_goes_also_when_nothing_comes(tmp_path: Path) -> None:
    clock = Clock()
    folder = _folder(tmp_path, clock)
    folder.keep([_sealed(1, at=NOON - 0.9 * DAY), _sealed(2)])
    clock.now += 0.2 * DAY

    folder.keep(())

    assert _ids(folder) == [2]


def test_a_tool_that_fails_all_the_time_pushes_out_its_own(tmp_path: Path) -> None:
    folder = _folder(tmp_path, max_recordings=6)
    folder.keep([_sealed(1, "quiet", NOON - 50), _sealed(2, "quiet", NOON - 40)])

    folder.keep(_sealed(100 + n, "loud", NOON + n) for n in range(50))

    assert _ids(folder) == [1, 2, 146, 147, 148, 149]


def test_a_tool_with_large_calls_pushes_out_its_own(tmp_path: Path) -> None:
    folder = _folder(tmp_path, max_bytes=300)
    folder.keep([_sealed(1, "small", NOON - 50, 20), _sealed(2, "small", NOON - 40, 20)])

    folder.keep(_sealed(100 + n, "large", NOON + n, 90) for n in range(20))

    assert _ids(folder) == [1, 2, 118, 119]


def test_what_was_written_before_the_clock_went_back_is_the_oldest(tmp_path: Path) -> None:
    clock = Clock()
    folder = _folder(tmp_path, clock, max_recordings=2)
    clock.now = NOON + 1000 * DAY
    folder.keep([_sealed(1, at=clock.now), _sealed(2, at=clock.now + 1)])
    clock.now = NOON

    folder.keep([_sealed(3, at=NOON), _sealed(4, at=NOON + 1)])

    assert _ids(folder) == [3, 4]


class Bounded(RuleBasedStateMachine):
    """Whatever comes, in whatever order, from two processes with one directory."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.path = Path(os.environ["TEST_FOLDER"]) / os.urandom(8).hex()
        self.path.mkdir()
        self.folders = [
            _folder(self.path, self.clock, max_recordings=5, max_bytes=200) for _ in range(2)
        ]
        self.count = 0

    @rule(
        which=st.integers(0, 1),
        calls=st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(1, 150), st.floats(-2 * DAY, 10)),
            max_size=4,
        ),
    )
    def keep(self, which: int, calls: Sequence[tuple[str, int, float]]) -> None:
        recordings = []
        for tool, size, ago in calls:
            self.count += 1
            recordings.append(_sealed(self.count, tool, self.clock.now + ago, size))
        kept, problem = self.folders[which].keep(recordings)
        assert (len(kept), problem) == (len(recordings), None)
        if recordings:  # the newest to come is never the one that goes
            assert self.count in _ids(self.folders[which])

    @rule(seconds=st.floats(-DAY, 2 * DAY))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def bounds_hold(self) -> None:
        entries = self.folders[0].entries()
        assert len(entries) <= 5
        assert sum(entry.size for entry in entries) <= 200
        assert {each.name for each in self.path.iterdir()} - {".lock"} == {
            entry.name for entry in entries
        }


def test_the_bounds_hold_whatever_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FOLDER", str(tmp_path))
    machine = Bounded.TestCase
    machine.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
    machine("runTest").runTest()


WRITER = """
import os, sys, time
from pathlib import Path
from app.recording.folder import Folder, Sealed
folder = Folder(Path(sys.argv[1]), max_recordings=40, max_bytes=4000, max_age_s=60, clock=time.time)
most = 0
for number in range(60):
    batch = [Sealed(os.urandom(8).hex(), sys.argv[2], time.time(), b"x" * 50) for _ in range(3)]
    assert len(folder.keep(batch)[0]) == 3
    most = max(most, len(folder.entries()))
print(most)
"""


def test_processes_that_share_it_keep_its_bounds_together(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two", "three")
    ]
    deadline = Deadline(50)
    most = [int(writer.communicate(timeout=deadline.remaining_s)[0]) for writer in writers]

    entries = _folder(tmp_path).entries()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert max(most) <= 40
    assert len(entries) == 40
    assert all(count >= 13 for count in Counter(entry.tool for entry in entries).values())


def test_links_and_other_files_are_left_alone(tmp_path: Path) -> None:
    path, outside = tmp_path / "recordings", tmp_path / "precious"
    outside.write_text("precious")
    path.mkdir()
    folder = _folder(path, max_recordings=1)
    folder.keep([_sealed(1)])
    (name,) = [entry.name for entry in folder.entries()]
    link = path / name.replace("-0", "-a", 1)
    link.symlink_to(outside)
    (path / "notes.txt").write_text("mine")
    (path / name.replace("-0", "-b", 1)).mkdir()

    folder.keep([_sealed(2, at=NOON + 1)])

    assert _ids(folder) == [2]
    assert outside.read_text() == "precious"
    assert link.is_symlink()
    assert (path / "notes.txt").read_text() == "mine"
    with pytest.raises(Unusable, match="cannot be read"):
        read_file(link, follow=False)


def test_a_link_in_place_of_a_draft_or_the_lock_is_not_followed(tmp_path: Path) -> None:
    path, outside = tmp_path / "recordings", tmp_path / "precious"
    path.mkdir()
    outside.write_text("precious")
    (path / ".0000000000000001.draft").symlink_to(outside)
    folder = _folder(path)

    assert folder.keep([_sealed(1)])[1] is None
    (path / ".lock").unlink()
    (path / ".lock").symlink_to(outside)
    kept, problem = folder.keep([_sealed(2)])

    assert kept == []
    assert isinstance(problem, OSError)
    assert outside.read_text() == "precious"


def test_what_a_writer_left_behind_when_it_died_is_tidied_up(tmp_path: Path) -> None:
    (tmp_path / ".00000000000000aa.draft").write_bytes(b"half")

    _folder(tmp_path).keep(())

    assert [each.name for each in tmp_path.iterdir()] == [".lock"]


def test_a_device_or_a_pipe_is_no_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(Unusable):
            read_file(path)


def test_a_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "gone")

    kept, problem = folder.keep([_sealed(1)])

    assert kept == []
    assert isinstance(problem, FileNotFoundError)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_each_tool_keeps_its_share(
    tmp_path_factory: pytest.TempPathFactory, tools: list[str]
) -> None:
    folder = _folder(tmp_path_factory.mktemp("shares"), max_recordings=8)

    folder.keep(_sealed(number, tool, NOON + number) for number, tool in enumerate(tools))

    sent = Counter(tools)
    kept = Counter(tools[number] for number in _ids(folder))
    assert sum(kept.values()) == min(8, len(tools))
    for tool, count in sent.items():
        assert kept[tool] >= min(count, 8 // len(sent))
