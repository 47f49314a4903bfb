"""What ``@tool`` itself can demand of callers and of arguments, and how mistakes are told."""

from typing import Any

import pytest

from app.registry.tool import ToolDefinitionError, compile_tool
from app.settings import Settings
from app.toolkit import tool
from tests.support.cases import rows


async def _takes_any(**values: Any) -> None: ...


async def _asks_a_person(amount: int) -> None: ...


def _of_another(colour: str) -> None: ...


def _by_position(amount: int, /) -> None: ...


@rows(
    "options, said",
    ("a text for a list of scopes", {"scopes": "a:read"}, "scopes must be a list"),
    ("a scope of two words", {"scopes": ["a read"]}, "'a read' is no scope"),
    ("a scope with a quote", {"scopes": ['a"b']}, "is no scope"),
    ("an empty role", {"roles": [""]}, "roles must be a list"),
    ("a number among approvals", {"approvals": [1]}, "approvals must be a list"),
    ("a validator of other arguments", {"validate": _of_another}, "'colour', which the tool"),
    ("a validator by position", {"validate": _by_position}, "'amount' by name"),
    ("a validator that is none", {"validate": "check"}, "validate must be a function"),
    ("an async one in a thread", {"validate": _asks_a_person}, "make both async"),
)
def test_a_mistake_is_told_when_the_tool_is_loaded(options: dict[str, Any], said: str) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    with pytest.raises(ToolDefinitionError, match=said):
        compile_tool(tool(**options)(pay), name="pay", source=None, settings=Settings())


def test_what_a_tool_demands_is_not_told_to_clients() -> None:
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    spec = tool(scopes=["pay:all"], roles=["boss"], approvals=["board"], validate=_takes_any)(pay)
    compiled = compile_tool(spec, name="pay", source=None, settings=Settings())

    assert compiled.own.scopes == {"pay:all"}
    for word in (b"pay:all", b"boss", b"board"):
        assert word not in compiled.definition
