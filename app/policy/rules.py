"""Rules as written become rules as applied: what they name, and what they demand."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.policy.arguments import ArgumentRules
from app.policy.decision import NO_CLEARANCE, Demand, Need
from app.policy.globs import compile_globs
from app.policy.windows import window_of
from app.settings.policies import PolicySettings, Requirement

HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Annotations by the names that authors and rules may use, and as they are sent."""

_DEFAULTS: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What a tool says that does not say (schema, ``ToolAnnotations``)."""


class Own(NamedTuple):
    """What ``@tool`` itself demands, besides the rules.

    Attributes:
        scopes: All of them.
        roles: At least one of them.
        clearance: This one or a higher one.
        approvals: All of them.
    """

    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    clearance: str | None = None
    approvals: frozenset[str] = frozenset()


class Clearances:
    """Clearances in their order, lowest first."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._ranks = {name: rank for rank, name in enumerate(names)}

    def rank(self, name: str | None) -> int:
        """The place of a caller's clearance; none and unknown ones are below all others."""
        return NO_CLEARANCE if name is None else self._ranks.get(name, NO_CLEARANCE)

    def demanded(self, name: str | None) -> int:
        """The place of a clearance that is asked for.

        Raises:
            ValueError: There is no such clearance; the text goes on after who asks.
        """
        if name is not None and name not in self._ranks:
            known = ", ".join(self.names)
            raise ValueError(
                f"requires the clearance {name!r}, which is none of [auth] clearances ({known})"
            )
        return self.rank(name)


def need_of_author(own: Own, clearances: Clearances) -> Need:
    """What ``@tool`` demands.

    Raises:
        ValueError: Its clearance is unknown.
    """
    return Need(
        scopes=own.scopes,
        roles=_one_of(own.roles),
        rank=clearances.demanded(own.clearance),
        approvals=own.approvals,
    )


class Rule:
    """A rule as applied.

    Args:
        number: Its place among the rules; the first is 1.

    Attributes:
        label: Number and name, for people.
        demand: What it demands, without what a tool's author does.

    Raises:
        ValueError: It asks for an unknown clearance, or has an argument rule that is no schema.
    """

    def __init__(self, settings: PolicySettings, number: int, clearances: Clearances) -> None:
        self.settings = settings
        self.label = f"rule {number}" + (f" ({settings.name})" if settings.name else "")
        self._names = compile_globs(settings.tools or ["*"])
        # Not a mapping: a hint that is asked for under both of its names must fit both times.
        self._annotations = [
            (HINTS.get(key, key), compile_globs([value]) if isinstance(value, str) else value)
            for key, value in settings.annotations.items()
        ]
        try:
            self.demand = _demand(settings, self.label, clearances)
        except ValueError as error:
            raise ValueError(f"policies: {self.label}: {error}") from None

    def names(self, tool: str, annotations: Mapping[str, Any]) -> bool:
        """Whether it is about a tool; see ``normal_annotations``."""
        return self._names.match(tool) is not None and all(
            _fits(wanted, annotations.get(key)) for key, wanted in self._annotations
        )


def normal_annotations(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's annotations by the names as sent, with the protocol's defaults.

    A tool that does not say whether it is destructive is taken for destructive, unless it is
    read-only, as clients do: a rule about destructive tools is not escaped by silence.
    """
    out = {HINTS.get(key, key): value for key, value in annotations.items()}
    if out.get("readOnlyHint") is True:
        out.setdefault("destructiveHint", False)
    return {**_DEFAULTS, **out}


def _fits(wanted: re.Pattern[str] | bool | int, value: Any) -> bool:
    if isinstance(wanted, re.Pattern):
        return isinstance(value, str) and wanted.match(value) is not None
    # True is not 1 here.
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _demand(settings: PolicySettings, label: str, clearances: Clearances) -> Demand:
    need = _need(settings.requires, clearances)
    conditions = settings.conditions
    return Demand(
        label=label,
        need=need._replace(approvals=frozenset(settings.required_approvals)),
        alternatives=tuple(_need(alternative, clearances) for alternative in settings.any),
        otherwise=settings.otherwise,
        window=window_of(conditions),
        networks=tuple(ipaddress.ip_network(text, strict=False) for text in conditions.networks),
        argument_rules=ArgumentRules(settings.arguments, label) if settings.arguments else None,
    )


def _need(requirement: Requirement, clearances: Clearances) -> Need:
    return Need(
        scopes=frozenset(requirement.scopes),
        roles=_one_of(frozenset(requirement.roles)),
        rank=clearances.demanded(requirement.clearance),
        tenants=frozenset(requirement.tenants),
    )


def _one_of(roles: frozenset[str]) -> tuple[frozenset[str], ...]:
    return (roles,) if roles else ()
