"""The thread that writes: no call waits or fails for it, whatever the disk does."""

import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from app.protocol.sealed import KeyRing
from app.recording import recorder as module
from app.recording.folder import Folder
from app.recording.recorder import MAX_WAITING, MAX_WAITING_BYTES, Recorder
from app.recording.vault import Vault
from tests.recording.making import finished, gatherer
from tests.support.waiting import eventually

KEYS = KeyRing([b"k" * 32])


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    """What is written to the log, however other tests have set it up."""
    capture = LogCapture()
    monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture


def _folder(path: Path, **bounds: Any) -> Folder:
    limits = {"max_recordings": 100, "max_bytes": 1 << 20, "max_age_s": 3600.0, **bounds}
    return Folder(path, clock=lambda: finished().began, **limits)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Starts a recorder that writes to a directory of the test."""
    started: list[Recorder] = []

    def begin(path: Path = tmp_path, **bounds: Any) -> Recorder:
        recorder = Recorder(_folder(path, **bounds), Vault(KEYS), gatherer(32 * 1024))
        recorder.start()
        started.append(recorder)
        return recorder

    yield begin
    for recorder in started:
        recorder.stop(10)
    assert "recordings" not in [thread.name for thread in threading.enumerate()]


def _done(recorder: Recorder, count: int) -> bool:
    return recorder.kept + sum(recorder.dropped.values()) >= count


def test_a_call_is_kept_under_its_error_id(
    start: Callable[..., Recorder], tmp_path: Path, logs: LogCapture
) -> None:
    recorder = start()

    id = recorder.keep(finished(outcome="internal_error")._replace(error_id="ab" * 8))
    other = recorder.keep(finished())
    eventually(lambda: recorder.kept == 2, "two recordings")

    assert id == "ab" * 8
    assert other is not None
    assert {entry.id for entry in _folder(tmp_path).entries()} == {id, other}
    assert [(each["event"], each["recording"], each["tool"]) for each in logs.entries] == [
        ("call_recorded", id, "divide"),
        ("call_recorded", other, "divide"),
    ]


def test_what_waits_is_written_before_the_end(
    start: Callable[..., Recorder], tmp_path: Path
) -> None:
    recorder = start()
    for _ in range(50):
        recorder.keep(finished())

    recorder.stop(10)

    assert recorder.kept == 50
    assert len(_folder(tmp_path).entries()) == 50


def test_ten_thousand_failing_calls_cost_no_call_its_time(
    start: Callable[..., Recorder], tmp_path: Path, logs: LogCapture
) -> None:
    recorder, call = start(max_recordings=20), finished()
    longest = 0.0
    began = time.thread_time()
    for _ in range(10_000):
        before = time.thread_time()
        recorder.keep(call)
        longest = max(longest, time.thread_time() - before)
    each_s = (time.thread_time() - began) / 10_000
    recorder.stop(30)

    assert each_s < 0.000_05  # processor time: waiting for the processor is not the recorder's
    assert longest < 0.05
    assert recorder.kept + recorder.dropped["behind"] == 10_000
    assert recorder.kept >= MAX_WAITING
    assert len(_folder(tmp_path).entries()) == 20
    told = [each for each in logs.entries if each["event"] == "recordings_dropped"]
    assert len(told) <= 2
    assert {each["reason"] for each in told} <= {"behind"}


def test_large_calls_that_wait_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    recorder = Recorder(_folder(tmp_path), Vault(KEYS), gatherer())  # not started: nothing leaves
    call = finished(arguments={"text": "x" * 4_000_000})

    taken = [recorder.keep(call) is not None for _ in range(10)]

    assert taken.count(True) == MAX_WAITING_BYTES // call.weight
    assert recorder.dropped == {"behind": taken.count(False)}


def test_megabytes_of_arguments_are_left_out(
    start: Callable[..., Recorder], tmp_path: Path
) -> None:
    recorder = start()
    recorder.keep(finished(arguments={"text": "x" * 3_000_000}))
    eventually(lambda: recorder.kept == 1, "a recording")

    (entry,) = _folder(tmp_path).entries()
    assert entry.size < 32 * 1024


def test_a_full_disk_drops_recordings_and_is_said_once(
    start: Callable[..., Recorder], tmp_path: Path, logs: LogCapture
) -> None:
    recorder = start()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        for _ in range(5):
            recorder.keep(finished())
        eventually(lambda: _done(recorder, 5), "five that were tried")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    recorder.keep(finished())
    eventually(lambda: recorder.kept == 1, "one more")

    assert recorder.dropped == {"failed": 5}
    assert {each.name for each in tmp_path.iterdir() if each.suffix != ".rec"} == {".lock"}
    told = [each for each in logs.entries if each["event"] == "recordings_dropped"]
    assert [each["problem"] for each in told] == ["File too large"]
    assert told[0]["log_level"] == "warning"


def test_a_directory_that_goes_away_and_comes_back(
    start: Callable[..., Recorder], tmp_path: Path, logs: LogCapture
) -> None:
    path = tmp_path / "recordings"
    recorder = start(path)
    recorder.keep(finished())
    eventually(lambda: _done(recorder, 1), "one that was tried")
    path.mkdir()
    recorder.keep(finished())
    eventually(lambda: recorder.kept == 1, "one more")

    assert recorder.dropped == {"failed": 1}
    assert [each["event"] for each in logs.entries] == ["recordings_dropped", "call_recorded"]


def test_a_call_that_has_no_form_costs_no_other_its_recording(
    start: Callable[..., Recorder], logs: LogCapture
) -> None:
    recorder = start()
    recorder.keep(finished(arguments=b'{"a": hunter2}'))
    recorder.keep(finished())
    eventually(lambda: _done(recorder, 2), "both")

    assert recorder.kept == 1
    assert recorder.dropped == {"failed": 1}
    assert "hunter2" not in str(logs.entries)


def test_an_idle_recorder_lets_go_of_what_is_too_old(
    start: Callable[..., Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIDY_S", 0.01)
    name = "20200101T000000000000Z-00000000000000aa-00000000.rec"
    (tmp_path / name).write_bytes(b"old")

    start()

    eventually(lambda: not (tmp_path / name).exists(), "the end of an old recording")
