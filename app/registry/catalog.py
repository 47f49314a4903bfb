"""The immutable snapshot of all tools that the server publishes.

Everything derived from a snapshot is worked out once: a request only looks things up, and two
replicas with the same files and rules answer with the same bytes.
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from weakref import ref

from app.policy.decision import Decision, Demand, decide
from app.policy.limits import Limits
from app.policy.policy import Policy
from app.policy.rollouts import Switch
from app.principal import Grants, Principal
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.hooks import Hooks
from app.registry.tool import Tool, fingerprint
from app.registry.views import Offer, PageEncoder, View

MAX_VIEWS: Final = 256
"""Different visible sets that are kept, with the pages that were asked for; of more the oldest is
made anew for those who come. Percentages of several tools multiply them."""


class Catalog:
    """A snapshot: every tool, what each demands of its callers, and what each caller finds.

    Args:
        demands: By name of tool.
        hooks: Likewise.
        limits: How many calls and lists in a while.
        anonymous: Whether callers without a credential are served.
        switches: For whom tools are there, by name; one that is not named is there for everybody.

    Attributes:
        tools: In name order.
        fingerprint: Equal for equal definitions.
        limits: Those of the list, and of tools that a caller cannot see; an offer has its own.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        policy: Policy,
        demands: Mapping[str, Demand],
        hooks: Mapping[str, Hooks],
        limits: Limits,
        messages: ServerMessages,
        keys: KeyRing,
        page_size: int,
        ttl_ms: int,
        anonymous: bool,
        switches: Mapping[str, Switch] = MappingProxyType({}),
    ) -> None:
        off = {name for name, switch in switches.items() if switch.is_off}
        there = (tool for tool in tools if tool.name not in off)
        ordered = sorted(there, key=lambda tool: tool.name)
        self.tools: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in ordered})
        self.fingerprint = fingerprint([tool.definition for tool in ordered])
        self.limits = limits
        self._limits = {tool.name: limits.of(tool.name, tool.rate_limit) for tool in ordered}
        self._hooks = hooks
        self._policy = policy
        self._demands = {tool.name: demands[tool.name] for tool in ordered}
        self._distinct = tuple(dict.fromkeys(self._demands.values()))
        self._windowed = tuple(each for each in self._distinct if each.window is not None)
        self._rollouts = {
            name: switch
            for name, switch in switches.items()
            if switch.tells_callers_apart and name in self.tools
        }
        self._views: dict[tuple[tuple[Decision, ...], float, frozenset[str]], View] = {}
        self._period = object()
        self._since = self._until = -math.inf
        # Shared caches may serve a public list to anybody, with a credential or without.
        is_public = not self._rollouts and (
            anonymous and not any(each.depends_on_caller for each in self._distinct)
        )
        self._encoder = PageEncoder(
            messages=messages,
            keys=keys,
            page_size=page_size,
            ttl_ms=ttl_ms,
            cache_scope="public" if is_public else "private",
        )

    def view(self, principal: Principal, now: float) -> View:
        """What a caller finds at this moment.

        A principal lives as long as its credential is remembered, and so does where it found
        its view: there is no other memory of callers, and none to bound. It does not keep the
        view itself alive, so that views are bounded however many callers are remembered.

        Args:
            now: POSIX time.
        """
        if not self._since <= now < self._until:
            self._begin(now)
        period, found = principal.found
        view: View | None = found() if period is self._period else None
        if view is None:
            view = self._decide(principal, now)
            principal.found[:] = self._period, ref(view)
        return view

    @property
    def next_edge(self) -> float:
        """POSIX time from which somebody may find another list."""
        return self._until

    def rule_of(self, name: str) -> str | None:
        """The label of the rule that decides about a tool; None: there is no such tool.

        For records alone: whoever may not see a tool must not learn that there is one.
        """
        demand = self._demands.get(name)
        return None if demand is None else demand.label

    def lacks_scopes(self, grants: Grants, scopes: Iterable[str]) -> bool:
        """Whether more scopes are what a caller needs."""
        return not self._policy.has_scopes(grants, scopes)

    def _begin(self, now: float) -> None:
        """A time in which no window opens or closes begins; or the clock went back."""
        self._period = object()
        self._since, self._until = now, self._policy.next_edge(now)

    def _decide(self, principal: Principal, now: float) -> View:
        policy = self._policy
        standing = policy.standing(principal.grants)
        decisions = tuple([decide(each, standing, now) for each in self._distinct])
        until = min(
            [policy.visible_until(each, standing, now) for each in self._windowed],
            default=math.inf,
        )
        decided = dict(zip(self._distinct, decisions, strict=True))
        held_back = frozenset(
            name
            for name, switch in self._rollouts.items()
            if decided[self._demands[name]].visible and not switch.admits(name, principal)
        )
        key = decisions, until, held_back
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                del self._views[next(iter(self._views))]
            offers = []
            for name, tool in self.tools.items():
                demand = self._demands[name]
                if decided[demand].visible and name not in held_back:
                    offers.append(self._offer(tool, demand, decided[demand]))
            view = self._views[key] = View(offers, self._encoder, until=until)
        return view

    def _offer(self, tool: Tool, demand: Demand, decision: Decision) -> Offer:
        hooks, caching = self._hooks[tool.name], tool.caching is not None
        has_hooks = bool(hooks.before or hooks.after)
        return Offer(
            tool,
            demand,
            decision,
            self._limits[tool.name],
            hooks,
            is_plain=not (has_hooks or caching or tool.retries),
            is_cached=caching and not (has_hooks or tool.retries),
        )
