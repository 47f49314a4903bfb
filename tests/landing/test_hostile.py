"""Other people's browsers, made-up links and logins, and whatever else is sent to a page."""

import secrets
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from tests.asking.rounds import questions
from tests.landing.browser import Browser, Call, filled, token_of
from tests.landing.conftest import TOOLS, start
from tests.support.cases import rows
from tests.support.identity import IdentityProvider
from tests.support.server import ServerFactory, ServerProcess
from tests.support.waiting import eventually

Begin = Callable[..., Call]
CALLBACK = "/elicit/callback"
PUBLIC = "https://tools.example.com"
POLICY = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}


def guarded(response: httpx2.Response) -> None:
    """Every answer to a browser lets nothing in and nothing out."""
    for name, value in POLICY.items():
        assert response.headers[name] == value, name
    policy = dict(
        part.strip().split(" ", 1)
        for part in response.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["style-src"].startswith("'sha256-") and "unsafe" not in str(policy)
    assert policy.keys() == {
        *("default-src", "style-src", "form-action", "base-uri", "frame-ancestors")
    }


# -- other people -------------------------------------------------------------


def test_another_user_is_refused_and_never_sees_the_form(
    call: Begin, alice: Browser, bob: Browser, server: ServerProcess
) -> None:
    connecting = call("connect", service="the secret plan")
    url = connecting.url()
    mark = server.log_mark()
    refused = bob.open(url)
    assert refused.status_code == 403 and "made for another user" in refused.text
    guarded(refused)
    for text in ("<form", "alice", "bob", "secret plan", "connect"):
        assert text not in refused.text
    line = server.wait_for_log(lambda log: log["event"] == "page_refused", after=mark)
    assert (line["tool"], line["subject"]) == ("connect", "bob")
    # Without a login there is no way around the page, either.
    assert bob.send(url, **filled()).status_code == 403
    assert [name for name in bob.client.cookies if name.startswith("elicit")] == []
    # And the link is still alice's.
    assert alice.open(url).status_code == 200


def test_a_login_cannot_be_finished_in_another_browser(
    call: Begin, alice: Browser, bob: Browser
) -> None:
    """Alice has Bob enter his password on her page: the phishing of the specification, reversed."""
    url = call().url()
    back = alice.open(url, until=CALLBACK).headers["location"]
    lured = bob.client.get(back)
    assert lured.status_code == 400 and "not begun in this browser" in lured.text
    guarded(lured)
    # Nor in one that has begun a login for the same page.
    bob.open(url, until=CALLBACK)
    assert bob.client.get(back).status_code == 400
    assert bob.client.get(url).is_redirect, "not logged in"
    assert alice.client.get(back).is_redirect


def test_a_session_is_good_for_one_page(call: Begin, alice: Browser) -> None:
    one, other = call().url(), call().url()
    page = alice.open(one)
    sent = alice.send(other, page, **filled())
    assert sent.status_code == 403
    (name,) = (name for name in alice.client.cookies if name.startswith("elicit"))
    stolen = alice.client.cookies[name]
    first = alice.client.get(other)  # its own name of a cookie
    other_name = next(iter(SimpleCookie(first.headers["set-cookie"])))
    plain = httpx2.get(other, headers={"cookie": f"{other_name}={stolen}"})
    assert plain.is_redirect, "it must ask for a login"


# -- links ----------------------------------------------------------------------


def test_a_link_is_good_once(call: Begin, alice: Browser) -> None:
    url = call().url()
    page = alice.open(url)
    jar = alice.client.cookies.jar
    kept = {"cookie": "; ".join(f"{each.name}={each.value}" for each in jar)}
    assert alice.send(url, page, **filled()).status_code == 200
    unknown = httpx2.get(url[:-43] + "A" * 43)
    # As if the browser had kept everything.
    form = {"_token": token_of(page), **filled(user="eve")}
    again = [httpx2.get(url, headers=kept), httpx2.post(url, data=form, headers=kept)]
    for answer in (*again, unknown):
        guarded(answer)
        assert (answer.status_code, answer.text) == (404, unknown.text)


def test_the_first_of_two_forms_counts(call: Begin, alice: Browser) -> None:
    connecting = call()
    url = connecting.url()
    page = alice.open(url)
    assert alice.send(url, page, **filled(user="first")).status_code == 200
    assert alice.send(url, page, **filled(user="second")).status_code == 404
    assert connecting.again().value["user"] == "first"


def test_time_ends_a_link(
    provider: IdentityProvider, server_factory: ServerFactory, alice: Browser
) -> None:
    execution = {"ask_ttl_s": 1}
    browser = provider.browser_settings()
    server = start(server_factory, provider, browser=browser, execution=execution)
    token = provider.log_in("alice", resource=f"http://127.0.0.1:{server.port}/mcp").access
    url = Call(server, token, "connect").url()
    alice.open(url)
    eventually(lambda: alice.client.get(url).status_code == 404, "the end of the link")
    assert "<form" not in alice.client.get(url).text


@pytest.mark.parametrize(
    "handle",
    [
        "A" * 43,
        "A" * 42,
        "x",
        "%00",
        "..%2f..%2fetc",
        "A" * 4000,
        "%F0%9F%98%80",
        "callback%3f",
        "'",
    ],
)
def test_made_up_links_lead_nowhere(server: ServerProcess, handle: str) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{server.port}/elicit/{handle}")
    assert answer.status_code == 404 and "set-cookie" not in answer.headers


@rows(
    "host, status",
    ("our own", None, 303),
    ("somebody's", "evil.example.com", 421),
    ("none", "", 421),
)
def test_the_host_must_be_ours(call: Begin, host: str | None, status: int) -> None:
    headers = {} if host is None else {"host": host}
    answer = httpx2.get(call().url(), headers=headers)
    assert answer.status_code == status and (status == 303 or "location" not in answer.headers)


# -- logins -----------------------------------------------------------------------


def test_the_browser_is_sent_to_the_issuer_with_nothing_to_guess_or_reuse(
    call: Begin, alice: Browser, provider: IdentityProvider
) -> None:
    url = call().url()
    first, second = (alice.client.get(url) for _ in range(2))
    guarded(first)
    query = parse_qs(urlsplit(first.headers["location"]).query)
    assert first.headers["location"].startswith(f"{provider.issuer}/auth?")
    assert urlsplit(url).path.rpartition("/")[2] not in first.headers["location"]
    for name in ("state", "nonce", "code_challenge"):
        other = parse_qs(urlsplit(second.headers["location"]).query)
        assert query[name] != other[name] and len(query[name][0]) >= 32
    cookie = SimpleCookie(first.headers["set-cookie"])
    (morsel,) = cookie.values()
    assert morsel["httponly"] and morsel["samesite"] == "lax" and morsel["path"] == "/elicit"
    assert not morsel["secure"] and int(morsel["max-age"]) <= 600


@rows(
    "change",
    ("no state", {"state": None}),
    ("another state", {"state": "0" * 16 + "." + "0" * 48}),
    ("an odd state", {"state": "../../" + "0" * 48}),
    ("two states", {"state": ["a", "b"]}),
)
def test_a_login_needs_its_state(call: Begin, alice: Browser, change: dict[str, Any]) -> None:
    url = call().url()
    back = alice.open(url, until=CALLBACK).headers["location"]
    answer = alice.client.get(_changed(back, change))
    assert answer.status_code == 400 and "not begun in this browser" in answer.text
    guarded(answer)


@rows(
    "change",
    ("no code", {"code": None}),
    ("a made-up code", {"code": "made-up"}),
    ("a huge code", {"code": "x" * 20_000}),
    ("two codes", {"code": ["a", "b"]}),
    ("a refusal", {"code": None, "error": "access_denied", "error_description": "<script>"}),
    ("another issuer", {"iss": "https://evil.example.com"}),
    ("no issuer, though it names itself", {"iss": None}),
)
def test_a_login_that_proves_nothing_is_refused(
    call: Begin, alice: Browser, server: ServerProcess, change: dict[str, Any]
) -> None:
    url = call().url()
    back = alice.open(url, until=CALLBACK).headers["location"]
    mark = server.log_mark()
    answer = alice.client.get(_changed(back, change))
    assert (answer.status_code, "The login failed" in answer.text) == (403, True)
    guarded(answer)
    assert "<script" not in answer.text
    server.wait_for_log(lambda log: log["event"] == "login_refused", after=mark)
    # The attempt is over: its own code is of no use any more.
    assert alice.client.get(back).status_code == 400
    assert alice.open(url).status_code == 200, "and another one may succeed"


def test_a_code_of_another_login_is_refused(call: Begin, alice: Browser, bob: Browser) -> None:
    """Wrong verifier and wrong nonce: a code is good for the browser that asked for it."""
    url = call().url()
    stolen = alice.open(url, until=CALLBACK).headers["location"]
    own = bob.open(url, until=CALLBACK).headers["location"]
    code = parse_qs(urlsplit(stolen).query)["code"]
    assert bob.client.get(_changed(own, {"code": code})).status_code == 403
    assert bob.client.get(url).is_redirect


@pytest.mark.parametrize("where", ["begin", "middle", "end"])
def test_a_cookie_that_was_changed_opens_nothing(call: Begin, alice: Browser, where: str) -> None:
    url = call().url()
    page = alice.open(url)
    (name,) = (name for name in alice.client.cookies if name.startswith("elicit"))
    value = alice.client.cookies[name]
    at = {"begin": 0, "middle": len(value) // 2, "end": len(value) - 2}[where]
    changed = value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]
    headers = {"cookie": f"{name}={changed}"}
    assert httpx2.get(url, headers=headers).is_redirect
    form = {"_token": token_of(page), **filled()}
    assert httpx2.post(url, data=form, headers=headers).status_code == 403


@rows(
    "query",
    ("next", "?next=https://evil.example.com"),
    ("redirect_uri", "?redirect_uri=https://evil.example.com/&state=x"),
    ("a path of slashes", "?//evil.example.com"),
)
def test_nothing_in_a_link_leads_elsewhere(
    call: Begin, alice: Browser, provider: IdentityProvider, query: str
) -> None:
    url = call().url()
    headers = {"x-forwarded-host": "evil.example.com", "x-forwarded-proto": "https"}
    answer = alice.client.get(url + query, headers=headers)
    assert answer.headers["location"].startswith(provider.issuer + "/auth?")
    assert "evil" not in answer.headers["location"]
    back = alice.open(url, until=CALLBACK).headers["location"]
    home = alice.client.get(back + "&next=https://evil.example.com&url=//evil.example.com")
    assert home.headers["location"] == url
    for path in ("//evil.example.com/elicit/x", "/elicit//evil.example.com", "/elicit/"):
        away = httpx2.get(url[: url.index("/elicit")] + path)
        assert (away.status_code, "location" in away.headers) == (404, False), path


# -- forms --------------------------------------------------------------------------


@rows(
    "shown, headers",
    ("none", None, {}),
    ("empty", "", {}),
    ("made up", secrets.token_hex(24), {}),
    ("not ASCII", "ä", {}),
    ("two", ["a", "b"], {}),
    ("right, from another site", ..., {"origin": "https://evil.example.com"}),
    ("right, as the browser says from another site", ..., {"sec-fetch-site": "cross-site"}),
    ("right, from a sibling", ..., {"sec-fetch-site": "same-site"}),
)
def test_a_form_of_another_page_is_refused(
    call: Begin, alice: Browser, shown: Any, headers: dict[str, str]
) -> None:
    connecting = call()
    url = connecting.url()
    page = alice.open(url)
    carried = {} if shown is None else {"_token": token_of(page) if shown is ... else shown}
    answer = alice.send(url, None, headers, **carried, **filled())
    assert (answer.status_code, "<form" in answer.text) == (403, False)
    guarded(answer)
    assert list(questions(connecting.again())) == ["account"]


def test_a_token_of_another_page_is_refused(call: Begin, alice: Browser) -> None:
    one, other = call().url(), call().url()
    token = token_of(alice.open(one))
    alice.open(other)
    assert alice.send(other, None, _token=token, **filled()).status_code == 403


@rows(
    "origin",
    ("null, as browsers send under our policy", "null"),
    ("our own", ...),
)
def test_our_own_form_is_taken(call: Begin, alice: Browser, origin: Any) -> None:
    url = call().url()
    own = "{0.scheme}://{0.netloc}".format(urlsplit(url)) if origin is ... else origin
    headers = {"origin": own, "sec-fetch-site": "same-origin"}
    assert alice.send(url, alice.open(url), headers, **filled()).status_code == 200


@rows(
    "body, kind, status",
    ("too large", b"user=" + b"x" * 70_000, None, 413),
    ("far too large", b"user=" + b"x" * 900_000, None, 413),
    ("too many fields", b"&".join(b"a=1" for _ in range(2000)), None, 400),
    ("no pairs", b"user", None, 400),
    ("empty", b"", None, 403),
    ("not UTF-8", b"user=%FF%FE", None, 400),
    ("not ASCII", "user=ä".encode("latin-1"), None, 400),
    ("JSON", b'{"user": "ada"}', "application/json", 400),
    ("multipart", b"--x--", "multipart/form-data; boundary=x", 400),
)
def test_a_body_that_no_form_sends_is_refused(
    call: Begin, alice: Browser, body: bytes, kind: str | None, status: int
) -> None:
    url = call().url()
    page = alice.open(url)
    headers = {"content-type": kind or "application/x-www-form-urlencoded"}
    answer = alice.client.post(url, content=body, headers=headers)
    assert answer.status_code == status
    guarded(answer)
    assert alice.send(url, page, **filled()).status_code == 200, "the page is still there"


def test_fields_that_the_form_does_not_have_are_left_out(call: Begin, alice: Browser) -> None:
    connecting = call()
    url = connecting.url()
    more = {"is_admin": "true", "__class__": "x", "model_config": "y", "action": "decline"}
    assert alice.send(url, alice.open(url), **filled(**more)).status_code == 200
    result = connecting.again().value
    assert result.keys() == {"action", "digest", "user", "region", "days", "read_only", "areas"}
    assert result["action"] == "accept"


def test_what_was_typed_is_shown_again_as_text(call: Begin, alice: Browser) -> None:
    url = call().url()
    hostile = '"><script>alert(1)</script>'
    shown = alice.send(url, alice.open(url), **filled(user=hostile, days=hostile))
    assert shown.status_code == 422
    assert "<script" not in shown.text
    assert shown.text.count("&#34;&gt;&lt;script&gt;") >= 2
    guarded(shown)


def test_texts_of_a_tool_are_no_markup(call: Begin, alice: Browser) -> None:
    asking = call("markup", text="alert(0)")
    shown = alice.open(asking.url("a"))
    assert shown.status_code == 200
    assert "<script" not in shown.text and "<img" not in shown.text
    assert "&lt;script&gt;alert(0)&lt;/script&gt;" in shown.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown.text
    assert "&#34;&gt;&lt;script&gt;alert(2)&lt;/script&gt;" in shown.text
    guarded(shown)


# -- behind a proxy, by https -------------------------------------------------------------


def test_by_https_the_cookie_is_this_hosts_alone(
    provider: IdentityProvider, server_factory: ServerFactory, alice: Browser
) -> None:
    issuer = provider.settings(browser=provider.browser_settings())
    config = {"server": {"public_url": PUBLIC}, "auth": {"issuers": [issuer]}}
    server = server_factory(TOOLS, config)
    server.wait_for_log(lambda log: log["event"] == "issuer_keys_refreshed", timeout=30)
    token = provider.log_in("alice", resource=f"{PUBLIC}/mcp").access
    url = Call(server, token, "connect").url()
    assert url.startswith(f"{PUBLIC}/elicit/")
    here = f"http://127.0.0.1:{server.port}{urlsplit(url).path}"
    answer = httpx2.get(here, headers={"host": urlsplit(PUBLIC).netloc})
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query["redirect_uri"] == [f"{PUBLIC}/elicit/callback"]
    (name, morsel), *_ = SimpleCookie(answer.headers["set-cookie"]).items()
    assert name.startswith("__Host-") and morsel["path"] == "/" and not morsel["domain"]
    assert morsel["secure"] and morsel["httponly"] and morsel["samesite"] == "lax"


def _changed(url: str, change: dict[str, Any]) -> str:
    parts = urlsplit(url)
    query = {**parse_qs(parts.query), **change}
    kept = {name: value for name, value in query.items() if value is not None}
    return parts._replace(query=urlencode(kept, doseq=True)).geturl()
