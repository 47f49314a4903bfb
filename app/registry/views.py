"""What callers with the same rights find in a snapshot: their tools, and the list of them."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from app.policy.decision import Decision, Demand
from app.policy.limits import Limit
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing, decode_cursor, encode_cursor
from app.registry.hooks import NO_HOOKS, Hooks
from app.registry.tool import Tool, fingerprint


class Offer(NamedTuple):
    """A tool that a caller can see, what it demands, and whether this caller may call it.

    Attributes:
        limits: How many calls of it in a while.
        hooks: What looks at its calls.
        is_plain: Whether nothing stands around its calls.
        is_cached: Whether kept results are all that does.
    """

    tool: Tool
    demand: Demand
    decision: Decision
    limits: tuple[Limit, ...] = ()
    hooks: Hooks = NO_HOOKS
    is_plain: bool = True
    is_cached: bool = False


class PageEncoder:
    """Encodes the pages of one snapshot.

    Args:
        page_size: Tools on a page.
        ttl_ms: ``ttlMs`` of the result.
        cache_scope: ``public`` only if everybody finds the same list.
    """

    def __init__(
        self,
        *,
        messages: ServerMessages,
        keys: KeyRing,
        page_size: int,
        ttl_ms: int,
        cache_scope: str,
    ) -> None:
        self._messages = messages
        self._keys = keys
        self.page_size = page_size
        self.ttl_ms = ttl_ms
        self._cache_scope = cache_scope

    def name_before(self, cursor: str) -> str:
        """The tool that a cursor stands behind.

        Raises:
            InvalidParams: The cursor is not one of ours.
        """
        return decode_cursor(cursor, keys=self._keys)

    def page(self, tools: list[Tool], start: int) -> "Page":
        """The page of these tools that begins at an index."""
        end = start + self.page_size
        more = end < len(tools)
        head, tail = self._messages.tools_page(
            [tool.definition for tool in tools[start:end]],
            next_cursor=encode_cursor(tools[end - 1].name, keys=self._keys) if more else None,
            cache_scope=self._cache_scope,
        )
        return Page(head, tail, b"%b%d%b" % (head, self.ttl_ms, tail))


class Page(NamedTuple):
    """An encoded ``ListToolsResult``.

    Attributes:
        head, tail: What stands before ``ttlMs``, and behind it.
        whole: With ``[tools] list_ttl_ms``.
    """

    head: bytes
    tail: bytes
    whole: bytes


class View:
    """The visible set of callers with the same rights.

    Args:
        offers: In name order.
        until: POSIX time at which the set may become another one.

    Attributes:
        offers: By name. A tool that the caller may not see is not among them.
        fingerprint: Equal for equal definitions in an equal set.
    """

    def __init__(self, offers: Iterable[Offer], encoder: PageEncoder, *, until: float) -> None:
        self.offers: Mapping[str, Offer] = {offer.tool.name: offer for offer in offers}
        self._tools = [offer.tool for offer in self.offers.values()]
        self._names = list(self.offers)
        self._encoder = encoder
        self._until = until
        self._pages: dict[int, Page] = {}
        self.fingerprint = fingerprint([tool.definition for tool in self._tools])

    def page(self, cursor: str | None, now: float) -> bytes:
        """The encoded ``ListToolsResult`` that follows a cursor.

        The cursor names the last tool seen, so tools that stay are neither skipped nor
        repeated while others come and go.

        Args:
            now: POSIX time; clients are told to ask again when the set may become another one.

        Raises:
            InvalidParams: The cursor is not one of ours.
        """
        start = 0
        if cursor is not None:
            start = bisect_right(self._names, self._encoder.name_before(cursor))
        page = self._pages.get(start)
        if page is None:
            page = self._pages[start] = self._encoder.page(self._tools, start)
        left_ms = (self._until - now) * 1000
        if left_ms < self._encoder.ttl_ms:
            return b"%b%d%b" % (page.head, max(0, int(left_ms)), page.tail)
        return page.whole
