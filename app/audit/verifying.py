"""Holds files of a record against what their chains promise.

What a chain shows: that no line was changed, removed, repeated or moved, and that nothing is
missing between the first line that is there and the last. A beginning may be missing where the
record itself says that old files were deleted. An end that was cut off shows where the next file,
or a writer that began later, says how far it went.
"""

import hmac
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from app.audit.chain import GENESIS, KEYED, MAX_LINE_BYTES, BadLine, Hasher, Line, take_apart
from app.audit.files import Part, lines_of

MAX_FINDINGS: Final = 200

Ending = Literal["closed", "open", "torn"]


class Finding(NamedTuple):
    """Something that is wrong.

    Attributes:
        line: From 1; 0: the file as a whole.
    """

    file: str
    line: int
    text: str


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes:
        files: How many were read.
        records: Likewise, those of files among them.
        lost: Records that the writers themselves say they could not write.
        heads: By writer, the number and the hash of its last record: kept elsewhere, they show
            later whether the end was cut off or the whole made anew.
        endings: How the last file of each writer ends.
        torn: By file, the bytes of a last line that was not finished.
        keyed: Writers whose chains need the key.
        plain: Writers whose chains everybody could have made.
    """

    files: int = 0
    records: int = 0
    lost: int = 0
    heads: dict[str, tuple[int, str]] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    keyed: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


class _Claim(NamedTuple):
    """What one file says of another."""

    file: str
    line: int
    seq: int
    hash: str
    time: str
    torn: bool


class _Writer:
    """Goes through the files of one writer.

    Attributes:
        seq, hash: Of the record before; the number is None where a file before is not there.
        why: What the record before says of why it closes the file, if it does.
    """

    def __init__(self) -> None:
        self.seq: int | None = None
        self.hash = GENESIS.decode()
        self.is_closed = False
        self.why: Any = None
        self.hasher: Hasher | None = None


class Verifier:
    """Verifies files together.

    Args:
        keys: Of chains, by their ids.
        demands_key: Whether a chain without a key is a finding.
    """

    def __init__(self, keys: Mapping[str, bytes], *, demands_key: bool = False) -> None:
        self.report = Report()
        self._keys = keys
        self._demands_key = demands_key
        self._is_whole = True
        self._claims: dict[str, list[_Claim]] = defaultdict(list)
        self._met: set[_Claim] = set()
        self._ends: dict[str, int] = {}
        self._horizon = ""

    def verify(self, directory: Path, parts: Sequence[Part], *, is_whole: bool = True) -> Report:
        """Look at files of a folder.

        Args:
            parts: The files.
            is_whole: Whether there are no others: then what is named and not there is missing.

        Raises:
            OSError: One cannot be read.
        """
        self._is_whole = is_whole
        self._collect(directory, parts)
        by_writer: dict[str, list[Part]] = defaultdict(list)
        for part in sorted(parts):
            by_writer[part.writer].append(part)
        for name, own in by_writer.items():
            self._writer(directory, name, own)
        self._settle({part.name for part in parts}, by_writer)
        return self.report

    # What files say of each other is read first: then each is read once more, line by line.

    def _collect(self, directory: Path, parts: Iterable[Part]) -> None:
        for part in parts:
            for number, raw in enumerate(lines_of(directory / part.name), 1):
                # Cheaper than reading each as JSON; what it lets through is looked at again.
                if b'"kind":"open"' not in raw and b'"kind":"pruned"' not in raw:
                    continue
                try:
                    record = take_apart(raw.rstrip(b"\n")).record
                except BadLine:
                    continue
                if record.get("kind") == "pruned":
                    deleted = record.get("deleted")
                    if isinstance(deleted, dict):
                        self._horizon = max(self._horizon, str(deleted.get("time", "")))
                elif record.get("kind") == "open":
                    self._open(part, number, record)

    def _open(self, part: Part, number: int, record: Mapping[str, Any]) -> None:
        follows, saw = record.get("follows"), record.get("saw")
        for mark in [*(saw if isinstance(saw, list) else ()), follows]:
            if isinstance(mark, dict) and isinstance(mark.get("file"), str):
                seq = mark.get("seq")
                claim = _Claim(
                    part.name,
                    number,
                    seq if type(seq) is int else 0,
                    str(mark.get("hash")),
                    str(mark.get("time")),
                    mark.get("torn") is True and mark is follows,
                )
                self._claims[mark["file"]].append(claim)

    # Line by line

    def _writer(self, directory: Path, name: str, parts: Sequence[Part]) -> None:
        writer = _Writer()
        for place, part in enumerate(parts):
            before = parts[place - 1].part if place else 0
            if place and part.part != before + 1:
                self._find(part.name, 0, f"the files {before + 1} to {part.part - 1} are missing")
                writer.seq = None
            is_last = place == len(parts) - 1
            self._file(directory, part, writer, is_last=is_last)
        report = self.report
        report.heads[name] = (writer.seq or 0, writer.hash)
        if parts[-1].name in report.torn:
            report.endings[name] = "torn"
        else:
            report.endings[name] = "closed" if writer.is_closed else "open"
        is_begun = (
            report.torn.get(parts[-1].name) == 0
        )  # killed before the first record of the next
        if writer.is_closed and writer.why == "rotated" and self._is_whole and not is_begun:
            text = "it says that another file follows, and there is none"
            self._find(parts[-1].name, 0, text)

    def _file(self, directory: Path, part: Part, writer: _Writer, *, is_last: bool) -> None:
        report = self.report
        report.files += 1
        torn = number = 0
        claims: dict[int, list[_Claim]] = defaultdict(list)
        for claim in self._claims.get(part.name, ()):
            claims[claim.seq].append(claim)
        for number, raw in enumerate(lines_of(directory / part.name), 1):
            if not raw.endswith(b"\n"):
                if len(raw) < MAX_LINE_BYTES:
                    torn = len(raw)
                    break
                self._find(part.name, number, "it is longer than any record")
                continue
            try:
                line = take_apart(raw[:-1])
            except BadLine as bad:
                self._find(part.name, number, f"it is no record: {bad}")
                continue
            self._line(part, number, line, writer)
            for claim in claims.get(line.record["seq"], ()):
                if claim.hash == line.hash.decode():
                    self._met.add(claim)
        if torn or (number == 0 and is_last):
            self._torn(part, number, torn, is_last=is_last)
        self._ends[part.name] = writer.seq or 0

    def _torn(self, part: Part, number: int, size: int, *, is_last: bool) -> None:
        if is_last or any(claim.torn for claim in self._claims.get(part.name, ())):
            self.report.torn[part.name] = size
        else:
            self._find(part.name, number, "it ends in the middle of a line, and a file follows")

    def _line(self, part: Part, number: int, line: Line, writer: _Writer) -> None:
        report, record = self.report, line.record
        report.records += 1
        kind = record.get("kind")
        if number == 1:
            self._begin(part, record, writer)
        elif kind == "open":
            self._find(part.name, number, "a file begins in the middle of another")
        if writer.hasher is not None and not hmac.compare_digest(
            writer.hasher.hex(line.body), line.hash
        ):
            self._find(part.name, number, "it was changed: its hash is not that of its text")
        seq, before = record["seq"], writer.seq
        if before is not None:
            if seq > before + 1:
                text = f"before it {seq - before - 1} are missing: {before + 1} to {seq - 1}"
                self._find(part.name, number, text)
            elif seq <= before:
                text = f"its number is {seq} and that of the one before {before}: repeated or moved"
                self._find(part.name, number, text)
            elif record["prev"] != writer.hash:
                text = "it follows another record than the one that stands before it"
                self._find(part.name, number, text)
        if writer.is_closed and number > 1:
            self._find(part.name, number, "it stands behind the closing record")
        writer.seq, writer.hash = seq, line.hash.decode()
        writer.is_closed, writer.why = kind == "close", record.get("why")
        if kind == "gap" and type(record.get("lost")) is int:
            report.lost += record["lost"]

    def _begin(self, part: Part, record: Mapping[str, Any], writer: _Writer) -> None:
        if record.get("kind") != "open":
            self._find(part.name, 1, "the file does not begin with its opening record")
            return
        if record.get("writer") != part.writer or record.get("part") != part.part:
            self._find(part.name, 1, "the file was renamed: its opening record has another name")
        if writer.seq is None and part.part == 1:
            writer.seq = 0
        if record.get("chain") != KEYED:
            self.report.plain.add(part.writer)
            writer.hasher = Hasher(None)
            if self._demands_key:
                text = "its chain has no key, so anybody could have written it"
                self._find(part.name, 1, text)
            return
        self.report.keyed.add(part.writer)
        key = self._keys.get(str(record.get("key")))
        writer.hasher = None if key is None else Hasher(key)
        if key is None:
            text = "its hashes cannot be checked: none of [secrets] keys is the one it needs"
            self._find(part.name, 1, text)

    # What files said of each other

    def _settle(self, names: set[str], by_writer: Mapping[str, Sequence[Part]]) -> None:
        for file, claims in self._claims.items():
            for claim in claims:
                if claim not in self._met:
                    self._unmet(file, claim, names, by_writer)

    def _unmet(
        self, file: str, claim: _Claim, names: set[str], by_writer: Mapping[str, Sequence[Part]]
    ) -> None:
        if file not in names:
            if not self._is_whole:
                return
            part = Part.of(file)
            earlier = part is not None and any(
                each.part < part.part for each in by_writer.get(part.writer, ())
            )
            if not (claim.time <= self._horizon and not earlier):
                text = f"the file {file}, which it names, is missing"
                self._find(claim.file, claim.line, text)
        elif self._ends.get(file, 0) < claim.seq:
            end = self._ends[file]
            text = f"it was cut: it ends with {end}, and {claim.file} has seen {claim.seq}"
            self._find(file, 0, text)
        else:
            text = f"its record {claim.seq} is not the one that {claim.file} has seen"
            self._find(file, 0, text)

    def _find(self, file: str, line: int, text: str) -> None:
        finding = Finding(file, line, text)
        if len(self.report.findings) < MAX_FINDINGS and finding not in self.report.findings:
            self.report.findings.append(finding)
