"""The official conformance suite finds nothing wrong but what later work brings."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import suite
from tests.conformance.suite import Report
from tests.support.server import ServerProcess

# The first test waits for the suite, and for its installation where it is missing.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

# How many scenarios a revision has.
SCENARIOS: Final = {"2026-07-28": 40, "2025-11-25": 33}

# A skipped check reads as green: each one needs a reason.
SKIPPED: Final = {
    "2026-07-28": {
        # Prompts are not served yet.
        ("server-stateless", "sep-2575-server-sends-prompts-list-changed-on-subscription"),
        # No resource is listed, so none is read.
        ("caching", "sep-2549-resources-read-caching-hints"),
    },
    "2025-11-25": set[tuple[str, str]](),
}
# Streams are closed early, so that the client of one scenario comes back for the rest.
CONFIG: Final = {"legacy": {"poll_after_s": 0.3}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # A copy, because test_trigger_tool_change writes into the folder that is served.
    tools = tmp_path_factory.mktemp("conformance") / "tools"
    shutil.copytree(suite.HERE / "tools", tools, ignore=shutil.ignore_patterns("__pycache__"))
    with ServerProcess(tools, CONFIG) as process:
        yield process


@pytest.fixture(scope="module", params=sorted(SCENARIOS))
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def report(
    server: ServerProcess, revision: str, tmp_path_factory: pytest.TempPathFactory
) -> Report:
    output: Path = tmp_path_factory.mktemp("checks")
    report = suite.run(server.url, output, revision=revision)
    print(report.text)  # noqa: T201 - `make conformance` shows it, and so does a failing test
    return report


def test_only_what_later_work_brings_fails(report: Report) -> None:
    assert report.exit_code == 0, report.summary()


def test_every_scenario_of_the_revision_is_run(report: Report, revision: str) -> None:
    assert len(report.scenarios) == SCENARIOS[revision], sorted(report.scenarios)


def test_nothing_is_skipped_without_a_reason(report: Report, revision: str) -> None:
    skipped = {(check.scenario, check.id) for check in report.having("SKIPPED")}
    assert skipped == SKIPPED[revision], report.summary()
