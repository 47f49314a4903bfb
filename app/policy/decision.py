"""What is demanded of a caller, and the one function that decides."""

import dataclasses
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from app.policy.arguments import ArgumentRules
from app.policy.windows import Window

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NO_CLEARANCE: Final = -1
REMEMBERED_ADDRESSES: Final = 1024


class Caller(NamedTuple):
    """Grants as they are compared.

    Attributes:
        scopes: Those granted, and the narrower ones that they imply.
        rank: Place of the clearance in ``[auth] clearances``; none or an unknown one is below all.
    """

    scopes: frozenset[str]
    roles: frozenset[str]
    rank: int
    tenant: str | None
    approvals: frozenset[str]


class Need(NamedTuple):
    """What a caller must have.

    Attributes:
        scopes: All of them.
        roles: Of each set at least one.
        rank: At least this clearance.
        tenants: One of them; empty: any caller.
        approvals: All of them.
    """

    scopes: frozenset[str] = frozenset()
    roles: tuple[frozenset[str], ...] = ()
    rank: int = NO_CLEARANCE
    tenants: frozenset[str] = frozenset()
    approvals: frozenset[str] = frozenset()

    def __and__(self, other: "Need") -> "Need":
        """Both, of which at most one names tenants."""
        return Need(
            self.scopes | other.scopes,
            self.roles + other.roles,
            max(self.rank, other.rank),
            self.tenants | other.tenants,
            self.approvals | other.approvals,
        )

    @property
    def asks_beyond_scopes(self) -> bool:
        return bool(self.roles or self.tenants or self.approvals) or self.rank > NO_CLEARANCE

    def is_met_beyond_scopes(self, caller: Caller) -> bool:
        """Whether the caller has everything, scopes left aside."""
        if caller.rank < self.rank or not self.approvals <= caller.approvals:
            return False
        if self.tenants and caller.tenant not in self.tenants:
            return False
        for roles in self.roles:  # noqa: SIM110  # a generator takes longer than all the rest
            if roles.isdisjoint(caller.roles):
                return False
        return True


class Decision(NamedTuple):
    """What a caller may do with a tool at one moment.

    Attributes:
        visible: It is listed. If not, it is answered exactly as an unknown tool is.
        callable: It may be called, as far as the caller and the time go. If not, but visible, a
            call is refused with a challenge.
        scopes: For a challenge: every scope that the call needs, sorted, those that the caller
            has included. Other things may be lacking too, where ``otherwise = "challenge"``.
    """

    visible: bool
    callable: bool
    scopes: tuple[str, ...] = ()


NOTHING: Final = Need()
HIDDEN: Final = Decision(visible=False, callable=False)
ALLOWED: Final = Decision(visible=True, callable=True)


@dataclass(frozen=True, slots=True)
class Demand:
    """What the rules and a tool's author demand of those who use the tool.

    Tools with equal demands are decided about alike, so one decision serves them all.

    Attributes:
        label: The rule that decides, or ``default``.
        nobody: No rule names the tool, and the default is to deny.
        need: What the rule and the author ask for.
        alternatives: One of them as well, where there are any.
        window: When; None: always.
        networks: From where; empty: from everywhere. They gate the call and never the list.
        argument_rules: They too.
    """

    label: str
    nobody: bool = False
    need: Need = NOTHING
    alternatives: tuple[Need, ...] = ()
    otherwise: Literal["hide", "challenge"] | None = None
    window: Window | None = None
    networks: tuple[Network, ...] = ()
    argument_rules: ArgumentRules | None = None
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Worked out once: demands are looked up for each tool of a list.
        parts = (self.label, self.nobody, self.need, self.alternatives, self.otherwise)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def depends_on_caller(self) -> bool:
        """Whether, at one moment, the tool may be visible to one caller and not to another."""
        if self.nobody or self.otherwise == "challenge":
            return False

        def tells_apart(need: Need) -> bool:
            by_scopes = self.otherwise == "hide" and bool(need.scopes)
            return by_scopes or need.asks_beyond_scopes

        alternatives = [tells_apart(need) for need in self.alternatives]
        return tells_apart(self.need) or (bool(alternatives) and all(alternatives))

    def hangs_on_time(self, caller: Caller) -> bool:
        """Whether a caller sees the tool at one time and not at another."""
        if self.window is None or self.otherwise == "challenge":
            return False
        return decide(dataclasses.replace(self, window=None), caller, 0.0).visible

    @property
    def arguments(self) -> Mapping[str, Mapping[str, Any]] | None:
        """JSON Schemas by the name of the argument; None: whatever the tool itself takes."""
        return None if self.argument_rules is None else self.argument_rules.schemas

    def argument_problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """Sentences for the model, each with the argument and the rule; none if all is well."""
        return [] if self.argument_rules is None else self.argument_rules.problems(arguments)

    def refuses_address(self, address: str | None) -> bool:
        """Whether a call from an IP address is refused; an unknown address is in no network."""
        if not self.networks:
            return False
        clients = _addresses(address or "")
        return not any(client in network for client in clients for network in self.networks)


def decide(demand: Demand, caller: Caller, now: float) -> Decision:
    """Decide about a caller and an instant (POSIX time); for the list and for the call alike."""
    if demand.nobody:
        return HIDDEN
    scopes = demand.need.scopes
    only_scopes_lack = demand.need.is_met_beyond_scopes(caller)
    if demand.alternatives:
        chosen = _choose(demand.alternatives, caller)
        if chosen is None:
            only_scopes_lack = False
        else:
            scopes |= chosen.scopes
    if only_scopes_lack and demand.window is not None:
        only_scopes_lack = demand.window.is_open(now)
    if only_scopes_lack and scopes <= caller.scopes:
        return ALLOWED
    if demand.otherwise == "hide" or (demand.otherwise is None and not only_scopes_lack):
        return HIDDEN
    return Decision(visible=True, callable=False, scopes=tuple(sorted(scopes)))


def _choose(alternatives: tuple[Need, ...], caller: Caller) -> Need | None:
    """The first alternative that the caller meets, else the first that lacks only scopes."""
    within_reach = [need for need in alternatives if need.is_met_beyond_scopes(caller)]
    for need in within_reach:
        if need.scopes <= caller.scopes:
            return need
    return within_reach[0] if within_reach else None


@lru_cache(REMEMBERED_ADDRESSES)
def _addresses(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
    """The address, in each of its forms; none if it is no address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ()
    # A socket for both families shows an IPv4 client as ::ffff:10.0.0.1 (RFC 4291, 2.5.5.2).
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (address,) if mapped is None else (address, mapped)
