"""The table of clients in `docs/supported.md`, and one client of each era out of it.

`make interop` drives all of them and writes the table.
"""

import re
import sys
from collections.abc import Sequence

import pytest

from tests.docs.markdown import DOCS, table_rows
from tests.interop.families import table
from tests.interop.families.families import FAMILIES, RUNS, TRANSPORTS, Era, Reasons, Run, Transport
from tests.interop.families.running import Outcome, run
from tests.interop.families.scenarios import SCENARIOS

PAGE = DOCS / "supported.md"
PYTHON_V2 = FAMILIES[0]


def outcomes(**others: Outcome) -> dict[str, Outcome]:
    """All is well, but for what is given."""
    well = Outcome(ok=True, detail="")
    connected = {"connect": Outcome(ok=True, detail="2026-07-28")}
    return {**dict.fromkeys(SCENARIOS, well), **connected, **others}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", PYTHON_V2.eras)
def test_the_official_client_can_do_everything_in_each_era(era: Era, transport: Transport) -> None:
    # In the environment of the tests: nothing is installed for it.
    driver = (sys.executable, "-m", "tests.interop.families.python_v2.driver")
    found = run(Run(PYTHON_V2, era, transport), driver)
    assert {name: found[name] for name in found if found[name].ok is not True} == {}


def test_the_page_has_a_row_for_every_run_with_the_version_that_is_locked() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition(table.BEGIN)
    rows = table_rows(rest.partition(table.END)[0])
    expected = [
        (f"{run.family.title}: `{run.family.package}`", run.family.version, run.speech)
        for run in RUNS
    ]
    # Left to itself, a client asks for the newest that it knows of its era.
    eras = {"2026-07-28": "modern", "2025-11-25": "legacy"}
    shown = [
        (title, version, eras.get(revision, revision)) for title, version, revision, *_ in rows
    ]
    assert shown == expected, "run `make interop`"


def test_no_lock_file_names_a_registry() -> None:
    folder = PAGE.parents[1] / "tests" / "interop" / "families"
    locks = [*folder.glob("*/requirements.txt"), *folder.glob("*/package-lock.json")]
    assert len(locks) == len(FAMILIES)
    for lock in locks:
        assert not re.search(r"index-url|\"resolved\"", lock.read_text("utf-8")), lock


FAILS = Outcome(ok=False, detail="AssertionError: no")
CANNOT = Outcome(ok=None, detail="It has no such thing.")
REASON: Reasons = {("python_v2", "modern", "http", "call"): "It sends nonsense."}


@pytest.mark.parametrize(
    ("outcome", "known", "expected"),
    [
        (Outcome(ok=True, detail=""), {}, []),
        (CANNOT, {}, []),
        (FAILS, {}, ["call: AssertionError: no"]),
        (FAILS, REASON, []),
        (Outcome(ok=True, detail=""), REASON, ["call: does not fail, but"]),
    ],
    ids=["works", "no means", "fails", "fails for a reason", "a reason for nothing"],
)
def test_a_failure_needs_a_reason_and_a_reason_a_failure(
    outcome: Outcome, known: Reasons, expected: Sequence[str]
) -> None:
    found = list(table.problems({RUNS[0]: outcomes(call=outcome)}, known))
    assert len(found) == len(expected)
    assert all(text in problem for text, problem in zip(expected, found, strict=True))


def test_a_note_says_why_once() -> None:
    other = RUNS[0]._replace(era="legacy")
    found = {RUNS[0]: outcomes(call=FAILS, progress=CANNOT), other: outcomes(progress=CANNOT)}
    text = table.rendered(found, REASON)
    assert text.count("✗ <sup>1</sup>") == 1
    assert text.count("\N{EN DASH} <sup>2</sup>") == 2
    assert text.endswith("1. It sends nonsense.\n2. It has no such thing.")


def test_what_stands_around_the_table_is_left_alone() -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    again = table.written(table.written(page, "new"), "newer")
    assert again == f"before\n{table.BEGIN}\n\nnewer\n\n{table.END}\nafter\n"
    with pytest.raises(ValueError, match="needs the lines"):
        table.written("no markers", "new")
