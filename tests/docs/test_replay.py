"""`docs/replay.md`: its session, run as printed, and its tables, held against the code."""

import re
from pathlib import Path

import pytest

from app.recording import recorder
from app.recording.observer import KEPT
from app.recording.recording import Recording
from app.recording.replay import Verdict
from tests.docs.markdown import DOCS, section, table_rows
from tests.docs.session import can_run, run_as_printed
from tests.support.stores import free_port

PAGE = DOCS / "replay.md"


@pytest.mark.skipif(not can_run, reason="needs bash and curl")
@pytest.mark.timeout(150)
def test_a_recorded_failure_is_replayed_as_printed(clone: Path) -> None:
    port = str(free_port())

    run_as_printed(PAGE, clone, lambda script: script.replace("8000", port))


def test_the_outcomes_that_are_recorded_are_those_of_the_code() -> None:
    rows = {row[0].strip('`"'): row[1] for row in table_rows(section(PAGE, "## What is recorded"))}

    named = {word: set(re.findall(r"`(\w+)`", said)) for word, said in rows.items()}
    assert named["errors"] == KEPT["errors"]
    assert named["errors"] | named["all"] == KEPT["all"]
    assert set(rows) == set(KEPT)


def test_every_part_of_a_recording_is_explained() -> None:
    text = section(PAGE, "## What a recording holds")

    for name in set(Recording.model_fields) - {"kind", "needs_page", "result_digest"}:
        assert f"`{name}`" in text, name


def test_every_verdict_is_explained() -> None:
    rows = table_rows(section(PAGE, "## Replaying"))

    assert [row[0].strip("`") for row in rows] == [verdict.value for verdict in Verdict]


def test_the_bounds_of_the_writer_are_as_written() -> None:
    text = section(PAGE, "## Where recordings are")

    assert f"{recorder.MAX_WAITING} calls or {recorder.MAX_WAITING_BYTES >> 20} MiB" in text
    assert recorder.REST == 4
    assert "rests four times as long as it works" in text
