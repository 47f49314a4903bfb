"""Servers with pipes to them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CONFIG, FIXTURE_TOOLS
from tests.support.stdio import StdioFactory, StdioServer

TOOLS = Path(__file__).with_name("tools")
# Earlier revisions over stdio: tests/sessions/.
MODERN_ALONE: dict[str, Any] = {**CONFIG, "legacy": {"enabled": False}}


@pytest.fixture(scope="module")
def server() -> Iterator[StdioServer]:
    """A server with the fixture tools that the tests of one module share."""
    with StdioServer(FIXTURE_TOOLS, MODERN_ALONE) as process:
        yield process


@pytest.fixture
def start() -> Iterator[StdioFactory]:
    """Servers with a configuration or tools of their own."""
    with ExitStack() as stack:

        def started(
            tools: Path = FIXTURE_TOOLS,
            config: Mapping[str, Any] | str | None = MODERN_ALONE,
            **how: Any,
        ) -> StdioServer:
            return stack.enter_context(StdioServer(tools, config, **how))

        yield started
