"""Reads what is on record, in the order of time, and filters it. Verifies nothing."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from app.audit.chain import BadLine, take_apart
from app.audit.files import Part, lines_of, parts_in

Record = dict[str, Any]


class Wanted(NamedTuple):
    """What is looked for. None: whatever.

    Attributes:
        since, until: Instants as records have them.
        principal: A subject, an issuer and a subject with a space between, a tenant, or the id of a
            credential.
        arguments: The digest of arguments.
    """

    since: str | None = None
    until: str | None = None
    principal: str | None = None
    tool: str | None = None
    outcome: str | None = None
    arguments: str | None = None

    def matches(self, record: Record) -> bool:
        """Whether a record is such a one."""
        time = str(record.get("time", ""))
        return (
            (self.since is None or time >= self.since)
            and (self.until is None or time < self.until)
            and (self.tool is None or record.get("tool") == self.tool)
            and (self.outcome is None or record.get("outcome") == self.outcome)
            and (self.arguments is None or record.get("arguments") == self.arguments)
            and (self.principal is None or self.principal in _names(record))
        )


def _names(record: Record) -> tuple[object, ...]:
    issuer, subject = record.get("issuer"), record.get("subject")
    both = f"{issuer} {subject}"
    return subject, both, record.get("tenant"), record.get("credential")


def located(path: Path) -> tuple[Path, list[Part]]:
    """The folder, and the files that a path names: those of a folder, or one.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no file of a record.
    """
    if path.is_dir():
        return path, parts_in(path)
    part = Part.of(path.name)
    if not path.is_file() or part is None:
        raise ValueError(f"{path} is neither a folder nor a file of an audit record")
    return path.parent, [part]


def records(path: Path, on_bad: Callable[[str, int], None] | None = None) -> Iterator[Record]:
    """All records of calls and intents, in the order of time.

    Those of one writer stay in their own order, also where the clock was set back.

    Args:
        on_bad: Told of lines that are no records, by file and number.

    Raises:
        OSError, ValueError: As of ``located``.
    """
    directory, parts = located(path)
    by_writer: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_writer[part.writer].append(part)
    streams = [_of_writer(directory, own, on_bad) for own in by_writer.values()]
    for _, record in heapq.merge(*streams, key=lambda pair: pair[0]):
        yield record


def _of_writer(
    directory: Path, parts: list[Part], on_bad: Callable[[str, int], None] | None
) -> Iterator[tuple[str, Record]]:
    latest = ""
    for part in sorted(parts):
        for number, raw in enumerate(lines_of(directory / part.name), 1):
            if not raw.endswith(b"\n"):
                continue  # of a process that was killed, or is writing
            try:
                record = take_apart(raw[:-1]).record
            except BadLine:
                if on_bad is not None:
                    on_bad(part.name, number)
                continue
            if record.get("kind") in ("call", "intent"):
                latest = max(latest, str(record.get("time", "")))
                yield latest, record


def instant_of(text: str, now: datetime) -> str:
    """What somebody writes for an instant, as records have it.

    Args:
        text: ISO 8601, as a date or with a time (UTC unless it says otherwise), or a time before
            now: ``90s``, ``30m``, ``12h``, ``7d``.

    Raises:
        ValueError: It is none of these.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    if text[:-1].isdecimal() and text[-1:] in units:
        seconds = int(text[:-1]) * units[text[-1]]
        try:
            found = datetime.fromtimestamp(now.timestamp() - seconds, UTC)
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text} is too long ago") from None
    else:
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
