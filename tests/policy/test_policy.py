"""Which rule decides, what makes no policy, and what `check` should say about one."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from app.policy import Own, Policy
from app.settings.auth import AuthSettings
from app.settings.policies import PolicySettings
from tests.support.cases import rows


def policy(*rules: dict[str, Any], **auth: Any) -> Policy:
    return Policy(AuthSettings(**auth), [PolicySettings(**rule) for rule in rules])


def decided_by(made: Policy, tool: str, annotations: dict[str, Any]) -> str:
    return made.demand(tool, annotations, Own()).label


@rows(
    "tool, expected",
    ("by name", "finance.pay", "rule 1 (payments)"),
    ("the first that names it", "finance.read", "rule 2"),
    ("one of several patterns", "hr.staff", "rule 2"),
    ("the last", "weather", "rule 3 (rest)"),
)
def test_the_first_rule_that_names_a_tool_decides(tool: str, expected: str) -> None:
    made = policy(
        {"name": "payments", "tools": ("finance.pay",)},
        {"tools": ("finance.*", "hr.*")},
        {"name": "rest", "tools": ("*",)},
    )
    assert decided_by(made, tool, {}) == expected


@rows(
    "wanted, annotations, fits",
    ("a hint", {"read_only": True}, {"read_only": True}, True),
    ("as it is sent", {"read_only": True}, {"readOnlyHint": True}, True),
    ("on either side", {"readOnlyHint": True}, {"read_only": True}, True),
    ("its opposite", {"read_only": True}, {"read_only": False}, False),
    ("silence is not read-only", {"read_only": False}, {}, True),
    ("nor harmless", {"destructive": True}, {}, True),
    ("unless it is read-only", {"destructive": True}, {"read_only": True}, False),
    ("or says so", {"destructive": True}, {"destructive": False}, False),
    ("silence is not idempotent", {"idempotent": True}, {}, False),
    ("and open to the world", {"open_world": True}, {}, True),
    ("the author's own", {"risk_level": "high"}, {"risk_level": "high"}, True),
    ("as text that fits", {"risk_level": "hi*"}, {"risk_level": "high"}, True),
    ("in its own case", {"risk_level": "High"}, {"risk_level": "high"}, False),
    ("that is not there", {"risk_level": "*"}, {}, False),
    ("a number", {"risk": 3}, {"risk": 3}, True),
    ("is no text", {"risk": "3"}, {"risk": 3}, False),
    ("and no truth", {"risk": 1}, {"risk": True}, False),
    ("nor the other way round", {"risk": True}, {"risk": 1}, False),
    (
        "both names of a hint",
        {"read_only": True, "readOnlyHint": False},
        {"read_only": True},
        False,
    ),
    ("all of them", {"read_only": True, "risk": 3}, {"read_only": True, "risk": 4}, False),
)
def test_annotations(wanted: dict[str, Any], annotations: dict[str, Any], fits: bool) -> None:
    made = policy({"annotations": wanted})
    assert (decided_by(made, "tool", annotations) == "rule 1") is fits


def test_name_and_annotations_must_both_fit() -> None:
    made = policy({"tools": ("finance.*",), "annotations": {"risk": "high"}}, {"tools": ("*",)})
    assert decided_by(made, "finance.pay", {"risk": "high"}) == "rule 1"
    assert decided_by(made, "finance.pay", {"risk": "low"}) == "rule 2"
    assert decided_by(made, "hr.staff", {"risk": "high"}) == "rule 2"


def test_a_rule_with_an_unknown_clearance_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policies: rule 2 \(x\): requires the clearance 'top'"):
        policy(
            {"tools": ("*",)},
            {"name": "x", "tools": ("*",), "any": ({}, {"clearance": "top"})},
        )


@pytest.mark.parametrize("default", ["allow", "deny"])
def test_an_author_who_asks_for_an_unknown_clearance_is_told(default: str) -> None:
    own = Own(clearance="top")
    with pytest.raises(ValueError, match=r"'top', which is none of .* \(low, medium, high\)"):
        policy(default=default).demand("tool", {}, own)


def test_the_next_edge_is_that_of_the_window_that_changes_first() -> None:
    made = policy(
        {"tools": ("a",), "conditions": {"time": "09:00-17:00"}},
        {"tools": ("b",), "conditions": {"time": "08:00-10:00", "timezone": "Europe/Berlin"}},
        {"tools": ("c",), "conditions": {"time": "00:00-24:00"}},
    )
    found, now = [], datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    for _ in range(5):
        now = made.next_edge(now)
        found.append(datetime.fromtimestamp(now, UTC).hour)
    assert found == [6, 8, 9, 17, 6]


def test_without_windows_there_is_no_edge() -> None:
    assert policy({"tools": ("a",)}).next_edge(0) == math.inf


def test_scopes_are_expanded_through_the_hierarchy() -> None:
    made = policy(scope_hierarchy={"admin": ("write",), "write": ("read",)})
    assert made.expand(frozenset({"admin", "x"})) == {"admin", "write", "read", "x"}
    assert made.expand(frozenset()) == frozenset()


def test_rules_that_decide_about_no_tool_are_found() -> None:
    made = policy(
        {"tools": ("finance.*",)},
        {"name": "typo", "tools": ("fnance.*",)},
        {"name": "late", "tools": ("finance.pay",)},
        {"annotations": {"risk": "high"}},
    )
    served: list[tuple[str, dict[str, Any]]] = [("finance.pay", {}), ("hr.fire", {"risk": "high"})]
    assert made.unused(served) == [
        "policies: rule 2 (typo) names no tool",
        "policies: rule 3 (late) decides about no tool; earlier rules name all those that it names",
    ]
