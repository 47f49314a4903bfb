"""What ``@tool`` can demand of callers and arguments, and limit; and how mistakes are told."""

from typing import Any

import pytest

from app.registry.options import ToolDefinitionError
from app.registry.tool import compile_tool
from app.settings import RateLimit, Settings
from app.toolkit import tool
from tests.support.cases import rows


async def _takes_any(**values: Any) -> None: ...


async def _asks_a_person(amount: int) -> None: ...


def _of_another(colour: str) -> None: ...


def _by_position(amount: int, /) -> None: ...


def _rate(**changes: Any) -> dict[str, Any]:
    return {"bucket": "user", "capacity": 5, "period_s": 60, **changes}


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
    ("a rate that is a number", {"rate_limit": 5}, r"rate_limit must be as \{.*capacity"),
    ("a rate without a period", {"rate_limit": _rate(period_s=None)}, "period_s: .*number"),
    ("a rate of nothing", {"rate_limit": _rate(capacity=0)}, "capacity: .*greater than or equal"),
    ("an unknown bucket", {"rate_limit": _rate(bucket="session")}, "bucket: .*'user-tool'"),
    ("a misspelt key of a rate", {"rate_limit": _rate(burst=1)}, "burst: Extra inputs"),
    ("no call at a time", {"max_concurrent": 0}, "max_concurrent is 0"),
    ("a switch for a number", {"max_concurrent": True}, "max_concurrent is True"),
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


def test_the_limits_of_a_tool_are_its_own_unless_the_settings_replace_them() -> None:
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    spec = tool(rate_limit={"bucket": "tool", "capacity": 5, "period_s": 60}, max_concurrent=2)(pay)
    override = {"rate_limit": _rate(capacity=9), "max_concurrent": 3}
    changed = Settings.model_validate({"overrides": {"pay": override}})

    found = [
        (each.rate_limit, each.max_concurrent)
        for each in (
            compile_tool(spec, name="pay", source=None, settings=Settings()),
            compile_tool(spec, name="pay", source=None, settings=changed),
            compile_tool(tool(pay), name="pay", source=None, settings=Settings()),
        )
    ]

    assert found == [
        (RateLimit(bucket="tool", capacity=5, period_s=60), 2),
        (RateLimit(bucket="user", capacity=9, period_s=60), 3),
        (None, None),
    ]
