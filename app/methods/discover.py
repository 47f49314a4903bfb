"""``server/discover``: what is served (Discovery)."""

from collections.abc import Callable
from typing import Any

from app.methods.answers import Caller, Reply
from app.protocol.inbound import Call
from app.protocol.messages import ServerMessages
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS
from app.settings import Settings


class Discover:
    """Answers ``server/discover`` with one encoded result.

    Args:
        list_ttl_ms: Gives the present ``[tools] list_ttl_ms``.
    """

    def __init__(
        self, settings: Settings, messages: ServerMessages, list_ttl_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._list_ttl_ms = list_ttl_ms
        self._encoded: tuple[int, Reply] | None = None

    def __call__(self, call: Call, caller: Caller) -> Reply:
        ttl_ms = self._list_ttl_ms()
        if self._encoded is None or self._encoded[0] != ttl_ms:
            self._encoded = (ttl_ms, self._encode(ttl_ms))
        return self._encoded[1]

    def _encode(self, ttl_ms: int) -> Reply:
        settings = self._settings
        result: dict[str, Any] = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": {
                # Only where changes are noticed can they be told of.
                "tools": {"listChanged": settings.tools.reload},
                "logging": {},
            },
            "ttlMs": ttl_ms,
            "cacheScope": "public",
        }
        if settings.server.instructions:
            result["instructions"] = settings.server.instructions
        return Reply(self._messages.discover(result))
