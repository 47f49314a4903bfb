"""``@tool(isolation=...)`` and the limits that come with it."""

from typing import Any

import pytest

from app import tool
from app.registry.options import ToolDefinitionError
from app.registry.tool import compile_tool
from app.settings import Settings
from tests.support.cases import rows


def _compiled(*, is_async: bool = False, **options: Any) -> Any:
    async def waits() -> None: ...
    def works() -> None: ...

    spec = tool(**options)(waits if is_async else works)
    return compile_tool(spec, name="x", source=None, settings=Settings())


@rows(
    "options, problem",
    ("another place", {"isolation": "container"}, 'it can only be "process"'),
    ("a truth", {"isolation": True}, "it can only be"),
    ("memory without a process", {"max_memory_bytes": 1}, "kept only with isolation"),
    ("time without a process", {"max_cpu_s": 1}, "kept only with isolation"),
    ("no memory", {"isolation": "process", "max_memory_bytes": 0}, "above 0"),
    ("less than no time", {"isolation": "process", "max_cpu_s": -1.5}, "above 0"),
    ("a time that is none", {"isolation": "process", "max_cpu_s": float("nan")}, "above 0"),
    ("a text", {"isolation": "process", "max_memory_bytes": "1 GB"}, "above 0"),
    (
        "asking the client",
        {"isolation": "process", "asks": ["elicitation"], "is_async": True},
        "it asks the client, which a tool with isolation",
    ),
    ("a truth as memory", {"isolation": "process", "max_memory_bytes": True}, "above 0"),
)
def test_options_that_cannot_be_kept_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolDefinitionError, match=problem):
        _compiled(**options)


@rows(
    "options, where",
    ("async", {"is_async": True}, "loop"),
    ("not async", {}, "thread"),
    ("async in a process", {"is_async": True, "isolation": "process"}, "process"),
    ("not async in a process", {"isolation": "process"}, "process"),
)
def test_a_tool_runs_where_its_declaration_says(options: dict[str, Any], where: str) -> None:
    assert _compiled(**options).runs_in == where


def test_limits_are_those_of_the_tool_or_of_the_settings() -> None:
    settings = Settings().execution
    assert _compiled(isolation="process").process == (
        settings.process_memory_bytes,
        settings.process_cpu_s,
    )
    own = _compiled(isolation="process", max_memory_bytes=5_000_000, max_cpu_s=0.5)
    assert own.process == (5_000_000, 0.5)
