"""Results that are kept: ``@tool(cache_ttl_s=...)``."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cachetools import TLRUCache

from app.execution.execution import Ending
from app.principal import Principal
from app.protocol.inbound import Call
from app.protocol.jsonrpc import canonical
from app.protocol.schema import is_reserved_meta_key
from app.registry.tool import Tool

CACHE_KEY: Final = "mcp-tool-server/cache"
"""``_meta`` of a result: ``hit`` or ``miss``."""

OWN_PREFIX: Final = "mcp-tool-server/"
_OF_ONE_REQUEST: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})

ENTRY_BYTES: Final = 512
"""What an entry takes besides its result."""


class Key(NamedTuple):
    """What a result depends on.

    Attributes:
        tool: Version of its code, definition and settings.
        is_draft: Whether the result is for hooks.
        who: Who shares it; None: everybody.
        digest: Of the arguments, and of what else of the request the tool can see.
    """

    tool: bytes
    is_draft: bool
    who: tuple[str | None, ...] | None
    digest: bytes


class _Entry(NamedTuple):
    result: bytes
    until: float


class ResultCache:
    """Keeps the encoded results of one server, the ones used last.

    Args:
        max_bytes: Memory for all of them.
        clock: Seconds that only grow.

    Attributes:
        flights: Calls that run, for those with an equal key to wait for. Their result is None
            where the call came to no end that others can use.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: TLRUCache[Key, _Entry] = TLRUCache(
            max_bytes,
            ttu=lambda _key, entry, _now: entry.until,
            timer=clock,
            getsizeof=lambda entry: len(entry.result) + ENTRY_BYTES,
        )
        self.flights: dict[Key, asyncio.Future[Ending | None]] = {}

    def get(self, key: Key) -> bytes | None:
        """The result, or None where there is none or its time is over."""
        entry = self._entries.get(key)
        return None if entry is None else entry.result

    def put(self, key: Key, result: bytes, ttl_s: float) -> None:
        """Keep a result; one that is larger than all there may be is not kept."""
        if len(result) + ENTRY_BYTES <= self._entries.maxsize:
            self._entries[key] = _Entry(result, self._clock() + ttl_s)


def cache_key(
    tool: Tool,
    call: Call,
    principal: Principal,
    arguments: Mapping[str, Any],
    *,
    is_draft: bool = False,
) -> Key:
    """What a result of this call is kept under.

    Args:
        arguments: Valid ones.
    """
    caching = tool.caching
    assert caching is not None
    seen: list[Any] = [arguments]
    if tool.input.context_parameter is not None:
        # A tool with a Context can look at what the client adds to its request, such as a locale.
        meta = call.meta.raw
        seen.append({key: meta[key] for key in meta if _is_of_client(key)})
    who: tuple[str | None, ...] | None = None
    if caching.scope == "user" or (caching.scope == "tenant" and principal.tenant is None):
        who = principal.identity
    elif caching.scope == "tenant":
        who = ("tenant", principal.issuer, principal.tenant)
    return Key(tool.version, is_draft, who, hashlib.sha256(canonical(seen)).digest())


def _is_of_client(key: str) -> bool:
    """Whether a key of ``_meta`` says something that is not of one request or of the protocol."""
    return not (key in _OF_ONE_REQUEST or key.startswith(OWN_PREFIX) or is_reserved_meta_key(key))
