"""Protected Resource Metadata: where a client gets a token for this server (RFC 9728).

Everything comes from the settings; a request's Host or forwarded headers have no say.
"""

from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from app.settings import Settings

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


def metadata_url(settings: Settings) -> str | None:
    """Where the metadata is; None without an issuer.

    The well-known part stands between host and path (RFC 9728, section 3.1).
    """
    if not settings.auth.issuers:
        return None
    parts = urlsplit(settings.resource_url)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"


def metadata_paths(settings: Settings) -> tuple[str, ...]:
    """The paths that serve it; none without an issuer.

    The bare one too, for clients that know no other, and the one with ``/mcp`` alone, for a
    proxy that takes a prefix of ``public_url`` away.
    """
    if not settings.auth.issuers:
        return ()
    path = urlsplit(settings.resource_url).path
    return tuple(dict.fromkeys((WELL_KNOWN, WELL_KNOWN + "/mcp", WELL_KNOWN + path)))


def resource_metadata(settings: Settings) -> bytes | None:
    """The document (RFC 9728, section 2); None without an issuer."""
    if not settings.auth.issuers:
        return None
    document: dict[str, Any] = {
        "resource": settings.resource_url,
        "resource_name": settings.server.title or settings.server.name,
        "authorization_servers": [issuer.issuer for issuer in settings.auth.issuers],
        "bearer_methods_supported": ["header"],
    }
    if settings.auth.scopes_supported:
        document["scopes_supported"] = list(settings.auth.scopes_supported)
    return orjson.dumps(document)
