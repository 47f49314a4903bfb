"""The immutable snapshot of all tools that the server publishes.

Everything derived from a snapshot is worked out once: a request only looks things up, and two
replicas with the same files answer with the same bytes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing, decode_cursor, encode_cursor
from app.registry.tool import Tool, fingerprint


class Listing:
    """The pages of ``tools/list`` for one visible set, encoded when first asked for.

    Args:
        tools: The visible tools.
        page_size: Tools on a page.
        ttl_ms: ``ttlMs`` of the result.
        cache_scope: ``public`` only if every caller sees this set.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        messages: ServerMessages,
        keys: KeyRing,
        page_size: int,
        ttl_ms: int,
        cache_scope: str,
    ) -> None:
        self._tools = sorted(tools, key=lambda tool: tool.name)
        self._names = [tool.name for tool in self._tools]
        self._messages = messages
        self._keys = keys
        self._page_size = page_size
        self._ttl_ms = ttl_ms
        self._cache_scope = cache_scope
        self._pages: dict[int, bytes] = {}

    def page(self, cursor: str | None) -> bytes:
        """The encoded ``ListToolsResult`` that follows a cursor.

        The cursor names the last tool seen, so tools that stay are neither skipped nor
        repeated while others come and go.

        Raises:
            InvalidParams: The cursor is not one of ours.
        """
        start = 0
        if cursor is not None:
            start = bisect_right(self._names, decode_cursor(cursor, keys=self._keys))
        page = self._pages.get(start)
        if page is None:
            page = self._pages[start] = self._encode(start)
        return page

    def _encode(self, start: int) -> bytes:
        end = start + self._page_size
        more = end < len(self._tools)
        return self._messages.tools_page(
            [tool.definition for tool in self._tools[start:end]],
            next_cursor=encode_cursor(self._names[end - 1], keys=self._keys) if more else None,
            ttl_ms=self._ttl_ms,
            cache_scope=self._cache_scope,
        )


class Catalog:
    """A snapshot: tools by name, and the listing of those that a caller may use.

    Attributes:
        tools: In name order.
        fingerprint: Equal for equal definitions.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        messages: ServerMessages,
        keys: KeyRing,
        page_size: int,
        ttl_ms: int,
    ) -> None:
        ordered = sorted(tools, key=lambda tool: tool.name)
        self.tools: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in ordered})
        self.fingerprint = fingerprint([tool.definition for tool in ordered])
        self.listing = Listing(
            ordered,
            messages=messages,
            keys=keys,
            page_size=page_size,
            ttl_ms=ttl_ms,
            # Every caller sees every tool until there are rules about who may.
            cache_scope="public",
        )
