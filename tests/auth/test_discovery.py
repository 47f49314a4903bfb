"""Metadata of an authorization server."""

from typing import Any

import pytest

from app.auth.discovery import Metadata, MetadataRefused, metadata_urls, read_metadata
from tests.support.cases import rows

OAUTH, OPENID = ".well-known/oauth-authorization-server", ".well-known/openid-configuration"
ISSUER = "https://login.example.com"


@rows(
    "issuer, urls",
    (
        "a host",
        "https://a.example",
        (f"https://a.example/{OAUTH}", f"https://a.example/{OPENID}"),
    ),
    (
        "a slash at the end",
        "https://a.example/",
        (f"https://a.example/{OAUTH}", f"https://a.example/{OPENID}"),
    ),
    (
        "a path",
        "https://a.example:8443/realms/x",
        (
            f"https://a.example:8443/{OAUTH}/realms/x",
            f"https://a.example:8443/{OPENID}/realms/x",
            f"https://a.example:8443/realms/x/{OPENID}",
        ),
    ),
)
def test_where_metadata_is_looked_for(issuer: str, urls: tuple[str, ...]) -> None:
    assert metadata_urls(issuer) == urls


@pytest.mark.parametrize(
    "named", [ISSUER + "/", ISSUER.upper(), "https://evil.test", None, 7, [ISSUER]]
)
def test_metadata_that_names_another_issuer_is_refused(named: Any) -> None:
    with pytest.raises(MetadataRefused, match="another issuer"):
        read_metadata({"issuer": named, "jwks_uri": ISSUER + "/keys"}, ISSUER)


@rows(
    "url, issuer, safe",
    ("https", "https://keys.example.com/a?tenant=1", ISSUER, True),
    ("http", "http://login.example.com/keys", ISSUER, False),
    ("this machine for an issuer elsewhere", "http://127.0.0.1/keys", ISSUER, False),
    ("this machine", "http://127.0.0.1:9/keys", "http://localhost:9", True),
    ("elsewhere by http for this machine", "http://10.0.0.1/keys", "http://localhost:9", False),
    ("a file", "file:///etc/passwd", ISSUER, False),
    ("a user", "https://a:b@login.example.com/keys", ISSUER, False),
    ("a fragment", "https://login.example.com/keys#a", ISSUER, False),
    ("a path", "/keys", ISSUER, False),
    ("a broken port", "https://login.example.com:x/keys", ISSUER, False),
    ("no text", 7, ISSUER, False),
)
@pytest.mark.parametrize("name", ["jwks_uri", "introspection_endpoint"])
def test_only_safe_addresses_are_believed(url: Any, issuer: str, safe: bool, name: str) -> None:
    document = {"issuer": issuer, name: url}
    if safe:
        assert url in read_metadata(document, issuer)
        return
    with pytest.raises(MetadataRefused, match=f"{name} in its metadata is no https URL"):
        read_metadata(document, issuer)


def test_what_is_not_there_is_none() -> None:
    assert read_metadata({"issuer": ISSUER}, ISSUER) == Metadata(None, None)


@pytest.mark.parametrize("url", ["http://login.example.com/auth", "javascript:alert(1)", "", 7])
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_an_unsafe_address_of_the_login_is_as_good_as_none(url: Any, name: str) -> None:
    assert read_metadata({"issuer": ISSUER, name: url}, ISSUER) == Metadata(None, None)
