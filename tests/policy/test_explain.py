"""Why: which rules were looked at, which decided, and what was met."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.policy import Explanation, Line, Own, Policy, RuleLine, explain
from app.principal import ANONYMOUS, Grants
from app.settings.auth import AuthSettings
from app.settings.policies import PolicySettings
from tests.support.cases import rows

MONDAY_NOON = datetime(2026, 6, 1, 10, tzinfo=UTC).timestamp()
RULES = [
    PolicySettings(name="hr", tools=("hr.*",)),
    PolicySettings.model_validate(
        {
            "name": "payments",
            "tools": ("finance.*",),
            "requires": {
                "scopes": ("finance:read",),
                "roles": ("accountant", "controller"),
                "clearance": "medium",
                "tenants": ("acme",),
            },
            "any": ({"roles": ("eu",)}, {"scopes": ("world",)}),
            "conditions": {
                "time": "09:00-17:00",
                "days": ("mon-fri",),
                "timezone": "Europe/Berlin",
                "networks": ("10.0.0.0/8",),
            },
            "arguments": {"amount": {"maximum": 1000}},
            "required_approvals": ("cfo",),
        }
    ),
    PolicySettings(tools=("*.pay",)),
]
AUTH = AuthSettings(scope_hierarchy={"finance": ("finance:read",)})
CALLER = Grants(
    frozenset({"finance"}),
    frozenset({"controller", "eu"}),
    "high",
    "acme",
    frozenset({"cfo"}),
    True,
)


def why(grants: Grants = CALLER, tool: str = "finance.pay", **more: Any) -> Explanation:
    asked: dict[str, Any] = {"own": Own(), "now": MONDAY_NOON, **more}
    return explain(Policy(AUTH, RULES), tool, {}, grants=grants, **asked)


def test_every_rule_is_told_and_the_first_that_names_the_tool_decides() -> None:
    assert why().rules == (
        RuleLine("rule 1 (hr)", names_tool=False, decides=False),
        RuleLine("rule 2 (payments)", names_tool=True, decides=True),
        RuleLine("rule 3", names_tool=True, decides=False),
        RuleLine("default (deny)", names_tool=True, decides=False),
    )
    assert why().decided_by == "rule 2 (payments)"


def test_every_demand_is_told_beside_what_the_caller_has() -> None:
    own = Own(scopes=frozenset({"pay"}))
    rule = "rule 2 (payments)"
    assert why(own=own).lines == (
        Line("the tool itself: scopes", "pay", "finance", met=False),
        Line(f"{rule}: scopes", "finance:read", "finance", met=True),
        Line(f"{rule}: roles", "accountant or controller", "controller eu", met=True),
        Line(f"{rule}: clearance", "medium or higher", "high", met=True),
        Line(f"{rule}: tenant", "acme", "acme", met=True),
        Line(f"{rule}: approvals", "cfo", "cfo", met=True),
        Line(f"{rule}: alternative 1: roles", "eu", "controller eu", met=True),
        Line(f"{rule}: alternative 2: scopes", "world", "finance", met=False),
        Line(f"{rule}: any", "one alternative", "1", met=True),
        Line(
            f"{rule}: time",
            "mon-fri 09:00-17:00 Europe/Berlin",
            "Mon 2026-06-01 12:00:00 CEST",
            met=True,
        ),
        Line(f"{rule}: networks", "10.0.0.0/8", "not said", met=None),
        Line(f"{rule}: arguments", "rules for amount", "not said", met=None),
    )


REFUSED = "listed, but this call is refused: rule 2 (payments): "


@rows(
    "asked, succeeds, verdict",
    (
        "callable",
        {"address": "10.0.0.1", "arguments": {"amount": 1}},
        True,
        "listed and callable",
    ),
    (
        "as far as it was said",
        {"address": "10.0.0.1"},
        True,
        "listed and callable, subject to rule 2 (payments): arguments",
    ),
    ("from elsewhere", {"address": "11.0.0.1"}, False, REFUSED + "networks"),
    ("too much", {"arguments": {"amount": 5000}}, False, REFUSED + "arguments"),
    (
        "scopes lack",
        {"grants": CALLER._replace(scopes=frozenset())},
        False,
        "listed, but a call is refused with a challenge; it needs the scopes finance:read",
    ),
    (
        "the night",
        {"now": MONDAY_NOON + 12 * 3600},
        False,
        "hidden: not listed, and a call is answered as that of an unknown tool",
    ),
    (
        "no rule",
        {"tool": "weather"},
        False,
        "hidden: not listed, and a call is answered as that of an unknown tool",
    ),
)
def test_the_verdict(asked: dict[str, Any], succeeds: bool, verdict: str) -> None:
    told = why(**asked)
    assert (told.succeeds, told.verdict) == (succeeds, verdict)


def test_the_sentences_about_arguments_are_told() -> None:
    assert why(arguments={"amount": 5000}).lines[-1] == Line(
        "rule 2 (payments): arguments",
        "rules for amount",
        "amount: the value is greater than the maximum of 1000, says rule 2 (payments)",
        met=False,
    )


def test_without_a_rule_the_default_is_what_lacks() -> None:
    told = why(tool="weather")
    assert told.decided_by == "default (deny)"
    assert told.lines == (Line("default (deny)", "a rule that names the tool", "none", met=False),)


def test_nobody_has_nothing() -> None:
    lines = {
        line.what.removeprefix("rule 2 (payments): "): line for line in why(ANONYMOUS.grants).lines
    }
    for what in ("scopes", "roles", "clearance", "tenant", "approvals"):
        assert (lines[what].has, lines[what].met) == ("none", False)


def test_an_unknown_clearance_of_the_author_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="clearance"):
        why(own=Own(clearance="top"))
