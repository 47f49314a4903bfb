"""The immutable snapshot of all tools that the server publishes.

Everything derived from a snapshot is worked out once: a request only looks things up, and two
replicas with the same files and rules answer with the same bytes.
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from app.policy.decision import Decision, Demand
from app.policy.limits import Limits
from app.policy.policy import Policy
from app.principal import Grants
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.tool import Tool, fingerprint
from app.registry.views import Encoder, Offer, View

MAX_CALLERS: Final = 10_000
"""Different grants whose view is remembered; the oldest are forgotten first."""

MAX_VIEWS: Final = 256
"""Different visible sets that are kept, with the pages that were asked for."""


class Catalog:
    """A snapshot: every tool, what each demands of its callers, and what each caller finds.

    Args:
        demands: By name of tool.
        limits: How many calls and lists in a while.
        anonymous: Whether callers without a credential are served.

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
        limits: Limits,
        messages: ServerMessages,
        keys: KeyRing,
        page_size: int,
        ttl_ms: int,
        anonymous: bool,
    ) -> None:
        ordered = sorted(tools, key=lambda tool: tool.name)
        self.tools: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in ordered})
        self.fingerprint = fingerprint([tool.definition for tool in ordered])
        self.limits = limits
        self._limits = {tool.name: limits.of(tool.name, tool.rate_limit) for tool in ordered}
        self._policy = policy
        self._demands = {tool.name: demands[tool.name] for tool in ordered}
        self._distinct = tuple(dict.fromkeys(self._demands.values()))
        self._windowed = tuple(each for each in self._distinct if each.window is not None)
        self._of_caller: dict[Grants, View] = {}
        self._views: dict[tuple[tuple[Decision, ...], float], View] = {}
        self.next_edge = -math.inf
        # Shared caches may serve a public list to anybody, with a credential or without.
        is_public = anonymous and not any(each.depends_on_caller for each in self._distinct)
        self._encoder = Encoder(
            messages=messages,
            keys=keys,
            page_size=page_size,
            ttl_ms=ttl_ms,
            cache_scope="public" if is_public else "private",
        )

    def view(self, grants: Grants, now: float) -> View:
        """What callers with these grants find at this moment.

        Args:
            now: POSIX time; never earlier than at the call before.
        """
        if now >= self.next_edge:
            self._of_caller.clear()
            self.next_edge = self._policy.next_edge(now)
        view = self._of_caller.get(grants)
        if view is None:
            view = self._decide(grants, now)
            if len(self._of_caller) >= MAX_CALLERS:
                del self._of_caller[next(iter(self._of_caller))]
            self._of_caller[grants] = view
        return view

    def lacks_scopes(self, grants: Grants, scopes: Iterable[str]) -> bool:
        """Whether more scopes are what a caller needs."""
        return not self._policy.holds(grants, scopes)

    def _decide(self, grants: Grants, now: float) -> View:
        policy = self._policy
        decisions = tuple([policy.decide(each, grants, now) for each in self._distinct])
        until = min(
            [policy.holds_until(each, grants, now) for each in self._windowed], default=math.inf
        )
        view = self._views.get((decisions, until))
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                # Whoever had the oldest is decided anew, once.
                oldest = self._views.pop(next(iter(self._views)))
                self._of_caller = {
                    each: other for each, other in self._of_caller.items() if other is not oldest
                }
            decided = dict(zip(self._distinct, decisions, strict=True))
            offers = []
            for name, tool in self.tools.items():
                demand = self._demands[name]
                if decided[demand].visible:
                    offers.append(Offer(tool, demand, decided[demand], self._limits[name]))
            view = self._views[decisions, until] = View(offers, self._encoder, until=until)
        return view
