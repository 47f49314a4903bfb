"""Logging users in: what is asked of the issuer, and what of its answers proves something."""

import base64
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from app.auth.login import Attempt, Login, new_attempt
from app.auth.problems import IssuerUnavailable, Refused, UnusableFile
from app.settings import BrowserSettings, IssuerSettings
from tests.auth.desk import desk
from tests.support.cases import rows
from tests.support.issuer import Behaviour, Issuer, jws

BACK = "https://tools.example.com/elicit/callback"
CLIENT = "pages of: this & that"
ATTEMPT = Attempt("the-nonce", "the-verifier-of-forty-three-characters-or-so")
Json = Any


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@asynccontextmanager
async def login(
    issuer: Issuer, browser: Mapping[str, Json] | None = None, **settings: Json
) -> AsyncIterator[Login]:
    table = {"client_id": CLIENT, "client_secret": "s3cret / : ü", **(browser or {})}
    async with desk(issuers=[issuer.settings(browser=table, **settings)]) as authenticator:
        found = authenticator.login(issuer.url)
        assert found is not None
        yield found


def id_token(issuer: Issuer, *, header: Mapping[str, Json] | None = None, **claims: Json) -> str:
    usual = {"aud": CLIENT, "nonce": ATTEMPT.nonce}
    return issuer.token(header={"typ": "JWT", **(header or {})}, **{**usual, **claims})


async def subject(issuer: Issuer, found: Login, named: str | None = None) -> str:
    return await found.subject(ATTEMPT, code="the-code", named=named, redirect_uri=BACK)


def test_attempts_are_never_the_same() -> None:
    attempts = [new_attempt() for _ in range(100)]
    assert len({each.nonce for each in attempts} | {each.verifier for each in attempts}) == 200
    # RFC 7636, section 4.1: 43 to 128 characters.
    assert all(43 <= len(each.verifier) <= 128 for each in attempts)


async def test_a_browser_is_sent_with_all_that_the_answer_is_known_by(issuer: Issuer) -> None:
    issuer.metadata["authorization_endpoint"] = f"{issuer.origin}/authorize?realm=one"
    async with login(issuer, {"scopes": ["openid", "profile"]}) as found:
        url = await found.address(ATTEMPT, state="the-state", redirect_uri=BACK)
    query = {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}
    digest = hashlib.sha256(ATTEMPT.verifier.encode()).digest()
    assert query == {
        "realm": "one",
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": BACK,
        "scope": "openid profile",
        "state": "the-state",
        "nonce": ATTEMPT.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    assert ATTEMPT.verifier not in url


async def test_a_code_is_redeemed_with_verifier_and_secret(issuer: Issuer) -> None:
    issuer.id_token = id_token(issuer)
    async with login(issuer) as found:
        assert await subject(issuer, found, issuer.url) == "alice"
    (form,) = issuer.redeemed
    pair = base64.b64encode(b"pages+of%3A+this+%26+that:s3cret+%2F+%3A+%C3%BC").decode()
    assert form == {
        "grant_type": "authorization_code",
        "code": "the-code",
        "redirect_uri": BACK,
        "code_verifier": ATTEMPT.verifier,
        "authorization": f"Basic {pair}",
    }


async def test_a_public_client_says_who_it_is(issuer: Issuer) -> None:
    issuer.id_token = id_token(issuer)
    async with login(issuer, {"client_secret": None}) as found:
        assert await subject(issuer, found) == "alice"
    (form,) = issuer.redeemed
    assert (form["client_id"], form["authorization"]) == (CLIENT, "")


async def test_the_subject_is_read_from_where_that_of_callers_is(issuer: Issuer) -> None:
    issuer.id_token = id_token(issuer, oid="object-7", sub="of this client alone")
    async with login(issuer, claims={"subject": "oid"}) as found:
        assert await subject(issuer, found) == "object-7"
    async with login(issuer, {"subject": "sub"}, claims={"subject": "uid"}) as found:
        assert await subject(issuer, found) == "of this client alone"


@rows(
    "claims",
    ("another nonce", {"nonce": "another"}),
    ("no nonce", {"nonce": None}),
    ("a nonce that is no text", {"nonce": ["the-nonce"]}),
    ("for the server as a resource", {"aud": "http://127.0.0.1:8000/mcp"}),
    ("for nobody", {"aud": None}),
    ("for an odd audience", {"aud": {"x": CLIENT}}),
    ("for several, and no party", {"aud": [CLIENT, "other"]}),
    ("for several, and another party", {"aud": [CLIENT, "other"], "azp": "other"}),
    ("another party", {"azp": "other"}),
    ("another issuer", {"iss": "https://evil.example.com"}),
    ("expired", {"exp": 1_000_000}),
    ("without end", {"exp": None}),
    ("from the future", {"iat": 99_999_999_999}),
    ("about nobody", {"sub": None}),
    ("about an empty name", {"sub": ""}),
    ("about a number", {"sub": 7}),
    ("about a long name", {"sub": "x" * 2000}),
)
async def test_an_id_token_that_proves_nothing_is_refused(
    issuer: Issuer, claims: dict[str, Json]
) -> None:
    issuer.id_token = id_token(issuer, **claims)
    async with login(issuer) as found:
        with pytest.raises(Refused):
            await subject(issuer, found)


async def test_a_token_for_several_counts_where_this_server_is_the_party(issuer: Issuer) -> None:
    issuer.id_token = id_token(issuer, aud=["other", CLIENT], azp=CLIENT)
    async with login(issuer) as found:
        assert await subject(issuer, found) == "alice"


@rows(
    "make",
    ("not signed", lambda _: jws({"alg": "none"}, b"{}", lambda data: data[:0])),
    ("an access token", lambda i: id_token(i, header={"typ": "at+jwt"})),
    ("an unknown key", lambda i: id_token(i, header={"kid": "unknown"})),
    ("another algorithm", lambda i: id_token(i, header={"alg": "HS256"})),
    ("altered", lambda i: id_token(i)[:-8] + "AAAAAAAA"),
    ("too long", lambda i: id_token(i, more="x" * 20_000)),
    ("no token", lambda _: "not-a-token"),
    ("empty", lambda _: ""),
    ("not ASCII", lambda _: "ä.b.c"),
    ("no text", lambda _: {"a": 1}),
    ("a huge header", lambda i: id_token(i, header={"x": "y" * 8000})),
)
async def test_what_is_no_id_token_of_the_issuer_is_refused(issuer: Issuer, make: Any) -> None:
    issuer.id_token = make(issuer)
    async with login(issuer) as found:
        with pytest.raises(Refused):
            await subject(issuer, found)


async def test_a_code_that_the_issuer_does_not_take_is_refused(issuer: Issuer) -> None:
    async with login(issuer) as found:
        with pytest.raises(Refused, match="did not take the code"):
            await subject(issuer, found)


@pytest.mark.parametrize("named", ["https://evil.example.com", "", "http://127.0.0.1"])
async def test_a_code_is_not_shown_to_an_issuer_that_did_not_make_it(
    issuer: Issuer, named: str
) -> None:
    issuer.id_token = id_token(issuer)
    async with login(issuer) as found:
        with pytest.raises(Refused, match="another issuer"):
            await subject(issuer, found, named)
    assert issuer.redeemed == []


async def test_an_issuer_that_names_itself_must_do_so(issuer: Issuer) -> None:
    issuer.metadata["authorization_response_iss_parameter_supported"] = True
    issuer.id_token = id_token(issuer)
    async with login(issuer) as found:
        with pytest.raises(Refused, match="another issuer"):
            await subject(issuer, found)
        assert await subject(issuer, found, issuer.url) == "alice"


@pytest.mark.parametrize(
    "behaviour",
    [
        *(Behaviour.DROP, Behaviour.HANG, Behaviour.ERROR, Behaviour.NOT_FOUND),
        *(Behaviour.REDIRECT, Behaviour.HUGE, Behaviour.HTML, Behaviour.NO_OBJECT),
    ],
)
async def test_an_issuer_that_does_not_answer_is_no_proof(
    issuer: Issuer, behaviour: Behaviour
) -> None:
    issuer.behave(behaviour, "token")
    async with login(issuer, timeout_s=0.3) as found:
        with capture_logs() as logs, pytest.raises(IssuerUnavailable):
            await subject(issuer, found)
    (line,) = [line for line in logs if line["event"] == "login_unavailable"]
    assert "the-code" not in str(line) and ATTEMPT.verifier not in str(line)


@pytest.mark.parametrize("url", [None, "http://login.example.com/x", "javascript:alert(1)", 7])
async def test_a_login_needs_safe_addresses(issuer: Issuer, url: Json) -> None:
    issuer.metadata |= {"authorization_endpoint": url, "token_endpoint": url}
    async with login(issuer) as found:
        with pytest.raises(IssuerUnavailable):
            await found.address(ATTEMPT, state="s", redirect_uri=BACK)
        with pytest.raises(IssuerUnavailable):
            await subject(issuer, found)


async def test_addresses_may_be_configured(issuer: Issuer) -> None:
    issuer.id_token = id_token(issuer)
    issuer.metadata |= {"authorization_endpoint": None, "token_endpoint": None}
    urls = {
        "authorization_url": f"{issuer.origin}/elsewhere",
        "token_url": f"{issuer.origin}/token",
    }
    for how in ({}, {"discovery": False, "jwks_url": issuer.jwks_url}):
        async with login(issuer, urls, **how) as found:
            url = await found.address(ATTEMPT, state="s", redirect_uri=BACK)
            assert url.startswith(f"{issuer.origin}/elsewhere?")
            assert await subject(issuer, found) == "alice"


async def test_a_secret_may_stand_in_a_file(issuer: Issuer, tmp_path: Any) -> None:
    file = tmp_path / "secret"
    table = {"client_secret": None, "client_secret_file": str(file)}
    with pytest.raises(UnusableFile, match="cannot be read"):
        async with login(issuer, table):
            pass
    file.write_text("from-a-file\n", "utf-8")
    issuer.id_token = id_token(issuer)
    async with login(issuer, table) as found:
        await subject(issuer, found)
    decoded = base64.b64decode(issuer.redeemed[0]["authorization"].removeprefix("Basic "))
    assert decoded.endswith(b":from-a-file")


@rows(
    "table, problem",
    ("no openid", {"client_id": "a", "scopes": ["profile"]}, "openid"),
    ("no client", {"client_id": ""}, "client_id"),
    (
        "two secrets",
        {"client_id": "a", "client_secret": "x", "client_secret_file": "y"},
        "keep one",
    ),
    ("an unsafe address", {"client_id": "a", "token_url": "http://a.example/t"}, "https"),
)
def test_settings_that_cannot_be_right_are_refused(table: dict[str, Json], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BrowserSettings.model_validate(table)


def test_without_discovery_a_login_needs_its_addresses() -> None:
    issuer = {
        "issuer": "https://login.example.com",
        "discovery": False,
        "jwks_url": "https://login.example.com/keys",
        "browser": {"client_id": "a", "token_url": "https://login.example.com/token"},
    }
    with pytest.raises(ValueError, match="authorization_url and token_url"):
        IssuerSettings.model_validate(issuer)
