"""What strangers and browsers are told: where to begin, by URLs that nobody can forge."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.auth import office
from tests.auth.office import APP_ORIGIN, METADATA_URL, RESOURCE, Headers, api_key, challenge
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.issuer import Issuer
from tests.support.server import ServerFactory, ServerProcess

KEY, TABLE = api_key("desk", scopes=["tools:read"])
PREFLIGHT: Headers = {"Origin": APP_ORIGIN, "Access-Control-Request-Method": "POST"}
EVIL = "evil.test"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=RESOURCE) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: Issuer, module_server_factory: ServerFactory) -> ServerProcess:
    settings = office.config(issuer.settings(), auth={"api_keys": [TABLE]})
    return module_server_factory(office.TOOLS, settings)


# -- without a credential --------------------------------------------------------------


@rows(
    "method, params",
    ("AU-01 a call", "tools/call", {"name": "whoami", "arguments": {}}),
    ("AU-01 a call of nothing", "tools/call", {"name": "nothing", "arguments": {}}),
    ("AU-01 the list", "tools/list", {}),
    ("AU-01 discovery", "server/discover", {}),
    ("AU-01 listening", "subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    ("AU-01 an unknown method", "nobody/knows", {}),
)
def test_a_stranger_is_told_where_to_begin(
    client: McpClient, method: str, params: dict[str, Any]
) -> None:
    """AU-07: nothing was presented, so there is no `error`."""
    reply = client.ask(method, params)
    assert reply.outcome == (401, -31401)
    assert challenge(reply) == {"resource_metadata": METADATA_URL, "scope": "tools:read"}


@rows(
    "headers",
    ("another scheme", {"Authorization": "Basic dTpw"}),
    ("another scheme without credentials", {"Authorization": "Negotiate"}),
)
def test_another_scheme_is_no_credential(client: McpClient, headers: Headers) -> None:
    reply = client.call("whoami", {}, headers)
    assert reply.status == 401
    assert "error" not in challenge(reply)
    assert "Bearer" in reply.error["message"]


def test_a_stranger_learns_nothing_of_the_request_itself(client: McpClient) -> None:
    """Whatever else is wrong with it."""
    for how in (
        {"body": b"{"},
        {"headers": {"Mcp-Name": "x"}},
        {"headers": {"Content-Type": "text/plain"}},
    ):
        assert client.call("whoami", {}, **how).status == 401


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_both_spellings_of_the_path_are_guarded(client: McpClient, path: str) -> None:
    """RT-01: no redirect on which a client would drop its credential."""
    assert client.call("whoami", {}, path=path).status == 401
    assert client.call("whoami", {}, {"X-API-Key": KEY}, path=path).status == 200


def test_health_needs_no_credential(client: McpClient) -> None:
    assert client.get("/healthz").status == 200
    assert client.get("/readyz").status == 200


# -- AU-02: the configured URL always wins ------------------------------------------------


@rows(
    "headers",
    ("AU-02 as it is", {}),
    ("AU-02 an internal host", {"Host": "internal:8000"}),
    (
        "AU-02 forged",
        {"X-Forwarded-Host": EVIL, "X-Forwarded-Proto": "http", "X-Forwarded-Port": "1"},
    ),
    ("AU-02 forged by the standard", {"Forwarded": f"host={EVIL};proto=http"}),
    ("AU-02 forged otherwise", {"X-Original-Host": EVIL, "X-Forwarded-Server": EVIL}),
)
def test_only_the_configured_url_is_told(client: McpClient, headers: Headers) -> None:
    reply = client.call("whoami", {}, headers)
    assert challenge(reply)["resource_metadata"] == METADATA_URL
    found = client.get("/.well-known/oauth-protected-resource/mcp", headers)
    assert found.json()["resource"] == RESOURCE
    for response in (reply.response, found):
        assert EVIL not in str(response)


# -- AU-04: metadata ------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/mcp"])
def test_metadata_is_for_everybody(client: McpClient, issuer: Issuer, path: str) -> None:
    headers = {"Origin": "https://any.example.com"}
    response = client.get(f"/.well-known/oauth-protected-resource{path}", headers)
    assert (response.status, response.media_type) == (200, "application/json")
    assert response.header("access-control-allow-origin") in ("*", "https://any.example.com")
    said = response.json()
    assert said["resource"] == RESOURCE
    assert said["authorization_servers"] == [issuer.url]
    assert said["scopes_supported"] == ["tools:read"]
    assert said["bearer_methods_supported"] == ["header"]


@pytest.mark.parametrize("path", ["", "/mcp"])
def test_a_preflight_for_metadata_passes(client: McpClient, path: str) -> None:
    asked = {**PREFLIGHT, "Access-Control-Request-Method": "GET"}
    asked["Access-Control-Request-Headers"] = "mcp-protocol-version"
    response = client.get(f"/.well-known/oauth-protected-resource{path}", asked, http="OPTIONS")
    assert response.status == 204
    assert response.header("access-control-allow-origin") in ("*", APP_ORIGIN)
    assert "GET" in (response.header("access-control-allow-methods") or "")
    allowed = (response.header("access-control-allow-headers") or "").lower()
    assert allowed == "*" or "mcp-protocol-version" in allowed


@rows(
    "path",
    ("AU-04 of another path", "oauth-protected-resource/other"),
    ("AU-04 below ours", "oauth-protected-resource/mcp/more"),
    ("AU-04 an authorization server", "oauth-authorization-server"),
    ("AU-04 OpenID", "openid-configuration"),
    ("AU-04 nothing", ""),
)
def test_other_metadata_is_not_found_in_json(client: McpClient, path: str) -> None:
    response = client.get(f"/.well-known/{path}")
    assert (response.status, response.media_type) == (404, "application/json")
    assert response.json()["error"]["code"] == -31404


def test_there_is_no_metadata_without_an_issuer(server_factory: ServerFactory) -> None:
    settings = office.config(auth={"api_keys": [TABLE], "issuers": []})
    client = server_factory(office.TOOLS, settings).client
    assert client.get("/.well-known/oauth-protected-resource/mcp").status == 404
    reply = client.call("whoami", {})
    assert reply.status == 401
    assert "resource_metadata" not in (reply.header("www-authenticate") or "")
    assert client.call("whoami", {}, {"X-API-Key": KEY}).value["subject"] == "desk"


# -- CO: browsers -----------------------------------------------------------------------------

ASKED = (
    "authorization,content-type,accept,last-event-id,mcp-protocol-version,mcp-session-id,"
    "mcp-method,mcp-name,mcp-param-region,mcp-param-zzz,x-api-key"
)


def test_a_preflight_needs_no_credential(client: McpClient) -> None:
    """CO-01, CO-02: parameters of hidden tools are no exception, and those of nobody neither."""
    asked = {**PREFLIGHT, "Access-Control-Request-Headers": ASKED}
    response = client.get("/mcp", asked, http="OPTIONS")
    assert response.status == 204
    assert response.header("access-control-allow-origin") == APP_ORIGIN
    allowed = (response.header("access-control-allow-headers") or "").lower().split(",")
    assert set(ASKED.split(",")) <= {name.strip() for name in allowed}


def test_a_browser_may_read_the_challenge(client: McpClient) -> None:
    reply = client.call("whoami", {}, {"Origin": APP_ORIGIN})
    assert reply.status == 401
    assert reply.header("access-control-allow-origin") == APP_ORIGIN
    exposed = (reply.header("access-control-expose-headers") or "").lower()
    assert "www-authenticate" in exposed
