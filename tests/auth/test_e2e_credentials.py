"""Credentials that are bad, doubled or in the wrong place, and a log that knows none of them."""

import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from tests.auth import office
from tests.auth.office import (
    METADATA_URL,
    PUBLIC_URL,
    RESOURCE,
    Headers,
    api_key,
    bearer,
    challenge,
    whoami,
)
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.issuer import Issuer, jws
from tests.support.server import ServerFactory, ServerProcess

KEY, TABLE = api_key("desk", scopes=["tools:read"])


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=RESOURCE) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: Issuer, module_server_factory: ServerFactory) -> ServerProcess:
    settings = office.config(
        issuer.settings(leeway_s=0), auth={"api_keys": [TABLE]}, logging={"level": "debug"}
    )
    return module_server_factory(office.TOOLS, settings)


def unsigned(issuer: Issuer, algorithm: str) -> str:
    return jws({"alg": algorithm, "typ": "at+jwt"}, claims_of(issuer), lambda _: b"")


def signed_with_public_key(issuer: Issuer) -> str:
    """By an algorithm for which whoever can verify can also sign."""
    key = issuer.keys[-1]
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.private.public_key().public_bytes(serialization.Encoding.PEM, form)
    header = {"alg": "HS256", "typ": "at+jwt", "kid": key.kid}
    return jws(header, claims_of(issuer), lambda data: hmac.digest(public, data, "sha256"))


def claims_of(issuer: Issuer) -> bytes:
    return json.dumps(issuer.claims()).encode("utf-8")


@rows(
    "headers",
    ("in lower case", lambda token: {"Authorization": f"bearer {token}"}),
    ("in upper case", lambda token: {"Authorization": f"BEARER {token}"}),
    ("in a header in lower case", lambda token: {"authorization": f"Bearer {token}"}),
    ("after two spaces", lambda token: {"Authorization": f"Bearer  {token}"}),
)
def test_a_good_token_may_be_spelt_in_other_ways(
    client: McpClient, issuer: Issuer, headers: Callable[[str], Headers]
) -> None:
    assert whoami(client, headers(issuer.token()))["subject"] == "alice"


@rows("headers", ("in its own header", {"X-API-Key": KEY}), ("as a token", bearer(KEY)))
def test_a_key_may_come_in_two_ways(client: McpClient, headers: Headers) -> None:
    seen = whoami(client, headers)
    assert (seen["issuer"], seen["subject"], seen["scopes"]) == ("api-key", "desk", ["tools:read"])


@rows(
    "made",
    ("AU-01 garbage", "garbage"),
    ("AU-01 three parts of garbage", "a.b.c"),
    ("AU-01 not UTF-8 within", "_w.-_8.gIA"),
    ("AU-07 expired", lambda issuer: issuer.token(exp=int(issuer.clock()) - 1)),
    ("not yet valid", lambda issuer: issuer.token(nbf=int(issuer.clock()) + 600)),
    ("AU-07 a bad signature", lambda issuer: issuer.token()[:-8] + "AAAAAAAA"),
    ("AU-06 another audience", lambda issuer: issuer.token(aud="https://other.example.com/mcp")),
    ("AU-06 no audience", lambda issuer: issuer.token(aud=None)),
    ("AU-06 another issuer", lambda issuer: issuer.token(iss="https://login.other.example.com")),
    ("AU-06 no issuer", lambda issuer: issuer.token(iss=None)),
    ("AU-06 an ID token", lambda issuer: issuer.token(aud="app", header={"typ": None})),
    ("AU-06 a logout token", lambda issuer: issuer.token(header={"typ": "logout+jwt"})),
    ("no subject", lambda issuer: issuer.token(sub=None)),
    ("no expiry", lambda issuer: issuer.token(exp=None)),
    ("AU-14 no signature", lambda issuer: unsigned(issuer, "none")),
    ("AU-14 no signature, otherwise written", lambda issuer: unsigned(issuer, "NonE")),
    ("AU-14 the public key as a secret", signed_with_public_key),
    ("an API key of nobody", api_key("nobody")[0]),
    ("another secret for a key that is known", api_key("desk")[0]),
    ("a key with more behind it", KEY + "A"),
    ("a key cut short", KEY[:-1]),
    ("the stored hash for the key", TABLE["hash"].removeprefix("sha256:")),
    ("a long token", "a" * 20_000),
    ("a long token in three parts", f"{'a' * 9000}.{'b' * 9000}.{'c' * 90}"),
)
def test_a_bad_token_is_refused_as_invalid(
    client: McpClient, issuer: Issuer, made: str | Callable[[Issuer], str]
) -> None:
    token = made if isinstance(made, str) else made(issuer)
    said = challenge(reply := client.call("whoami", {}, bearer(token)))
    assert reply.outcome == (401, -31401)
    assert said["error"] == "invalid_token"
    assert said["resource_metadata"] == METADATA_URL


def test_a_token_beyond_the_bound_of_headers_is_refused_before_it_is_read(
    client: McpClient, issuer: Issuer
) -> None:
    reply = client.call("whoami", {}, bearer("a" * 100_000))
    assert reply.outcome == (431, -31431)
    assert client.call("whoami", {}, bearer(issuer.token())).status == 200


@rows(
    "made, extra",
    ("a token and a key", lambda token: {**bearer(token), "X-API-Key": KEY}, ()),
    ("a key twice", {**bearer(KEY), "X-API-Key": KEY}, ()),
    ("two tokens", bearer, [("Authorization", "Bearer other")]),
    ("one token twice", bearer, "again"),
    ("a token and a broken one", bearer, [("authorization", "Bearer")]),
    ("a token and another scheme", bearer, [("Authorization", "Basic dTpw")]),
    ("two keys", {"X-API-Key": KEY}, [("x-api-key", KEY)]),
    ("no token after the scheme", {"Authorization": "Bearer"}, ()),
    ("two words", lambda token: {"Authorization": f"Bearer {token} {token}"}, ()),
    ("a comma", lambda token: {"Authorization": f"Bearer {token}, Basic x"}, ()),
    ("bytes beyond ASCII", {"Authorization": b"Bearer \xff\xfe"}, ()),
)
def test_what_is_malformed_or_said_twice_is_refused(
    client: McpClient, issuer: Issuer, made: Headers | Callable[[str], Headers], extra: Any
) -> None:
    token = issuer.token()
    lines = [("Authorization", f"Bearer {token}")] if extra == "again" else extra
    headers = made(token) if callable(made) else made
    reply = client.call("whoami", {}, headers, extra=lines)
    assert reply.outcome == (400, -32600)
    assert token not in str(reply.response)


@rows(
    "path, headers, status",
    ("AU-17 alone", "/mcp?access_token={}", None, 401),
    ("AU-17 among others", "/mcp?a=b&access_token={}&c=d", None, 401),
    ("AU-17 percent-encoded name", "/mcp?access%5Ftoken={}", None, 401),
    ("AU-17 beside a header", "/mcp?access_token={}", bearer, 400),
)
def test_a_token_in_the_query_is_refused(
    client: McpClient, issuer: Issuer, path: str, headers: Any, status: int
) -> None:
    token = issuer.token()
    own = headers(token) if headers else {}
    reply = client.call("whoami", {}, own, path=path.format(token))
    assert reply.status == status
    assert token not in str(reply.response)


# -- AU-16: the log -----------------------------------------------------------------------------


def pieces(secret: str, length: int = 8) -> set[str]:
    return {secret[at : at + length] for at in range(len(secret) - length + 1)}


def test_the_log_knows_no_token(client: McpClient, server: ServerProcess, issuer: Issuer) -> None:
    """Good, bad and malformed ones, in the header and in the query, of tools that fail."""
    tokens = [issuer.token(sub=f"logged-{number}") for number in range(6)]
    good, query, bad_audience, doubled, cut, failing = tokens
    bad_audience = issuer.token(aud="https://other.example.com")
    for tool in ("whoami", "give_up", "crash", "write_notes", "finance.pay"):
        client.call(tool, {}, bearer(failing))
        client.call(tool, {}, {"X-API-Key": KEY})
        client.call(tool, {}, bearer(KEY))
    client.call("whoami", {}, bearer(good))
    client.call("whoami", {}, path=f"/mcp?access_token={query}")
    client.call("whoami", {}, bearer(bad_audience))
    client.call("whoami", {}, bearer(doubled), extra=[("Authorization", f"Bearer {doubled}")])
    client.call("whoami", {}, bearer(cut[:-3]))
    client.call("whoami", {}, {"Authorization": f"Basic {good}"})
    client.get(f"/healthz?access_token={query}")
    client.get(f"/{good}")
    mark = server.log_mark()
    client.ask("server/discover", {}, {"X-API-Key": KEY})
    server.wait_for_log(lambda log: log.get("method") == "server/discover", after=mark)
    log = server.log_text()
    secrets = {token.rpartition(".")[2] for token in (*tokens, bad_audience)}
    secrets.add(KEY.removeprefix("mts_desk_"))
    assert not [piece for secret in secrets for piece in pieces(secret) if piece in log]
    assert not [token for token in tokens if token in log]
    assert "Bearer ey" not in log and KEY not in log
    assert json.dumps(TABLE["hash"]) not in log


def test_a_crash_tells_the_caller_nothing_of_its_claims(client: McpClient, issuer: Issuer) -> None:
    token = issuer.token(canary="swordfish")
    reply = client.call("crash", {}, bearer(token))
    assert reply.is_error
    assert "swordfish" not in str(reply.response) and PUBLIC_URL not in reply.text
