"""The README's shell session, run as printed against a server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks
from tests.docs.session import MARK, can_run, run_as_printed, steps
from tests.support.server import ServerProcess

PAGE = ROOT / "README.md"


@pytest.fixture
def running(clone: Path) -> Iterator[ServerProcess]:
    config = (clone / "config.toml").read_text("utf-8")
    with ServerProcess(clone / "tools", config) as server:
        yield server


@pytest.mark.skipif(not can_run, reason="needs bash and curl")
def test_the_session_works_as_printed(clone: Path, running: ServerProcess) -> None:
    def at_hand(script: str) -> str:
        script = script.replace("http://127.0.0.1:8000/mcp", running.url)
        assert running.url in script or "curl" not in script
        return script

    run_as_printed(PAGE, clone, at_hand)


def test_the_session_shows_what_a_reader_looks_for() -> None:
    session = "\n".join(block.text for block, _ in steps(PAGE))

    for part in (
        "server/discover",
        "tools/list",
        "tools/call",
        "Mcp-Param-Region",
        "export_report",
        "subscriptions/listen",
        "cat > tools/",
    ):
        assert part in session, part


def test_the_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        target
        for page in (PAGE, *sorted((ROOT / "docs").glob("*.md")))
        for block in blocks(page, "bash")
        if block.before != MARK
        for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)
    }

    assert named
    assert named <= targets
