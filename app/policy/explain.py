"""Why a caller may or may not use a tool: rule by rule, and demand by demand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from app.policy.decision import NO_CLEARANCE, Decision, Demand, Need, Standing
from app.policy.policy import Policy
from app.policy.rules import Own, Rule, need_of_author, normal_annotations
from app.principal import Grants


class RuleLine(NamedTuple):
    """A rule that was looked at.

    Attributes:
        rule: Number and name, or the default.
        names_tool: Whether it is about the tool.
        decides: Whether it is the first such, or the default where there is none.
    """

    rule: str
    names_tool: bool
    decides: bool


class Line(NamedTuple):
    """One thing demanded.

    Attributes:
        what: Who demands, and what: ``rule 1: scopes``.
        needed: What would do.
        has: What there is.
        met: Whether it does; None: it was not said where from, or with which arguments.
    """

    what: str
    needed: str
    has: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why.

    Attributes:
        rules: Each rule, in order; last the default.
        lines: Everything that is demanded. Of the lines of alternatives one alternative's count.
        decision: What ``Policy.decide`` says: it knows neither address nor arguments.
        succeeds: Whether a call would reach the tool, as far as it was said what it is like.
        verdict: All of it in one sentence.
    """

    rules: tuple[RuleLine, ...]
    lines: tuple[Line, ...]
    decision: Decision
    succeeds: bool
    verdict: str

    @property
    def decided_by(self) -> str:
        return next(line.rule for line in self.rules if line.decides)


def explain(
    policy: Policy,
    name: str,
    annotations: Mapping[str, Any],
    *,
    own: Own,
    grants: Grants,
    now: float,
    address: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Explanation:
    """Explain what a caller finds.

    Args:
        name: The tool, as served.
        annotations: As in ``@tool(annotations=...)``.
        own: What its author demands.
        now: POSIX time in seconds.
        address: Where the call comes from; None: leave that out.
        arguments: Of the call; None: likewise.

    Raises:
        ValueError: The tool's author asks for a clearance that there is not.
    """
    demand = policy.demand(name, annotations, own)
    decision = policy.decide(demand, grants, now)
    rule = policy.rule_for(name, annotations)
    reader = _Reader(policy, policy.standing(grants), grants)
    lines = list(reader.lines("the tool itself", need_of_author(own, policy.clearances)))
    if rule is None:
        lines += _of_the_default(policy)
    else:
        lines += _of_the_rule(rule, reader, now)
    gates = [*_networks(demand, address), *_arguments(demand, arguments)]
    return Explanation(
        rules=tuple(_rules(policy, rule, name, annotations)),
        lines=(*lines, *gates),
        decision=decision,
        succeeds=decision.callable and all(gate.met is not False for gate in gates),
        verdict=_verdict(decision, gates),
    )


class _Reader:
    """Reads what is needed beside what a caller has."""

    def __init__(self, policy: Policy, caller: Standing, grants: Grants) -> None:
        self.caller = caller
        self._names = policy.clearances.names
        self._grants = grants

    def lines(self, who: str, need: Need) -> Iterator[Line]:
        caller = self.caller
        if need.scopes:
            met = need.scopes <= caller.scopes
            yield Line(f"{who}: scopes", _all(need.scopes), _all(self._grants.scopes), met)
        for roles in need.roles:
            met = not roles.isdisjoint(caller.roles)
            yield Line(f"{who}: roles", _one(roles), _all(caller.roles), met)
        if need.rank > NO_CLEARANCE:
            needed, met = self._names[need.rank], caller.rank >= need.rank
            has = self._grants.clearance or "none"
            yield Line(f"{who}: clearance", f"{needed} or higher", has, met)
        if need.tenants:
            met = caller.tenant in need.tenants
            yield Line(f"{who}: tenant", _one(need.tenants), caller.tenant or "none", met)
        if need.approvals:
            met = need.approvals <= caller.approvals
            yield Line(f"{who}: approvals", _all(need.approvals), _all(caller.approvals), met)


def _rules(
    policy: Policy, deciding: Rule | None, name: str, annotations: Mapping[str, Any]
) -> Iterator[RuleLine]:
    normal = normal_annotations(annotations)
    for rule in policy.rules:
        yield RuleLine(rule.label, rule.names(name, normal), rule is deciding)
    yield RuleLine(policy.default.label, names_tool=True, decides=deciding is None)


def _of_the_default(policy: Policy) -> Iterator[Line]:
    if policy.default.nobody:
        yield Line(policy.default.label, "a rule that names the tool", "none", met=False)


def _of_the_rule(rule: Rule, reader: _Reader, now: float) -> Iterator[Line]:
    yield from reader.lines(rule.label, rule.demand.need)
    if rule.demand.alternatives:
        met = []
        for number, need in enumerate(rule.demand.alternatives, 1):
            lines = list(reader.lines(f"{rule.label}: alternative {number}", need))
            yield from lines
            if all(line.met for line in lines):
                met.append(str(number))
        yield Line(f"{rule.label}: any", "one alternative", _all(met), bool(met))
    if rule.demand.window is not None:
        window, conditions = rule.demand.window, rule.settings.conditions
        needed = " ".join(filter(None, [",".join(conditions.days), conditions.time]))
        local = datetime.fromtimestamp(now, window.zone)
        yield Line(
            f"{rule.label}: time",
            f"{needed} {conditions.timezone}",
            f"{local:%a %Y-%m-%d %H:%M:%S %Z}",
            window.is_open(now),
        )


def _networks(demand: Demand, address: str | None) -> Iterator[Line]:
    if demand.networks:
        met = None if address is None else not demand.refuses_address(address)
        needed = _one(str(network) for network in demand.networks)
        yield Line(f"{demand.label}: networks", needed, address or "not said", met)


def _arguments(demand: Demand, arguments: Mapping[str, Any] | None) -> Iterator[Line]:
    if demand.arguments is not None:
        needed, what = _all(demand.arguments), f"{demand.label}: arguments"
        if arguments is None:
            yield Line(what, f"rules for {needed}", "not said", met=None)
        else:
            problems = demand.argument_problems(arguments)
            has = "; ".join(problems) or "as they must be"
            yield Line(what, f"rules for {needed}", has, not problems)


def _verdict(decision: Decision, gates: Sequence[Line]) -> str:
    if not decision.visible:
        return "hidden: not listed, and a call is answered as that of an unknown tool"
    if not decision.callable:
        scopes = f"; it needs the scopes {' '.join(decision.scopes)}" if decision.scopes else ""
        how = "a challenge" if decision.scopes else "403"
        return f"listed, but a call is refused with {how}{scopes}"
    for gate in gates:
        if gate.met is False:
            return f"listed, but this call is refused: {gate.what}"
    untold = [gate.what for gate in gates if gate.met is None]
    return "listed and callable" + (f", subject to {' and '.join(untold)}" if untold else "")


def _all(names: Iterable[str]) -> str:
    return " ".join(sorted(names)) or "none"


def _one(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
