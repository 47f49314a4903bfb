"""The table of `docs/supported.md`: made of what was found, written between two markers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.interop.families.families import (
    KNOWN,
    TRANSPORTS,
    Reasons,
    Run,
    Transport,
)
from tests.interop.families.running import Outcome
from tests.interop.families.scenarios import SCENARIOS

BEGIN: Final = "<!-- clients: written by `make interop`, not by hand -->"
END: Final = "<!-- clients: end -->"
SIGNS: Final = {True: "✓", False: "✗", None: "\N{EN DASH}"}
TITLES: Final[Mapping[Transport, str]] = {"http": "Over HTTP", "stdio": "Over stdio"}

Found = Mapping[Run, Mapping[str, Outcome]]


def problems(found: Found, known: Reasons = KNOWN) -> Iterator[str]:
    """What fails without a reason, and the reasons for what does not fail (any more)."""
    for run, outcomes in found.items():
        for scenario, outcome in outcomes.items():
            key = (run.family.id, run.speech, run.transport, scenario)
            where = f"{run.family.title}, {run.speech}, {run.transport}: {scenario}"
            if outcome.ok is False and key not in known:
                yield f"{where}: {outcome.detail}"
            elif outcome.ok is not False and key in known:
                yield f"{where}: does not fail, but families.py says why it would"


def rendered(found: Found, known: Reasons = KNOWN) -> str:
    """A table for each transport, and the notes to both."""
    notes: list[str] = []
    parts = []
    for transport in TRANSPORTS:
        rows = [run for run in found if run.transport == transport]
        columns = [name for name in SCENARIOS if name != "connect"]
        head = ["Client", "Version", "Revision", *columns]
        lines = [f"### {TITLES[transport]}", "", _line(head), "|---" * len(head) + "|"]
        for run in rows:
            outcomes = found[run]
            cells = [
                _cell(
                    outcomes[name], known.get((run.family.id, run.speech, transport, name)), notes
                )
                for name in columns
            ]
            title = f"{run.family.title}: `{run.family.package}`"
            revision = outcomes["connect"].detail if outcomes["connect"].ok else SIGNS[False]
            lines.append(_line([title, run.family.version, revision, *cells]))
        parts.append("\n".join(lines))
    if notes:
        parts.append("\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1)))
    return "\n\n".join(parts)


def written(page: str, table: str) -> str:
    """A page with a table between its markers.

    Raises:
        ValueError: The page lacks the markers.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines\n{BEGIN}\n{END}")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def _cell(outcome: Outcome, reason: str | None, notes: list[str]) -> str:
    if outcome.ok:
        return SIGNS[True]
    note = outcome.detail if outcome.ok is None else reason or "Not explained yet."
    if note not in notes:
        notes.append(note)
    return f"{SIGNS[outcome.ok]} <sup>{notes.index(note) + 1}</sup>"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
