"""All rules together, compiled once for each version of the settings."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from app.policy.decision import Caller, Decision, Demand, decide
from app.policy.rules import Clearances, Own, Rule, need_of_author, normal_annotations
from app.principal import Grants
from app.settings.auth import AuthSettings, implied_scopes
from app.settings.policies import PolicySettings

REMEMBERED_CALLERS: Final = 1024
REMEMBERED_DEMANDS: Final = 4096


class Policy:
    """The rules. Never changes; new settings make a new one.

    Args:
        auth: Its ``default``, ``scope_hierarchy`` and ``clearances`` count here.
        rules: In order; the first that names a tool decides about it.

    Raises:
        ValueError: A rule cannot be applied; the text says which, and why.
    """

    def __init__(self, auth: AuthSettings, rules: Sequence[PolicySettings]) -> None:
        self.clearances: Final = Clearances(auth.clearances)
        self.rules: Final = tuple(
            Rule(rule, number, self.clearances) for number, rule in enumerate(rules, 1)
        )
        default = auth.default or ("deny" if rules else "allow")
        self.default: Final = Demand(f"default ({default})", nobody=default == "deny")
        self._windows = {
            rule.demand.window for rule in self.rules if rule.demand.window is not None
        }
        self._implied = {
            scope: implied_scopes(scope, auth.scope_hierarchy) for scope in auth.scope_hierarchy
        }
        # Equal demands are one object, and the same grants come again and again.
        self._joined = lru_cache(REMEMBERED_DEMANDS)(self._join)
        self.caller = lru_cache(REMEMBERED_CALLERS)(self._caller)

    def rule_for(self, name: str, annotations: Mapping[str, Any]) -> Rule | None:
        """The rule that decides about a tool; None if none names it.

        Args:
            name: As served.
            annotations: As in ``@tool(annotations=...)``, under either of their names.
        """
        normal = normal_annotations(annotations)
        return next((rule for rule in self.rules if rule.names(name, normal)), None)

    def demand(self, name: str, annotations: Mapping[str, Any], own: Own) -> Demand:
        """What is demanded of those who use a tool: by the rule that decides, and by its author.

        Raises:
            ValueError: The author asks for a clearance that there is not.
        """
        return self._joined(self.rule_for(name, annotations), own)

    def decide(self, demand: Demand, grants: Grants, now: float) -> Decision:
        """What a caller may do; the one function, for the list and for the call.

        Args:
            now: POSIX time in seconds.
        """
        return decide(demand, self.caller(grants), now)

    def next_edge(self, now: float) -> float:
        """POSIX time of the next instant after ``now`` at which a time window opens or closes.

        Until then, decisions about the same grants stay the same. ``math.inf``: for ever.
        """
        return min((window.next_edge(now) for window in self._windows), default=math.inf)

    def holds_until(self, demand: Demand, grants: Grants, now: float) -> float:
        """POSIX time until which a caller sees a tool, or does not see it, as now."""
        if demand.window is None or not demand.hangs_on_time(self.caller(grants)):
            return math.inf
        return demand.window.next_edge(now)

    def expand(self, scopes: frozenset[str]) -> frozenset[str]:
        """Scopes, and the narrower ones that they imply (``[auth] scope_hierarchy``)."""
        return scopes.union(*(self._implied.get(scope, ()) for scope in scopes))

    def holds(self, grants: Grants, scopes: Iterable[str]) -> bool:
        """Whether the caller has all of these scopes, itself or through broader ones.

        If so for the scopes of a challenge, more scopes would not help: something else lacks.
        """
        return self.caller(grants).scopes.issuperset(scopes)

    def unused(self, tools: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
        """Sentences about rules that decide about none of these tools (names and annotations)."""
        served = [(name, normal_annotations(annotations)) for name, annotations in tools]
        found = []
        for rule in self.rules:
            named = [tool for tool in served if rule.names(*tool)]
            if not named:
                found.append(f"policies: {rule.label} names no tool")
            elif all(self.rule_for(*tool) is not rule for tool in named):
                found.append(
                    f"policies: {rule.label} decides about no tool; "
                    "earlier rules name all those that it names"
                )
        return found

    def _join(self, rule: Rule | None, own: Own) -> Demand:
        demand = self.default if rule is None else rule.demand
        need = need_of_author(own, self.clearances)
        return demand if demand.nobody else dataclasses.replace(demand, need=demand.need & need)

    def _caller(self, grants: Grants) -> Caller:
        return Caller(
            self.expand(grants.scopes),
            grants.roles,
            self.clearances.rank(grants.clearance),
            grants.tenant,
            grants.approvals,
        )
