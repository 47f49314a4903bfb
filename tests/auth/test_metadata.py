"""Where a client gets a token for this server."""

from typing import Any

import orjson

from app.auth.metadata import metadata_paths, metadata_url, resource_metadata
from app.settings import Settings
from tests.support.cases import rows

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def _settings(public_url: str = "https://tools.example.com", **more: Any) -> Settings:
    issuers = [{"issuer": "https://login.example.com/"}, {"issuer": "https://b.example"}]
    auth = {"issuers": issuers, **more.pop("auth", {})}
    return Settings.model_validate({"server": {"public_url": public_url, **more}, "auth": auth})


def test_the_document_says_what_the_settings_say() -> None:
    settings = _settings(title="Tools of Acme", auth={"scopes_supported": ["a", "b"]})
    assert orjson.loads(resource_metadata(settings) or b"") == {
        "resource": "https://tools.example.com/mcp",
        "resource_name": "Tools of Acme",
        "authorization_servers": ["https://login.example.com/", "https://b.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["a", "b"],
    }


def test_what_is_not_set_is_left_out() -> None:
    document = orjson.loads(resource_metadata(_settings()) or b"")
    assert "scopes_supported" not in document
    assert document["resource_name"] == "mcp-tool-server"


@rows(
    "public_url, url, paths",
    (
        "a host",
        "https://a.example",
        f"https://a.example{WELL_KNOWN}/mcp",
        (WELL_KNOWN, WELL_KNOWN + "/mcp"),
    ),
    (
        "a path",
        "https://a.example/base/",
        f"https://a.example{WELL_KNOWN}/base/mcp",
        (WELL_KNOWN, WELL_KNOWN + "/mcp", WELL_KNOWN + "/base/mcp"),
    ),
)
def test_where_it_is(public_url: str, url: str, paths: tuple[str, ...]) -> None:
    assert metadata_url(_settings(public_url)) == url
    assert metadata_paths(_settings(public_url)) == paths


def test_without_an_issuer_there_is_none() -> None:
    settings = Settings.model_validate({"auth": {"api_keys": []}})
    assert metadata_url(settings) is None
    assert metadata_paths(settings) == ()
    assert resource_metadata(settings) is None
