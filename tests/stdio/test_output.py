"""Standard output carries messages alone, whatever tools do; and standard input is nobody's."""

from collections.abc import Iterator

import pytest

from tests.stdio.conftest import TOOLS
from tests.support.stdio import StdioServer
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[StdioServer]:
    """A server whose tools print, so that its standard error is no log alone."""
    with StdioServer(TOOLS, {"tools": {"reload": False}}, is_noisy=True) as process:
        yield process


@pytest.mark.parametrize("tool", ["prints", "writes", "puts", "spawns", "forks", "prints_apart"])
@pytest.mark.parametrize("text", ["hello", '{"jsonrpc":"2.0","id":1,"result":{}}', "x" * 100_000])
def test_what_a_tool_prints_goes_to_standard_error(
    server: StdioServer, tool: str, text: str
) -> None:
    before, printed = len(server.messages), _count(server, text)

    result = server.call(tool, {"text": text})

    assert result["isError"] is False, result
    assert len(server.messages) == before + 1
    eventually(lambda: _count(server, text) > printed, "what was printed is in standard error")


def test_every_text_can_be_printed(server: StdioServer) -> None:
    assert server.call("prints_odd")["isError"] is False
    eventually(lambda: r"\udcff" in server.log_text(), "what was printed is in standard error")


def test_what_modules_print_while_they_load_goes_to_standard_error(server: StdioServer) -> None:
    assert "loaded" in server.log_text().splitlines()


def test_a_tool_that_reads_standard_input_finds_it_empty(server: StdioServer) -> None:
    result = server.call("reads")

    assert result["structuredContent"] == {"python": "", "descriptor": "", "child": ""}


def _count(server: StdioServer, text: str) -> int:
    # In the log of a process its output is a field, cut and escaped.
    return server.log_text().replace('\\"', '"').count(text[:1000])
