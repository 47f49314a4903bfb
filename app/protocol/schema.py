"""Wire types and names of MCP 2026-07-28, as in the specification's ``schema.ts``."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.protocol.trace_context import TraceContext

LATEST_PROTOCOL_VERSION: Final = "2026-07-28"
MODERN_PROTOCOL_VERSIONS: Final = (LATEST_PROTOCOL_VERSION,)
"""Revisions that carry version and capabilities in each request, newest first."""

LEGACY_PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with ``initialize``, newest first."""

META_PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION_KEY: Final = META_PREFIX + "protocolVersion"
CLIENT_INFO_KEY: Final = META_PREFIX + "clientInfo"
CLIENT_CAPABILITIES_KEY: Final = META_PREFIX + "clientCapabilities"
LOG_LEVEL_KEY: Final = META_PREFIX + "logLevel"
SERVER_INFO_KEY: Final = META_PREFIX + "serverInfo"
SUBSCRIPTION_ID_KEY: Final = META_PREFIX + "subscriptionId"

LOG_LEVELS: Final = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""``LoggingLevel`` of the schema, mildest first (RFC 5424, section 6.2.1)."""

METHODS: Final = frozenset(
    {
        *("initialize", "ping", "server/discover", "tools/list", "tools/call"),
        *("subscriptions/listen", "logging/setLevel", "completion/complete"),
        *("prompts/list", "prompts/get", "resources/list", "resources/templates/list"),
        *("resources/read", "resources/subscribe", "resources/unsubscribe"),
        *("tasks/list", "tasks/get", "tasks/update", "tasks/result", "tasks/cancel"),
        *("notifications/initialized", "notifications/cancelled", "notifications/progress"),
        "notifications/roots/list_changed",
    }
)
"""What clients send, in any revision; what is none of these a client has made up."""

RequestId = str | int
ProgressToken = str | int


class Implementation(NamedTuple):
    """Who a peer says it is. Self-reported: for display only, it never steers behaviour."""

    name: str
    version: str


class RequestMeta(NamedTuple):
    """``RequestMetaObject``: what every modern request says about itself.

    Attributes:
        raw: The whole ``_meta`` object as received.
        trace_parent: The W3C ``traceparent`` of the request's ``_meta``, else that of its headers;
            None where neither is well-formed.
        trace_state: The ``tracestate`` beside it.
    """

    protocol_version: str
    client_capabilities: Mapping[str, Any]
    client_info: Implementation | None
    log_level: str | None
    progress_token: ProgressToken | None
    trace_parent: str | None
    raw: Mapping[str, Any]
    trace_state: str | None = None

    @property
    def trace(self) -> TraceContext | None:
        """Where the request hangs in its caller's trace."""
        parent = self.trace_parent
        return None if parent is None else TraceContext(parent, self.trace_state)


def is_reserved_meta_key(key: str) -> bool:
    """Whether MCP reserves this ``_meta`` key (Overview, "``_meta``").

    Reserved are the bare keys that the specification defines and every prefix whose second
    label is ``modelcontextprotocol`` or ``mcp``.
    """
    prefix, slash, _ = key.partition("/")
    if not slash:
        return key in {"progressToken", "traceparent", "tracestate", "baggage"}
    labels = prefix.split(".")
    return len(labels) > 1 and labels[1] in {"modelcontextprotocol", "mcp"}
