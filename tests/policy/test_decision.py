"""The rules of decision, one by one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.policy import Decision, Demand, Own, Policy
from app.principal import ANONYMOUS, Grants
from app.settings.auth import AuthSettings
from app.settings.policies import PolicySettings
from tests.support.cases import rows

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()
NIGHT = datetime(2026, 6, 1, 23, tzinfo=UTC).timestamp()

CALLABLE = Decision(visible=True, callable=True)
HIDDEN = Decision(visible=False, callable=False)


def challenge(*scopes: str) -> Decision:
    return Decision(visible=True, callable=False, scopes=scopes)


def grants(
    *scopes: str,
    roles: tuple[str, ...] = (),
    approvals: tuple[str, ...] = (),
    clearance: str | None = None,
    tenant: str | None = None,
) -> Grants:
    return Grants(
        frozenset(scopes), frozenset(roles), clearance, tenant, frozenset(approvals), True
    )


def own(
    *scopes: str,
    roles: tuple[str, ...] = (),
    approvals: tuple[str, ...] = (),
    clearance: str | None = None,
) -> Own:
    return Own(frozenset(scopes), frozenset(roles), clearance, frozenset(approvals))


def policy(*rules: dict[str, Any], **auth: Any) -> Policy:
    return Policy(
        AuthSettings(**auth), [PolicySettings(**{"tools": ("*",), **rule}) for rule in rules]
    )


def demand(rule: dict[str, Any], by_author: Own | None = None) -> Demand:
    return policy(rule).demand("tool", {}, by_author or Own())


SCOPES = {"requires": {"scopes": ("b", "a")}}
ROLES = {"requires": {"roles": ("accountant", "controller")}}
HIGH = {"requires": {"clearance": "medium"}}
TENANTS = {"requires": {"tenants": ("acme", "umbrella")}}
APPROVALS = {"required_approvals": ("cfo", "ceo")}
BY_DAY = {"conditions": {"time": "09:00-17:00"}}
BOTH = {"requires": {"scopes": ("a",), "roles": ("accountant",)}}


@rows(
    "rule, caller, expected",
    ("a rule that asks for nothing", {}, grants(), CALLABLE),
    ("even of nobody in particular", {}, ANONYMOUS.grants, CALLABLE),
    ("scopes: all of them", SCOPES, grants("a", "b", "c"), CALLABLE),
    ("scopes: told all at once", SCOPES, grants("a"), challenge("a", "b")),
    ("scopes: of nobody too", SCOPES, ANONYMOUS.grants, challenge("a", "b")),
    ("roles: one of them", ROLES, grants(roles=("controller", "x")), CALLABLE),
    ("roles: not another", ROLES, grants(roles=("x",)), HIDDEN),
    ("clearance: this one", HIGH, grants(clearance="medium"), CALLABLE),
    ("clearance: or a higher one", HIGH, grants(clearance="high"), CALLABLE),
    ("clearance: not a lower one", HIGH, grants(clearance="low"), HIDDEN),
    ("clearance: an unknown one is below all", HIGH, grants(clearance="cosmic"), HIDDEN),
    ("clearance: none is below all", {"requires": {"clearance": "low"}}, grants(), HIDDEN),
    ("tenants: one of them", TENANTS, grants(tenant="umbrella"), CALLABLE),
    ("tenants: not another", TENANTS, grants(tenant="initech"), HIDDEN),
    ("tenants: not none", TENANTS, grants(), HIDDEN),
    ("approvals: all of them", APPROVALS, grants(approvals=("ceo", "cfo", "x")), CALLABLE),
    ("approvals: not only some", APPROVALS, grants(approvals=("ceo",)), HIDDEN),
    ("more than scopes lack", BOTH, grants(), HIDDEN),
    ("scopes alone lack", BOTH, grants(roles=("accountant",)), challenge("a")),
    ("the role alone lacks", BOTH, grants("a"), HIDDEN),
    (
        "hide: where only scopes lack",
        {**BOTH, "otherwise": "hide"},
        grants(roles=("accountant",)),
        HIDDEN,
    ),
    ("hide: where nothing lacks", {**SCOPES, "otherwise": "hide"}, grants("a", "b"), CALLABLE),
    (
        "challenge: where a role lacks",
        {**BOTH, "otherwise": "challenge"},
        grants("a"),
        challenge("a"),
    ),
    (
        "challenge: where no scope is needed",
        {**ROLES, "otherwise": "challenge"},
        grants(),
        challenge(),
    ),
)
def test_a_caller_at_noon(rule: dict[str, Any], caller: Grants, expected: Decision) -> None:
    assert policy(rule).decide(demand(rule), caller, NOON) == expected


@rows(
    "rule, caller, now, expected",
    ("inside the window", BY_DAY, grants(), NOON, CALLABLE),
    ("outside of it", BY_DAY, grants(), NIGHT, HIDDEN),
    ("outside, and scopes lack", {**BY_DAY, **SCOPES}, grants(), NIGHT, HIDDEN),
    ("inside, and scopes lack", {**BY_DAY, **SCOPES}, grants(), NOON, challenge("a", "b")),
    (
        "challenge",
        {**BY_DAY, **SCOPES, "otherwise": "challenge"},
        grants("a", "b"),
        NIGHT,
        challenge("a", "b"),
    ),
    ("hide", {**BY_DAY, **SCOPES, "otherwise": "hide"}, grants(), NOON, HIDDEN),
)
def test_the_time(rule: dict[str, Any], caller: Grants, now: float, expected: Decision) -> None:
    assert policy(rule).decide(demand(rule), caller, now) == expected


WAYS = {
    "requires": {"scopes": ("base",)},
    "any": (
        {"roles": ("boss",), "scopes": ("one",)},
        {"tenants": ("acme",), "scopes": ("two",)},
        {"tenants": ("acme",), "scopes": ("three",)},
    ),
}
CHALLENGED: dict[str, Any] = {**WAYS, "otherwise": "challenge"}


@rows(
    "rule, caller, expected",
    ("one of them", WAYS, grants("base", "one", roles=("boss",)), CALLABLE),
    ("another", WAYS, grants("base", "three", tenant="acme"), CALLABLE),
    ("none of them", WAYS, grants("base", "one", "two", "three"), HIDDEN),
    (
        "the parts of two are not one",
        WAYS,
        grants("base", "one", tenant="acme"),
        challenge("base", "two"),
    ),
    ("the first that lacks only scopes", WAYS, grants(tenant="acme"), challenge("base", "two")),
    (
        "of two within reach, the first",
        WAYS,
        grants(roles=("boss",), tenant="acme"),
        challenge("base", "one"),
    ),
    (
        "one that is met comes first",
        WAYS,
        grants("three", tenant="acme"),
        challenge("base", "three"),
    ),
    (
        "besides what is always needed",
        WAYS,
        grants("one", roles=("boss",)),
        challenge("base", "one"),
    ),
    ("challenge: none within reach", CHALLENGED, grants(), challenge("base")),
    ("an alternative may ask for nothing", {"any": ({"roles": ("boss",)}, {})}, grants(), CALLABLE),
)
def test_alternatives(rule: dict[str, Any], caller: Grants, expected: Decision) -> None:
    assert policy(rule).decide(demand(rule), caller, NOON) == expected


@rows(
    "rule, by_author, caller, expected",
    ("scopes of both", SCOPES, own("c"), grants("a", "b"), challenge("a", "b", "c")),
    ("all of them", SCOPES, own("c"), grants("a", "b", "c"), CALLABLE),
    ("a role of each", ROLES, own(roles=("eu", "us")), grants(roles=("accountant",)), HIDDEN),
    (
        "and both are there",
        ROLES,
        own(roles=("eu", "us")),
        grants(roles=("accountant", "us")),
        CALLABLE,
    ),
    ("the higher clearance", HIGH, own(clearance="high"), grants(clearance="medium"), HIDDEN),
    ("whoever asks for it", HIGH, own(clearance="low"), grants(clearance="low"), HIDDEN),
    (
        "approvals of both",
        APPROVALS,
        own(approvals=("me",)),
        grants(approvals=("cfo", "ceo")),
        HIDDEN,
    ),
    ("otherwise is for both", {"otherwise": "hide"}, own("c"), grants(), HIDDEN),
)
def test_what_the_author_demands_adds_up(
    rule: dict[str, Any], by_author: Own, caller: Grants, expected: Decision
) -> None:
    assert policy(rule).decide(demand(rule, by_author), caller, NOON) == expected


@rows(
    "rules, auth, expected",
    ("no rules at all: allow", [], {}, CALLABLE),
    ("no rules, but deny", [], {"default": "deny"}, HIDDEN),
    ("rules about others: deny", [{"tools": ("other",)}], {}, HIDDEN),
    ("rules about others, but allow", [{"tools": ("other",)}], {"default": "allow"}, CALLABLE),
)
def test_where_no_rule_names_the_tool(
    rules: list[dict[str, Any]], auth: dict[str, Any], expected: Decision
) -> None:
    made = policy(*rules, **auth)
    assert made.decide(made.demand("tool", {}, Own()), grants(), NOON) == expected


def test_the_author_is_heard_without_any_rule() -> None:
    made = policy()
    assert made.decide(made.demand("tool", {}, own("a")), grants(), NOON) == challenge("a")
    assert made.decide(made.demand("tool", {}, own(roles=("r",))), grants(), NOON) == HIDDEN


HIERARCHY = {"admin": ("write", "audit"), "write": ("read",)}


@rows(
    "held, needed, expected",
    ("itself", "read", "read", CALLABLE),
    ("a broader one", "write", "read", CALLABLE),
    ("through another", "admin", "read", CALLABLE),
    ("not a narrower one", "read", "write", challenge("write")),
    ("not its sister", "write", "audit", challenge("audit")),
)
def test_a_broader_scope_implies_narrower_ones(held: str, needed: str, expected: Decision) -> None:
    made = policy({"requires": {"scopes": (needed,)}}, scope_hierarchy=HIERARCHY)
    assert made.decide(made.demand("tool", {}, Own()), grants(held), NOON) == expected
    assert made.has_scopes(grants(held), [needed]) is expected.callable


@rows(
    "networks, address, refused",
    ("no networks", (), None, False),
    ("inside", ("10.0.0.0/8",), "10.1.2.3", False),
    ("outside", ("10.0.0.0/8",), "11.1.2.3", True),
    ("one of several", ("192.0.2.1", "10.0.0.0/8"), "192.0.2.1", False),
    ("host bits do no harm", ("10.1.2.3/8",), "10.9.9.9", False),
    ("IPv6", ("2001:db8::/32",), "2001:db8::1", False),
    ("IPv6 is not IPv4", ("0.0.0.0/0",), "2001:db8::1", True),
    ("IPv4 through a socket for both", ("10.0.0.0/8",), "::ffff:10.1.2.3", False),
    ("and outside", ("10.0.0.0/8",), "::ffff:11.1.2.3", True),
    ("written as IPv6", ("::ffff:10.0.0.0/104",), "::ffff:10.1.2.3", False),
    ("unknown", ("0.0.0.0/0", "::/0"), None, True),
    ("no address", ("0.0.0.0/0", "::/0"), "unix:", True),
    ("an address with more", ("0.0.0.0/0", "::/0"), "10.0.0.1, 10.0.0.2", True),
)
def test_networks_gate_the_call(
    networks: tuple[str, ...], address: str | None, refused: bool
) -> None:
    assert demand({"conditions": {"networks": networks}}).refuses_address(address) is refused


def test_networks_and_arguments_change_no_decision() -> None:
    rule = {"conditions": {"networks": ("10.0.0.0/8",)}, "arguments": {"a": {"maximum": 1}}}
    assert policy(rule).decide(demand(rule), grants(), NOON) == CALLABLE


@rows(
    "rule, depends",
    ("nothing", {}, False),
    ("time", BY_DAY, False),
    ("networks", {"conditions": {"networks": ("10.0.0.0/8",)}}, False),
    ("scopes lead to a challenge", SCOPES, False),
    ("or hide it", {**SCOPES, "otherwise": "hide"}, True),
    ("roles", ROLES, True),
    ("clearance", HIGH, True),
    ("the lowest clearance", {"requires": {"clearance": "low"}}, True),
    ("tenants", TENANTS, True),
    ("approvals", APPROVALS, True),
    ("challenge shows it to all", {**ROLES, "otherwise": "challenge"}, False),
    ("alternatives of roles", {"any": ({"roles": ("a",)}, {"roles": ("b",)})}, True),
    ("alternatives of scopes", {"any": ({"scopes": ("a",)}, {"roles": ("b",)})}, False),
    ("which hide it", {"any": ({"scopes": ("a",)}, {"roles": ("b",)}), "otherwise": "hide"}, True),
    (
        "alternatives of which one is free",
        {"any": ({}, {"roles": ("b",)}), "otherwise": "hide"},
        False,
    ),
    ("nobody", {"tools": ("other",)}, False),
)
def test_whether_callers_are_told_apart(rule: dict[str, Any], depends: bool) -> None:
    assert demand(rule).depends_on_caller is depends


def test_equal_demands_are_one_object() -> None:
    made = policy(BOTH, {})
    first, second = (made.demand(name, {}, own("x")) for name in ("a", "b"))
    assert first is second
    assert made.demand("a", {}, own("y")) != first


@pytest.mark.parametrize(
    "rule", [BOTH, WAYS, BY_DAY, APPROVALS, {"arguments": {"a": {"const": 1}}}]
)
def test_equal_rules_make_equal_demands_after_a_reload(rule: dict[str, Any]) -> None:
    one, other = demand(rule, own("x")), demand(rule, own("x"))
    assert one is not other and one == other and hash(one) == hash(other)
    assert len({one, other, demand({**rule, "otherwise": "hide"}, own("x"))}) == 2
