"""For random rules, callers, tools and times: the same answers as the plain reference."""

from datetime import UTC, datetime
from itertools import product
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from app.policy import Own, Policy, explain
from app.principal import Grants
from app.settings.auth import AuthSettings
from app.settings.policies import Conditions, PolicySettings, Requirement
from tests.policy.reference import answer

SCOPES, ROLES, APPROVALS = ("a", "b", "c", "d"), ("r", "s"), ("p", "q")
CLEARANCES = ("low", "medium", "high")
TENANTS = ("acme", "umbrella")
TOOLS = st.sampled_from(["finance.pay", "finance.read", "hr.pay", "[f]", "f"])
NIGHTS = ["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-10-03", "2026-04-04"]
HOURS = st.sampled_from(["01:30", "01:45", "02:00", "02:15", "02:45", "03:00", "17:00", "22:00"])


def some(values: tuple[str, ...], most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    """Often nothing, so that random demands are sometimes met."""
    return st.just(()) | st.lists(st.sampled_from(values), max_size=most, unique=True).map(tuple)


def sets(values: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    """Often everything, so that one thing alone is lacking."""
    return st.just(frozenset(values)) | st.frozensets(st.sampled_from(values))


instants = st.builds(
    lambda night, hours: (
        datetime.fromisoformat(night).replace(tzinfo=UTC).timestamp() + hours * 3600
    ),
    st.sampled_from(NIGHTS),
    # Mostly near the change of the clocks, which comes between 0 and 15 hours UTC.
    st.integers(-12, 80).map(lambda quarters: quarters / 4) | st.floats(-100, 100),
)
requirements = st.builds(
    Requirement,
    scopes=some(SCOPES),
    roles=some(ROLES),
    clearance=st.sampled_from([None, None, None, *CLEARANCES]),
    tenants=st.just(()) | some(TENANTS),
)
conditions = st.builds(
    Conditions,
    time=st.none() | st.tuples(HOURS, HOURS).filter(lambda pair: pair[0] != pair[1]).map("-".join),
    days=some(("mon", "wed-fri", "sat", "sun", "sat-mon")),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
values = st.booleans() | st.integers(0, 1) | st.sampled_from(["high", "h*", "l?w", "low"])
annotations = st.dictionaries(
    st.sampled_from(["read_only", "readOnlyHint", "destructive", "risk"]), values, max_size=2
)
rules = st.builds(
    PolicySettings,
    tools=st.just(("*",))
    | st.lists(
        st.sampled_from(["*", "finance.*", "*.pay", "f", "?", "[f]", "h?.*"]),
        min_size=1,
        max_size=2,
        unique=True,
    ).map(tuple),
    annotations=st.just({}) | annotations,
    requires=requirements,
    any=st.just(()) | st.lists(requirements, max_size=3).map(tuple),
    conditions=st.just(Conditions()) | conditions,
    required_approvals=some(APPROVALS),
    otherwise=st.sampled_from([None, "hide", "challenge"]),
)
hierarchies = st.lists(st.sampled_from(SCOPES), max_size=3, unique=True).flatmap(
    lambda broad: st.fixed_dictionaries(
        {
            # A scope implies later ones alone, so that there is no circle.
            scope: st.lists(
                st.sampled_from((*SCOPES[SCOPES.index(scope) + 1 :], "e")), unique=True
            ).map(tuple)
            for scope in broad
        }
    )
)
auths = st.builds(
    AuthSettings,
    default=st.sampled_from([None, "deny", "allow"]),
    scope_hierarchy=hierarchies,
)
callers = st.builds(
    Grants,
    sets(SCOPES),
    sets(ROLES),
    st.just("high") | st.sampled_from([None, "unknown", *CLEARANCES]),
    st.just("acme") | st.sampled_from([None, "other", *TENANTS]),
    sets(APPROVALS),
    st.booleans(),
)
owns = st.just(Own()) | st.builds(
    Own,
    some(SCOPES[:2]).map(frozenset),
    some(ROLES).map(frozenset),
    st.none() | st.sampled_from(CLEARANCES),
    some(APPROVALS).map(frozenset),
)
policies = st.tuples(auths, st.lists(rules, max_size=4))
tools = st.tuples(TOOLS, annotations, owns)
Tool = tuple[str, dict[str, Any], Own]
Made = tuple[AuthSettings, list[PolicySettings]]
T = TypeVar("T")


def several(of: st.SearchStrategy[T], least: int) -> st.SearchStrategy[list[T]]:
    return st.lists(of, min_size=least, max_size=least + 2)


@settings(deadline=None, max_examples=400)
@given(policies, several(tools, 2), several(callers, 6), several(instants, 3))
def test_the_decision_is_that_of_the_reference(
    made: Made, asked: list[Tool], who: list[Grants], when: list[float]
) -> None:
    policy = Policy(*made)
    for (name, said, own), grants, now in product(asked, who, when):
        decision = policy.decide(policy.demand(name, said, own), grants, now)
        assert decision == answer(*made, name, said, own=own, grants=grants, now=now)


@settings(deadline=None)
@given(policies, tools, callers, instants)
def test_a_decision_is_consistent_in_itself(
    made: Made, tool: Tool, grants: Grants, now: float
) -> None:
    policy = Policy(*made)
    demand = policy.demand(*tool)
    decision = policy.decide(demand, grants, now)
    assert decision.visible or not decision.callable
    assert not decision.scopes or (decision.visible and not decision.callable)
    assert list(decision.scopes) == sorted(set(decision.scopes))
    assert policy.decide(demand, grants, now) == decision


@settings(deadline=None, max_examples=150)
@given(policies, several(tools, 2), several(callers, 10), several(instants, 2))
def test_what_does_not_depend_on_the_caller_is_the_same_for_all(
    made: Made, asked: list[Tool], who: list[Grants], when: list[float]
) -> None:
    policy = Policy(*made)
    for tool, now in product(asked, when):
        demand = policy.demand(*tool)
        seen = {policy.decide(demand, grants, now).visible for grants in (*who, Grants())}
        assert demand.depends_on_caller or len(seen) == 1


@settings(deadline=None)
@given(policies, several(tools, 2), callers, instants, st.data())
def test_nothing_changes_before_the_next_edge(
    made: Made, asked: list[Tool], grants: Grants, now: float, data: st.DataObject
) -> None:
    policy = Policy(*made)
    edge = min(policy.next_edge(now), now + 30 * 86_400)
    assert edge > now
    between = data.draw(st.lists(st.floats(now, edge, exclude_max=True), max_size=5))
    for name, said, own in asked:
        demand = policy.demand(name, said, own)
        decision = policy.decide(demand, grants, now)
        for instant in (*between, edge - 0.001) if edge - 0.001 > now else between:
            assert policy.decide(demand, grants, instant) == decision
        after = answer(*made, name, said, own=own, grants=grants, now=edge)
        assert policy.decide(demand, grants, edge) == after


@settings(deadline=None)
@given(policies, tools, callers, instants)
def test_the_explanation_says_what_was_decided(
    made: Made, tool: Tool, grants: Grants, now: float
) -> None:
    name, said, own = tool
    policy = Policy(*made)
    demand = policy.demand(name, said, own)
    why = explain(policy, name, said, own=own, grants=grants, now=now)
    assert why.decision == policy.decide(demand, grants, now)
    assert why.decided_by == demand.label
    met = all(line.met for line in why.lines if "alternative" not in line.what)
    assert met is why.decision.callable is why.succeeds
