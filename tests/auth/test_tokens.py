"""Tokens that count, and every way in which one does not."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from structlog.testing import capture_logs

from app.auth.authenticator import Authenticator
from app.auth.problems import Refused
from app.auth.tokens import MAX_CONTAINERS, MAX_HEADER, MAX_TOKEN_BYTES, read_unverified
from app.protocol.headers import HeaderMap
from tests.auth.desk import accepted, challenge_of, desk, refusal_of
from tests.support.cases import rows
from tests.support.issuer import RESOURCE, Issuer, SigningKey, encoded, jws

Make = Callable[[Issuer], str]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """One with an RSA and an EC key, and another that is nobody's."""
    with Issuer() as issuer:
        issuer.add_key("ES256", kid="elliptic")
        issuer.add_key("RS256", kid="main")
        yield issuer


@pytest.fixture
async def authenticator(issuer: Issuer) -> AsyncIterator[Authenticator]:
    table = issuer.settings(audiences=["api://tools"], algorithms=["RS256", "ES256"])
    async with desk(issuers=[table]) as authenticator:
        yield authenticator


def _hmac(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda data: hmac.new(secret, data, hashlib.sha256).digest()


def _forged(issuer: Issuer, header: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    return jws(header, json.dumps(issuer.claims()).encode(), sign)


def _public_pem(issuer: Issuer) -> bytes:
    key = issuer.keys[-1].private.public_key()
    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _changed(token: str, part: int, **claims: Any) -> str:
    parts = token.split(".")
    raw = parts[part] + "=" * (-len(parts[part]) % 4)
    members = json.loads(base64.urlsafe_b64decode(raw))
    parts[part] = encoded(json.dumps(members | claims).encode())
    return ".".join(parts)


def _deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def _foreign(kid: str) -> SigningKey:
    return SigningKey("RS256", kid, 99)


@rows(
    "make",
    ("as issued", lambda i: i.token()),
    ("signed with the other kind of key", lambda i: i.token(key=i.keys[1])),
    ("typ JWT", lambda i: i.token(header={"typ": "JWT"})),
    ("typ in another case", lambda i: i.token(header={"typ": "AT+jwt"})),
    ("typ in its long form", lambda i: i.token(header={"typ": "application/at+jwt"})),
    ("no typ", lambda i: i.token(header={"typ": None})),
    ("no kid, one fitting key", lambda i: i.token(key=i.keys[1], header={"kid": None})),
    ("audience with a slash", lambda i: i.token(aud=RESOURCE + "/")),
    ("audience among others", lambda i: i.token(aud=["x", RESOURCE])),
    ("audience by name", lambda i: i.token(aud="api://tools")),
    ("expired within the leeway", lambda i: i.token(exp=i.clock() - 20)),
    ("no jti, no iat", lambda i: i.token(jti=None, iat=None)),
    ("exp with fractions", lambda i: i.token(exp=i.clock() + 60.5)),
    ("a header that brings a key along", lambda i: i.token(header={"jwk": _foreign("x").jwk})),
    ("a long token", lambda i: i.token(pad="x" * 8000)),
    ("a header with a certificate", lambda i: i.token(header={"x5c": ["x" * 2800]})),
    ("many roles of many clients", lambda i: i.token(access=[{"roles": ["a"]}] * 400)),
)
async def test_a_token_that_counts(
    authenticator: Authenticator, issuer: Issuer, make: Make
) -> None:
    principal = await accepted(authenticator, make(issuer))
    assert principal.identity == (issuer.url, "alice")
    assert principal.claims["sub"] == "alice"


@rows(
    "make, said",
    ("expired", lambda i: i.token(exp=i.clock() - 31), "expired"),
    ("not valid yet", lambda i: i.token(nbf=i.clock() + 60), "not valid yet"),
    ("issued in the future", lambda i: i.token(iat=i.clock() + 60), "in the future"),
    ("no exp", lambda i: i.token(exp=None), "no exp"),
    ("exp as text", lambda i: i.token(exp="9999999999"), "exp is not a number"),
    ("no aud", lambda i: i.token(aud=None), "aud"),
    ("aud of another service", lambda i: i.token(aud="https://other.example/mcp"), "aud"),
    ("aud of a client, as an ID token has", lambda i: i.token(aud="my-client"), "aud"),
    ("aud with a number", lambda i: i.token(aud=[RESOURCE, 1]), "aud"),
    ("no sub", lambda i: i.token(sub=None), "who the caller is"),
    ("iss of another", lambda i: i.token(iss="https://login.example.com"), "issuer"),
    ("iss with a slash more", lambda i: i.token(iss=i.url + "/"), "issuer"),
    ("no iss", lambda i: i.token(iss=None), "issuer"),
    ("iss as a list", lambda i: i.token(iss=[i.url]), "issuer"),
    ("jti as a number", lambda i: i.token(jti=7), "jti"),
    ("typ of a logout token", lambda i: i.token(header={"typ": "logout+jwt"}), "typ"),
    ("typ as a number", lambda i: i.token(header={"typ": 1}), "typ"),
    ("crit", lambda i: i.token(header={"crit": ["exp"], "exp": 1}), "crit"),
    ("crit that the library knows", lambda i: i.token(header={"crit": ["b64"], "b64": 1}), "crit"),
    ("an empty crit", lambda i: i.token(header={"crit": []}), "crit"),
    ("b64 false", lambda i: i.token(header={"b64": False}), "crit"),
    ("kid as a number", lambda i: i.token(header={"kid": 7}), "kid"),
    ("an endless kid", lambda i: i.token(header={"kid": "x" * 600}), "kid"),
    ("an unknown kid", lambda i: i.token(header={"kid": "../../keys"}), "does not publish"),
    ("no kid, two fitting keys", lambda i: i.token(header={"kid": None}), "which key"),
    ("alg none", lambda i: _forged(i, {"alg": "none", "kid": "main"}, lambda _: b""), "algorithm"),
    ("alg None", lambda i: _forged(i, {"alg": "None", "kid": "main"}, lambda _: b"x"), "algorithm"),
    (
        "HS256 with the public key as the secret",
        lambda i: _forged(i, {"alg": "HS256", "kid": "main"}, _hmac(_public_pem(i))),
        "algorithm",
    ),
    ("HS256 with nothing", lambda i: _forged(i, {"alg": "HS256"}, _hmac(b"")), "algorithm"),
    ("alg not allowed", lambda i: i.token(header={"alg": "RS512"}), "algorithm"),
    ("alg as a list", lambda i: i.token(header={"alg": ["RS256"]}), "algorithm"),
    ("RS256 under an EC key", lambda i: i.token(header={"kid": "elliptic"}), "key it names"),
    (
        "ES256 under an RSA key",
        lambda i: i.token(key=i.keys[1], header={"kid": "main"}),
        "key it names",
    ),
    ("another's signature", lambda i: i.token(key=_foreign("main")), "signature"),
    (
        "another's signature, with the key in the header",
        lambda i: i.token(key=_foreign("main"), header={"jwk": _foreign("main").jwk}),
        "signature",
    ),
    (
        "another's signature, with its address in the header",
        lambda i: i.token(
            key=_foreign("evil"), header={"jku": i.jwks_url, "x5u": i.jwks_url, "x5c": ["x"]}
        ),
        "does not publish",
    ),
    ("claims changed", lambda i: _changed(i.token(), 1, sub="root"), "signature"),
    ("header changed", lambda i: _changed(i.token(), 0, typ="JWT"), "signature"),
    ("signature cut off", lambda i: i.token().rpartition(".")[0] + ".", "signature"),
    ("signature cut short", lambda i: i.token()[:-8], "signature"),
    ("too long", lambda i: i.token(pad="x" * MAX_TOKEN_BYTES), "too long"),
    ("a long header", lambda i: i.token(header={"x5c": ["x" * MAX_HEADER]}), "header is too long"),
    ("claims that are deep", lambda i: i.token(deep=_deep(500)), "nested too deeply"),
    (
        "claims full of lists",
        lambda i: i.token(lists=[[]] * MAX_CONTAINERS),
        "too many lists and objects",
    ),
    ("no token", lambda _: "garbage", "not a JSON Web Token"),
    ("five parts, as encrypted ones have", lambda i: i.token() + ".a.b", "not a JSON Web Token"),
    ("a header that is a list", lambda _: f"{encoded(b'[1]')}.{encoded(b'{}')}.eA", "not a JSON"),
    ("claims that are a list", lambda _: f"{encoded(b'{}')}.{encoded(b'[]')}.eA", "not a JSON"),
    ("an unknown API key", lambda _: "mts_a_" + "x" * 43, "API key is not known"),
)
async def test_a_token_that_does_not_count(
    authenticator: Authenticator, issuer: Issuer, make: Make, said: str
) -> None:
    token = make(issuer)
    with capture_logs() as lines:
        refusal = await refusal_of(authenticator, token)
    assert refusal.http_status == 401
    challenge = challenge_of(refusal)
    assert challenge["error"] == "invalid_token"
    assert challenge["resource_metadata"].endswith("/.well-known/oauth-protected-resource/mcp")
    assert said in challenge["error_description"] == refusal.message
    # Neither the answer nor the log has a piece of it.
    shown = refusal.message + str(refusal.headers) + str(lines)
    assert not [part for part in token.split(".") if len(part) > 7 and part[:8] in shown]
    assert "alice" not in shown
    assert len(authenticator.remembered) == 0


async def test_no_credential_is_no_error(authenticator: Authenticator) -> None:
    bare = await refusal_of(authenticator, HeaderMap([]))
    other = await refusal_of(authenticator, HeaderMap([(b"authorization", b"Basic abc")]))
    for refusal in (bare, other):
        assert refusal.http_status == 401
        assert "error" not in challenge_of(refusal)
    assert "send Bearer" in other.message


@rows(
    "lines, query, status, error",
    (
        "two credentials",
        [(b"authorization", b"Bearer a"), (b"x-api-key", b"b")],
        b"",
        400,
        "request",
    ),
    ("malformed", [(b"authorization", b"Bearer")], b"", 400, "request"),
    ("in the query", [], b"access_token=secret-token", 401, "token"),
)
async def test_credentials_in_the_wrong_place(
    authenticator: Authenticator, lines: Any, query: bytes, status: int, error: str
) -> None:
    refusal = await refusal_of(authenticator, HeaderMap(lines), query)
    assert refusal.http_status == status
    assert challenge_of(refusal)["error"] == f"invalid_{error}"
    assert "secret-token" not in refusal.message + str(refusal.headers)
    with pytest.raises(type(refusal)):
        authenticator.known(HeaderMap(lines), query)


@pytest.mark.parametrize("token", [b"", b".", b"..", b"a.b.c", b"\xff.b.c", b"e30.e30.", b"a" * 9])
def test_what_is_no_jwt(token: bytes) -> None:
    assert read_unverified(token) is None


def test_a_header_of_any_depth_ends_no_process() -> None:
    deep = encoded(b'{"alg":' + b"[" * 1400 + b"]" * 1400 + b"}")
    with pytest.raises(Refused):
        read_unverified(f"{deep}.{encoded(b'{}')}.".encode())
    cut = encoded(b'{"alg":' + b"[" * 990)
    assert read_unverified(f"{cut}.{encoded(b'{}')}.".encode()) is None
