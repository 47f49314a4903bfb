"""``server/discover``: what is served (Discovery)."""

from collections.abc import Callable
from typing import Any

from app.methods.answers import Reply, Sender
from app.protocol.inbound import Call
from app.protocol.messages import ServerMessages
from app.protocol.schema import LEGACY_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from app.settings import Settings
from app.version import server_version


def server_info(settings: Settings) -> dict[str, Any]:
    """``Implementation`` object of a server with these settings."""
    info: dict[str, Any] = {"name": settings.server.name, "version": server_version()}
    if settings.server.title:
        info["title"] = settings.server.title
    return info


def server_messages(settings: Settings) -> ServerMessages:
    """The messages of a server with these settings."""
    return ServerMessages(server_info(settings))


class Discover:
    """Answers ``server/discover`` with one encoded result.

    Args:
        list_ttl_ms: Gives the present ``[tools] list_ttl_ms``.
        is_open: Whether callers without a credential are served now.
        tools_change: Whether changes of tools are noticed at all.
    """

    def __init__(
        self,
        settings: Settings,
        messages: ServerMessages,
        *,
        list_ttl_ms: Callable[[], int],
        is_open: Callable[[], bool],
        tools_change: bool,
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._list_ttl_ms = list_ttl_ms
        self._is_open = is_open
        self._tools_change = tools_change
        self._encoded: tuple[tuple[int, bool], Reply] | None = None

    def __call__(self, call: Call, sender: Sender) -> Reply:
        now = self._list_ttl_ms(), self._is_open()
        if self._encoded is None or self._encoded[0] != now:
            self._encoded = (now, self._encode(*now))
        return self._encoded[1]

    def _encode(self, ttl_ms: int, is_open: bool) -> Reply:
        settings = self._settings
        result: dict[str, Any] = {
            "supportedVersions": [
                *MODERN_PROTOCOL_VERSIONS,
                *(LEGACY_PROTOCOL_VERSIONS if settings.legacy.enabled else ()),
            ],
            "capabilities": {
                # Only where changes are noticed can they be told of.
                "tools": {"listChanged": self._tools_change},
                "logging": {},
            },
            "ttlMs": ttl_ms,
            # Shared caches may serve what is public to anybody, with a credential or without.
            "cacheScope": "public" if is_open else "private",
        }
        if settings.server.instructions:
            result["instructions"] = settings.server.instructions
        return Reply(self._messages.discover(result))
