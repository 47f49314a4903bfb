"""Metadata of an authorization server: where it may be, and what of it may be believed.

Sources: RFC 8414, sections 3 and 3.3; OpenID Connect Discovery 1.0, section 4; Authorization,
"Authorization Server Metadata Discovery" (the order of the addresses).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.settings import is_loopback_host


class MetadataRefused(ValueError):
    """It must not be used; the message says why, without its words."""


class Metadata(NamedTuple):
    """What this server needs of it.

    Attributes:
        names_itself: Whether it says who it is when it sends a browser back (RFC 9207).
    """

    jwks_url: str | None
    introspection_url: str | None
    authorization_url: str | None = None
    token_url: str | None = None
    names_itself: bool = False


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where metadata of an issuer may be, the likeliest first."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return tuple(
        dict.fromkeys(
            (
                f"{origin}/.well-known/oauth-authorization-server{path}",
                f"{origin}/.well-known/openid-configuration{path}",
                f"{origin}{path}/.well-known/openid-configuration",
            )
        )
    )


def read_metadata(document: Mapping[str, Any], issuer: str) -> Metadata:
    """The addresses in a metadata document.

    Raises:
        MetadataRefused: It is of another issuer: whoever can plant such a document could have
            its own keys believed (RFC 8414, section 3.3). Or an address is not safe.
    """
    if document.get("issuer") != issuer:
        raise MetadataRefused("its metadata names another issuer")
    return Metadata(
        _address(document, "jwks_uri", issuer),
        _address(document, "introspection_endpoint", issuer),
        _address_if_safe(document, "authorization_endpoint", issuer),
        _address_if_safe(document, "token_endpoint", issuer),
        document.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(document: Mapping[str, Any], name: str, issuer: str) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str) and _is_safe(value, issuer):
        return value
    raise MetadataRefused(f"{name} in its metadata is no https URL")


def _address_if_safe(document: Mapping[str, Any], name: str, issuer: str) -> str | None:
    """An address that tokens can be checked without: an unsafe one is as good as none."""
    value = document.get(name)
    return value if isinstance(value, str) and _is_safe(value, issuer) else None


def _is_safe(url: str, issuer: str) -> bool:
    """https; or http on this machine for an issuer that is on it as well."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment:
        return False
    local = is_loopback_host(host) and urlsplit(issuer).scheme == "http"
    return parts.scheme == "https" or (parts.scheme == "http" and local)
