"""Files: who may read them, when a next one begins, when old ones go, and what a disk does."""

import resource
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.audit.files import Part, writer_name
from tests.audit.ledger import Clock, Ledger, found, verified
from tests.support.cases import rows

HOUR = 3600.0


def test_only_the_owner_reads_them(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new").write("a")
    assert stat.S_IMODE(ledger.file().stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.directory.stat().st_mode) == 0o700


@rows("kind", ("a link", "link"), ("a file", "file"))
def test_what_lies_in_the_way_is_not_written_to(tmp_path: Path, kind: str) -> None:
    target, way = tmp_path / "target", tmp_path / "audit" / "w.000001.jsonl"
    way.parent.mkdir()
    target.write_text("mine")
    if kind == "link":
        way.symlink_to(target)
    else:
        way.write_text("mine")
    with pytest.raises(FileExistsError):
        Ledger(tmp_path / "audit", writer="w")
    assert target.read_text() == "mine"
    assert way.read_text() == "mine"


@rows(
    "replica, name",
    ("a host", "web-1.example.com", "web-1.example.com"),
    ("a path", "../../etc/passwd", "etc-passwd"),
    ("nothing", "", "server"),
    ("long", "h" * 300, "h" * 64),
    ("control characters", "a\nb\x1b", "a-b"),
)
def test_names_say_who_wrote_and_when(replica: str, name: str) -> None:
    writer = writer_name(replica, 12, 1_800_000_000, "beef")
    assert writer == f"{name}_12_20270115T080000Z_beef"
    assert Part.of(Part(writer, 7).name) == Part(writer, 7)


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, rotate_bytes=65_536)
    for number in range(600):
        ledger.write(f"tool{number}")
    assert ledger.file(2).exists()
    assert ledger.file(1).stat().st_size < 70_000
    assert found(tmp_path) == []


def test_the_oldest_files_go_and_are_not_missed(tmp_path: Path) -> None:
    first = Ledger(tmp_path, keep_files=3).write("x")
    first.sink.close()
    ledger = Ledger(tmp_path, keep_files=3)
    for _ in range(5):
        ledger.write("a").rotate()
    ledger.write("b")
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [ledger.file(part).name for part in (4, 5, 6)]
    assert found(tmp_path) == []
    # That some had to go does not excuse that others are gone.
    ledger.file(5).unlink()
    assert found(tmp_path) != []


def test_files_to_which_nothing_was_written_for_long_go(tmp_path: Path) -> None:
    clock = Clock(now=9_000_000_000)
    ledger = Ledger(tmp_path, clock=clock, keep_s=HOUR).write("a")
    live = Ledger(tmp_path).write("c")
    ledger.rotate().write("b")
    # All were written at the present of the file system, which is long ago by this clock; but
    # one is in use by a process that lives.
    assert not ledger.file(1).exists()
    assert live.file().exists()
    assert found(tmp_path) == []


def test_a_file_that_somebody_takes_away_is_followed_by_another(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a")
    moved = ledger.file().rename(tmp_path / "away")
    moved.unlink()
    ledger.write("b")
    assert b'"tool":"b"' in ledger.file(2).read_bytes()
    assert any("is missing" in each for each in found(tmp_path))


@pytest.mark.parametrize("puts_a_link", [False, True])
def test_a_file_that_somebody_renames_is_followed_by_another(
    tmp_path: Path, puts_a_link: bool
) -> None:
    ledger = Ledger(tmp_path).write("a")
    moved = ledger.file().rename(tmp_path / "rotated.log")
    if puts_a_link:
        ledger.file().symlink_to(moved)
    ledger.write("b")
    assert b'"tool":"b"' not in moved.read_bytes()
    assert b'"tool":"b"' in ledger.file(2).read_bytes()
    assert any("is missing" in each for each in found(tmp_path))


def test_a_folder_that_comes_back_is_written_to_again(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    ledger = Ledger(folder).write("a")
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        ledger.write("b")
    assert not folder.exists(), "a volume may have been there"
    folder.mkdir()
    ledger.write("b").rotate().write("c")
    assert b'"tool":"b"' in ledger.file(2).read_bytes()
    assert b'"tool":"c"' in ledger.file(3).read_bytes()
    assert [each for each in found(folder) if "is missing" not in each] == []


def test_a_file_that_somebody_writes_to_is_followed_by_another(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a")
    with ledger.file().open("ab") as file:
        file.write(b"I was here\n")
    ledger.write("b")
    assert b'"tool":"b"' in ledger.file(2).read_bytes()
    assert [each.line for each in verified(tmp_path).findings] == [3]


@pytest.fixture
def full_at() -> Iterator["Disk"]:
    """A limit on how large files may become, as a full disk is one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield Disk(before)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Disk:
    """One that can be full."""

    def __init__(self, before: tuple[int, int]) -> None:
        self._before = before

    def fill(self, size: int) -> None:
        """No file may grow beyond so many bytes."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._before[1]))

    def empty(self) -> None:
        """There is room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


def test_a_full_disk_leaves_no_half_of_a_record(tmp_path: Path, full_at: Disk) -> None:
    ledger = Ledger(tmp_path).write("a")
    size, head = ledger.file().stat().st_size, ledger.chain.head
    full_at.fill(size + 100)
    for _ in range(2):
        with pytest.raises(OSError, match="File too large"):
            ledger.write("b", "c")
    full_at.empty()
    assert (ledger.file().stat().st_size, ledger.chain.head) == (size, head)
    ledger.write("b", "c")
    assert found(tmp_path) == []


def test_a_next_file_that_cannot_be_begun_is_begun_later(tmp_path: Path, full_at: Disk) -> None:
    ledger = Ledger(tmp_path).write("a").rotate()
    for size in (ledger.file().stat().st_size, 400):  # neither the end of one nor the next begins
        full_at.fill(size)
        with pytest.raises(OSError, match="File too large"):
            ledger.write("b")
    full_at.empty()
    ledger.write("b")
    ledger.sink.close()
    report = verified(tmp_path)
    assert (report.findings, report.files) == ([], 2)


@pytest.mark.parametrize("fsync", ["never", "batch"])
def test_what_is_on_the_disk_is_the_same(tmp_path: Path, fsync: str) -> None:
    Ledger(tmp_path, fsync=fsync).write("a", "b").sink.close()
    assert found(tmp_path) == []
