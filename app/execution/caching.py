"""Results that are kept: ``@tool(cache_ttl_s=...)``."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cachetools import LRUCache

from app.execution.execution import Ending, Execution, Outcome
from app.principal import Principal
from app.protocol.inbound import Call
from app.protocol.jsonrpc import canonical
from app.protocol.messages import meta_member, with_meta
from app.protocol.schema import is_reserved_meta_key
from app.registry.tool import Tool

CACHE_KEY: Final = "mcp-tool-server/cache"
"""``_meta`` of a result: ``hit`` or ``miss``."""

HIT: Final = meta_member(CACHE_KEY, "hit")
MISS: Final = meta_member(CACHE_KEY, "miss")

OWN_PREFIX: Final = "mcp-tool-server/"
_OF_ONE_REQUEST: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})

_OF_ONE_TOKEN: Final = frozenset({"exp", "iat", "nbf", "jti", "auth_time", "at_hash", "nonce"})

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
        # Not TLRUCache, which costs three times as much: what has expired waits for its turn.
        self._entries: LRUCache[Key, _Entry] = LRUCache(
            max_bytes, getsizeof=lambda entry: len(entry.result) + ENTRY_BYTES
        )
        self.flights: dict[Key, asyncio.Future[Ending | None]] = {}

    @property
    def size(self) -> int:
        """Memory of what is kept, what has expired included."""
        return int(self._entries.currsize)

    def get(self, key: Key) -> bytes | None:
        """The result, or None where there is none or its time is over."""
        entry = self._entries.get(key)
        return None if entry is None or entry.until <= self._clock() else entry.result

    def put(self, key: Key, result: bytes, ttl_s: float) -> None:
        """Keep a result; one that is larger than all there may be is not kept."""
        if len(result) + ENTRY_BYTES <= self._entries.maxsize:
            self._entries[key] = _Entry(result, self._clock() + ttl_s)


def keep(cache: ResultCache, key: Key, execution: Execution) -> None:
    """Keep what a call gives that was just started, and nothing else stands around."""
    caching = execution.tool.caching
    assert caching is not None
    Keeping(cache, key, caching.ttl_s, execution)


class Flight:
    """A call that runs, as those with an equal key see it."""

    def __init__(self, cache: ResultCache, key: Key) -> None:
        self._cache = cache
        self._key = key
        self._landing: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        cache.flights[key] = self._landing

    def land(self, ending: Ending | None = None) -> None:
        """This is what others get; None: they have to run by themselves. Once."""
        if not self._landing.done():
            del self._cache.flights[self._key]
            self._landing.set_result(ending)


class Keeping:
    """Keeps the result of a call that nothing else stands around, and shares it meanwhile.

    Implements ``app.execution.execution.Leavable``: cheaper than a course, which needs a task.
    """

    is_course = False

    def __init__(self, cache: ResultCache, key: Key, ttl_s: float, execution: Execution) -> None:
        self._cache = cache
        self._key = key
        self._ttl_s = ttl_s
        self._execution = execution
        self._flight = Flight(cache, key)
        execution.course = self
        execution.run_ended = self.run_ended
        execution.on_pause = self._flight.land  # nobody waits for somebody else's user
        execution.cached = "miss"

    def leave(self) -> bool:
        self._let_go()
        self._flight.land()
        return True

    def run_ended(self, ending: Ending) -> None:
        """The tool's code has ended, and so has the call."""
        execution, result = self._execution, ending.result
        self._let_go()
        if execution.has_asked:
            self._flight.land()
        else:
            self._flight.land(ending)
            if ending.outcome == Outcome.OK:
                self._cache.put(self._key, result, self._ttl_s)
                result = with_meta(result, MISS)
        execution.error_id = ending.error_id
        execution.finish(result, ending.outcome)

    def _let_go(self) -> None:
        # No ring for the collector to find.
        self._execution.course = self._execution.run_ended = self._execution.on_pause = None


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
    is_of_one = caching.scope == "user" or (caching.scope == "tenant" and principal.tenant is None)
    if tool.input.context_parameter is not None:
        # A tool with a Context can look at what the client adds to its request, such as a locale,
        # and at what its caller may do. Whoever shares results with all has said that it does not.
        meta = call.meta.raw
        seen.append({key: meta[key] for key in meta if _is_of_client(key)})
        if caching.scope != "shared":
            seen.append(_rights(principal))
        if is_of_one:
            seen.append(_claims(principal))
    who: tuple[str | None, ...] | None = None
    if is_of_one:
        who = (principal.issuer, principal.subject, principal.tenant)
    elif caching.scope == "tenant":
        who = ("tenant", principal.issuer, principal.tenant)
    return Key(tool.version, is_draft, who, hashlib.sha256(canonical(seen)).digest())


def _rights(principal: Principal) -> list[Any]:
    return [
        sorted(principal.scopes),
        sorted(principal.roles),
        principal.clearance,
        sorted(principal.approvals),
    ]


def _claims(principal: Principal) -> Any:
    """Statements about a caller, without those that every token makes anew about itself."""
    return {
        name: _plain(value) for name, value in principal.claims.items() if name not in _OF_ONE_TOKEN
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _is_of_client(key: str) -> bool:
    """Whether a key of ``_meta`` says something that is not of one request or of the protocol."""
    return not (key in _OF_ONE_REQUEST or key.startswith(OWN_PREFIX) or is_reserved_meta_key(key))
