"""``server/discover``: what is served (Discovery)."""

from typing import Any

from app.methods.router import Reply
from app.principal import Principal
from app.protocol.headers import HeaderMap
from app.protocol.inbound import Call
from app.protocol.messages import ServerMessages
from app.protocol.schema import MODERN_PROTOCOL_VERSIONS
from app.settings import Settings


class Discover:
    """Answers ``server/discover`` with one encoded result."""

    def __init__(self, settings: Settings, messages: ServerMessages) -> None:
        result: dict[str, Any] = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": {
                # Only where changes are noticed can they be told of.
                "tools": {"listChanged": settings.tools.reload},
                "logging": {},
            },
            "ttlMs": settings.tools.list_ttl_ms,
            "cacheScope": "public",
        }
        if settings.server.instructions:
            result["instructions"] = settings.server.instructions
        self._reply = Reply(messages.discover(result))

    def __call__(self, call: Call, principal: Principal, headers: HeaderMap | None) -> Reply:
        return self._reply
