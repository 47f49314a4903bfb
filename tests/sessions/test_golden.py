"""What each revision gets, to the byte."""

import pytest

from tests.sessions.transcript import CONFIG, FOLDER, TOOLS, record
from tests.support.legacy_schema import VERSIONS
from tests.support.server import ServerFactory, ServerProcess


@pytest.fixture(scope="module")
def golden(module_server_factory: ServerFactory) -> ServerProcess:
    """A server for all of them."""
    return module_server_factory(TOOLS, CONFIG)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_conversation_is_as_it_is_written_down(golden: ServerProcess, version: str) -> None:
    written = (FOLDER / f"{version}.txt").read_text("utf-8")
    assert record(golden, version) == written, "run `python -m tests.sessions.transcript`"
