"""Servers with the tools of these tests, on pages so small that every client has to turn them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.support import PAGE_SIZE, TOOLS
from tests.support.server import ServerProcess

ENVIRONMENT = {"MCP__TOOLS__PAGE_SIZE": str(PAGE_SIZE)}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server that the tests of one module share."""
    config = {"server": {"title": "Interop", "instructions": "Divide before you conquer."}}
    with ServerProcess(TOOLS, config, env=ENVIRONMENT) as process:
        yield process


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a copy of the tools, for a test that changes them or stops it."""
    folder = tmp_path / "tools"
    shutil.copytree(TOOLS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with ServerProcess(folder, env=ENVIRONMENT) as process:
        yield process
