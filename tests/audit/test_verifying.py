"""What was done to a record is found; what happens to honest ones is not."""

import hashlib
import hmac
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audit.chain import Hasher
from app.audit.records import Recorder
from tests.audit.ledger import KEY, Ledger, edit, found, verified
from tests.support.cases import rows


@given(st.one_of(st.none(), st.binary(min_size=1, max_size=200)), st.binary(max_size=300))
def test_hashes_are_those_of_the_standard_library(key: bytes | None, data: bytes) -> None:
    plain = hashlib.sha256(data).hexdigest() if key is None else None
    expected = plain or hmac.new(key or b"", data, "sha256").hexdigest()
    assert Hasher(key).hex(data).decode() == expected


@pytest.mark.parametrize("key", [None, KEY])
def test_an_honest_record_has_no_problem(tmp_path: Path, key: bytes | None) -> None:
    first = Ledger(tmp_path, key=key).write("a", "b").rotate().write("c")
    first.sink.close()
    second = Ledger(tmp_path, key=key).write("d")
    second.sink.write([Recorder(KEY).gap(second.clock.now, 7)])
    report = verified(tmp_path)
    assert report.findings == []
    assert (report.files, report.records, report.lost) == (3, 10, 7)
    assert sorted(report.endings.values()) == ["closed", "open"]
    assert report.heads[first.writer] == (first.chain.head.seq, first.chain.head.hash.decode())


@st.composite
def _tampering(draw: st.DrawFn) -> tuple[Any, str]:
    """What somebody does to the lines of two files of one writer, of which the last is closed."""
    total = 9  # open a b c close | open d e close
    kind = draw(st.sampled_from(["remove", "swap", "repeat", "alter", "insert"]))
    at = draw(st.integers(0, total - 1))
    if kind == "remove":
        count = draw(st.integers(1, total - at))
        if at + count == total:  # an end that is cut off, which nobody can see
            at, count = 0, min(count, total - 1)
        return (lambda lines: lines[:at] + lines[at + count :]), kind
    if kind == "swap":
        other = draw(st.integers(0, total - 1).filter(lambda place: place != at))

        def swap(lines: list[bytes]) -> list[bytes]:
            lines[at], lines[other] = lines[other], lines[at]
            return lines

        return swap, kind
    if kind == "repeat":
        to = draw(st.integers(0, total))
        return (lambda lines: [*lines[:to], lines[at], *lines[to:]]), kind
    if kind == "insert":
        line = draw(st.binary(min_size=1, max_size=80).filter(lambda data: b"\n" not in data))
        return (lambda lines: [*lines[:at], line + b"\n", *lines[at:]]), kind
    where, bit = draw(st.integers(0, 10_000)), draw(st.integers(0, 7))

    def alter(lines: list[bytes]) -> list[bytes]:
        line = bytearray(lines[at])
        place = where % (len(line) - 1)
        line[place] ^= 1 << bit
        lines[at] = bytes(line)
        return lines

    return alter, kind


@pytest.fixture(scope="module")
def honest() -> tuple[list[bytes], int, str]:
    """The lines of two files of one writer, where the second begins, and the writer."""
    with tempfile.TemporaryDirectory() as name:
        ledger = Ledger(Path(name)).write("a").write("b", "c").rotate().write("d", "e")
        ledger.sink.close()
        one, two = (ledger.file(part).read_bytes().splitlines(True) for part in (1, 2))
        return one + two, len(one), ledger.writer


@given(tampering=_tampering())
def test_whatever_is_removed_moved_repeated_or_altered_is_found(
    honest: tuple[list[bytes], int, str], tampering: tuple[Any, str]
) -> None:
    lines, cut, writer = honest
    change, _ = tampering
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / f"{writer}.{part:06d}.jsonl" for part in (1, 2)]
        # The change goes over both files; the lines stay in the file in which they were, as far
        # as there are as many.
        changed = change(list(lines))
        files[0].write_bytes(b"".join(changed[:cut]))
        files[1].write_bytes(b"".join(changed[cut:]))
        assert verified(folder).findings != []


def other_kind(line: bytes) -> bytes:
    """A line that says something else, and has the hash that it had."""
    return line.replace(b'"kind":"call"', b'"kind":"tall"')


@rows(
    "change, sentence",
    ("a text is changed", lambda a: [*a[:2], other_kind(a[2]), *a[3:]], ":3: it was changed"),
    ("a line is removed", lambda a: [*a[:2], *a[3:]], ":3: before it 1 are missing: 3 to 3"),
    ("two lines are swapped", lambda a: [*a[:2], a[3], a[2], *a[4:]], "repeated or moved"),
    ("a line comes twice", lambda a: [*a[:3], a[2], *a[3:]], "repeated or moved"),
    ("rubbish is added", lambda a: [*a, b"rubbish\n"], ":6: it is no record"),
    ("a line without an end", lambda a: [*a, b'{"seq":7'], ":6: it ends in the middle"),
    ("the first is removed", lambda a: a[1:], ":1: the file does not begin with its opening"),
    ("the end is cut", lambda a: a[:3], "it was cut: it ends with 3, and"),
    ("much too long a line", lambda a: [*a[:2], b"x" * 200_000 + b"\n", *a[2:]], "longer than any"),
)  # fmt: skip
def test_a_sentence_says_what_was_done_and_where(
    tmp_path: Path, change: Any, sentence: str
) -> None:
    ledger = Ledger(tmp_path).write("a", "b", "c").rotate().write("d")
    assert found(tmp_path) == []
    edit(ledger.file(), change)
    sentences = found(tmp_path)
    assert any(sentence in each and ledger.file().name in each for each in sentences), sentences


def test_a_line_that_was_not_finished_is_no_tampering(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a", "b")
    ledger.file().write_bytes(ledger.file().read_bytes()[:-30])
    report = verified(tmp_path)
    assert report.findings == []
    assert report.endings == {ledger.writer: "torn"}
    assert report.torn[ledger.file().name] > 0
    assert report.heads[ledger.writer][0] == 2
    # Whoever begins later says how far it went.
    Ledger(tmp_path).write("c")
    assert found(tmp_path) == []
    edit(ledger.file(), lambda lines: lines[:1])
    assert any("it was cut: it ends with 1" in each for each in found(tmp_path))


def test_a_whole_file_that_is_removed_is_missed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a").rotate().write("b").rotate().write("c")
    content = ledger.file(2).read_bytes()
    ledger.file(2).unlink()
    sentences = found(tmp_path)
    assert any("the files 2 to 2 are missing" in each for each in sentences), sentences
    ledger.file(2).write_bytes(content)
    ledger.file(1).unlink()
    assert any("is missing" in each for each in found(tmp_path))
    ledger.sink.close()
    ledger.file(3).unlink()
    assert any("another file follows, and there is none" in each for each in found(tmp_path))


def test_all_files_of_a_writer_are_missed_by_who_came_later(tmp_path: Path) -> None:
    first = Ledger(tmp_path).write("a")
    Ledger(tmp_path).write("b")
    first.file().unlink()
    assert any("which it names, is missing" in each for each in found(tmp_path))


def test_a_file_under_another_name_is_found(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a")
    ledger.file().rename(tmp_path / "other_1_now.000001.jsonl")
    assert any("was renamed" in each for each in found(tmp_path))


def test_without_the_key_nobody_writes_a_chain_anew(tmp_path: Path) -> None:
    Ledger(tmp_path).write("a")
    assert any("cannot be checked" in each for each in found(tmp_path, b"x" * 32))
    for file in tmp_path.iterdir():
        file.unlink()
    forged = Ledger(tmp_path, key=b"y" * 32).write("b")
    assert any("cannot be checked" in each for each in found(tmp_path))
    # One who claims to have no key at all.
    edit(forged.file(), lambda _: [])
    forged.file().unlink()
    Ledger(tmp_path, key=None).write("b")
    findings = verified(tmp_path, demands_key=True).findings
    assert [each.text for each in findings] == [
        "its chain has no key, so anybody could have written it"
    ]


def test_older_keys_still_verify(tmp_path: Path) -> None:
    Ledger(tmp_path, key=b"o" * 32).write("a")
    Ledger(tmp_path, key=KEY).write("b")
    assert found(tmp_path, KEY, b"o" * 32) == []


def test_a_clock_that_jumps_back_is_no_disorder(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a")
    ledger.clock.now -= 86_400
    ledger.write("b").rotate().write("c")
    assert found(tmp_path) == []


def test_what_is_no_file_of_a_record_is_left_alone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path).write("a")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "x.000001.jsonl").symlink_to(ledger.file())
    os.mkfifo(tmp_path / "y.000001.jsonl")
    assert verified(tmp_path).files == 1
