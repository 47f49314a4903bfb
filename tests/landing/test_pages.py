"""From a call to a page and back: what the right user can do there."""

import hashlib
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.asking.rounds import accept, ask, questions, state_of
from tests.auth.office import api_key, bearer
from tests.landing.browser import Browser, Call, filled
from tests.landing.conftest import start
from tests.support.cases import rows
from tests.support.identity import PAGES_PUBLIC, IdentityProvider
from tests.support.server import ServerFactory, ServerProcess

Begin = Callable[..., Call]
SECRET = "key-Planted-9f8e7d6c5b4a"
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()


def test_what_the_user_enters_reaches_the_tool_and_nobody_else(
    call: Begin, alice: Browser, server: ServerProcess
) -> None:
    connecting = call()
    url = connecting.url()
    page = alice.open(url)
    assert page.status_code == 200, page.text
    done = alice.send(url, page, **filled(api_key=SECRET))
    assert done.status_code == 200 and "You can close this page" in done.text
    result = connecting.again().value
    assert result == {
        "action": "accept",
        "digest": DIGEST,
        "user": "ada",
        "region": "us",
        "days": 7,
        "read_only": False,
        "areas": ["mail", "files"],
    }
    said = b"".join(connecting.said).decode()
    for text in (said, server.log_text(), "".join(alice.seen), done.text):
        assert SECRET not in text and "9f8e7d6c" not in text
    (line,) = server.logs("page_completed")
    assert (line["tool"], line["subject"]) == ("connect", "alice")


def test_the_url_is_opaque_and_stays_the_same_over_the_rounds(call: Begin) -> None:
    connecting = call()
    url = connecting.url()
    parts = urlsplit(url)
    assert re.fullmatch(r"/elicit/[A-Za-z0-9_-]{43}", parts.path) and not parts.query
    connecting.again()
    assert connecting.url() == url
    assert call().url() != url


def test_consent_is_not_completion(call: Begin, alice: Browser) -> None:
    connecting = call()
    first = connecting.message
    for _ in range(2):
        connecting.again()
        assert connecting.message.startswith(f"{first}\n\nThe page has not been completed yet.")
    url = connecting.url()
    alice.send(url, alice.open(url), **filled(api_key=SECRET))
    assert connecting.again().value["digest"] == DIGEST


def test_a_completed_page_will_do_without_a_word_of_the_client(call: Begin, alice: Browser) -> None:
    connecting = call()
    url = connecting.url()
    alice.send(url, alice.open(url), **filled(api_key=SECRET))
    assert connecting.again(None).value["digest"] == DIGEST


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_user_who_does_not_want_to_is_heard_and_the_page_closed(
    call: Begin, alice: Browser, action: str
) -> None:
    connecting = call()
    url = connecting.url()
    assert connecting.again(action).value == {"action": action}
    assert alice.open(url).status_code == 404


def test_what_was_entered_is_read_again_in_later_rounds(call: Begin, alice: Browser) -> None:
    connecting = call("connect_surely")
    url = connecting.url()
    alice.send(url, alice.open(url), **filled(api_key=SECRET))
    assert list(questions(connecting.again())) == ["sure"]
    result = connecting.again(None, sure=accept(sure=True))
    assert result.value == f"accept {DIGEST} True"
    assert SECRET.encode() not in b"".join(connecting.said)


def test_no_is_no_in_later_rounds(call: Begin) -> None:
    connecting = call("connect_surely")
    assert list(questions(connecting.again("decline"))) == ["sure"]
    result = connecting.again(None, sure=accept(sure=True))
    assert result.value.startswith("decline ")


def test_two_pages_of_one_call_are_two_pages(call: Begin, alice: Browser) -> None:
    asking = call("twice")
    first = asking.url("one")
    alice.send(first, alice.open(first), password="old", choice="b")
    asking.again("accept", "one")
    second = asking.url("two")
    assert second != first
    alice.send(second, alice.open(second), password="new", choice="b")
    assert asking.again("accept", "two").value == "accept accept"


def test_the_form_says_who_asks_and_hides_secrets(call: Begin, alice: Browser) -> None:
    text = alice.open(call("connect", service="<post>").url()).text
    assert "<b>connect</b>" in text
    assert "Connect your account of &lt;post&gt;." in text
    assert "The &lt;vault&gt;" in text
    assert re.search(r'name="api_key" type="password" value=""', text)
    assert "See https://example.com/keys" in text and "<a " not in text
    assert re.search(r'name="days" type="number" value="30"', text)
    assert re.search(r'type="checkbox" name="read_only" value="true" checked', text)
    assert re.search(r'<option value="eu" selected>', text)


def test_mistakes_are_shown_beside_the_fields_and_no_secret_comes_back(
    call: Begin, alice: Browser, server: ServerProcess
) -> None:
    url = call().url()
    page = alice.open(url)
    wrong: dict[str, Any] = {"user": "x", "api_key": "short", "days": "91", "region": "mars"}
    shown = alice.send(url, page, **wrong)
    assert shown.status_code == 422
    for text in (
        "User name must have at least 2 characters",
        "API key must have at least 8 characters",
        "Days must be at most 90",
        "Region must be one of",
    ):
        assert text in shown.text, shown.text
    assert 'value="x"' in shown.text and 'value="91"' in shown.text
    assert "short" not in shown.text
    # What the model demands beyond its schema, in words that quote the secret.
    quoted = alice.send(url, shown, **filled(api_key="no-key-at-all"))
    assert quoted.status_code == 422
    assert "API key is not what is asked for" in quoted.text
    assert "no-key-at-all" not in quoted.text
    crashed = alice.send(url, quoted, **filled(api_key="crash-the-check"))
    assert crashed.status_code == 422 and "the tool has a mistake" in crashed.text
    assert "crash-the-check" not in server.log_text() + crashed.text
    assert alice.send(url, quoted, **filled()).status_code == 200


@rows(
    "field, value, problem",
    ("missing", "user", "", "User name is required"),
    ("no number", "days", "seven", "Days must be integer"),
    ("a fraction", "days", "7.5", "Days must be integer"),
    ("no end", "days", "1e999", "Days must be integer"),
    ("not a number", "days", "nan", "Days must be integer"),
    ("beyond all bounds", "days", "9" * 4000, "Days must be integer"),
    ("twice", "user", ["ada", "bob"], "User name must be string"),
    ("a choice that is none", "areas", ["mail", "garden"], "Areas must be one of"),
)
def test_what_does_not_fit_is_said(
    call: Begin, alice: Browser, field: str, value: Any, problem: str
) -> None:
    url = call().url()
    shown = alice.send(url, alice.open(url), **filled(**{field: value}))
    assert (shown.status_code, problem in shown.text) == (422, True), shown.text


def test_a_public_client_is_protected_by_pkce_alone(
    provider: IdentityProvider, server_factory: ServerFactory, alice: Browser
) -> None:
    browser = provider.browser_settings(PAGES_PUBLIC)
    server = start(server_factory, provider, browser=browser)
    token = provider.log_in("alice", resource=f"{server.url.removesuffix('/mcp')}/mcp").access
    connecting = Call(server, token, "connect")
    assert alice.open(connecting.url()).status_code == 200
    (query,) = (parse_qs(urlsplit(url).query) for url in alice.seen if "/auth?" in url)
    assert query["code_challenge_method"] == ["S256"]
    assert query["scope"] == ["openid"]
    assert {"state", "nonce", "code_challenge"} <= query.keys()


def test_a_login_comes_and_goes_with_the_configuration(
    provider: IdentityProvider, server_factory: ServerFactory, alice: Browser
) -> None:
    server = start(server_factory, provider, browser=None, tools={"reload": True})
    token = provider.log_in("alice", resource=f"http://127.0.0.1:{server.port}/mcp").access
    config = {
        "server": {"public_url": f"http://127.0.0.1:{server.port}", "title": "The <vault>"},
        "tools": {"reload": True},
    }

    def become(issuer: dict[str, Any]) -> None:
        mark = server.log_mark()
        server.write_config({**config, "auth": {"issuers": [issuer]}})
        server.wait_for_log(lambda log: log["event"] == "configuration_applied", after=mark)

    become(provider.settings(browser=provider.browser_settings()))
    url = Call(server, token, "connect").url()
    assert alice.open(url).status_code == 200
    become(provider.settings())
    assert alice.open(url).status_code == 404


# -- callers without pages ----------------------------------------------------


def test_a_caller_without_a_credential_is_told_what_is_missing(server: ServerProcess) -> None:
    reply = ask(server.client, "connect")
    assert reply.is_error and "a caller without a credential has no user" in reply.text


def test_an_api_key_is_told_what_is_missing(
    provider: IdentityProvider, server_factory: ServerFactory
) -> None:
    key, table = api_key("robot")
    auth = {
        "issuers": [provider.settings(browser=provider.browser_settings())],
        "api_keys": [table],
    }
    server = start(server_factory, provider, browser=None, auth=auth)
    reply = ask(server.client, "connect", headers=bearer(key))
    assert reply.is_error and "an API key has no user" in reply.text


def test_without_a_login_there_are_no_pages(
    provider: IdentityProvider, server_factory: ServerFactory
) -> None:
    server = start(server_factory, provider, browser=None)
    token = provider.log_in("alice", resource=f"http://127.0.0.1:{server.port}/mcp").access
    reply = ask(server.client, "connect", headers=bearer(token))
    assert reply.is_error and "[auth.issuers.browser]" in reply.text
    nothing = server.client.get("/nothing")
    for path in ("/elicit/callback", "/elicit/x", f"/elicit/{'A' * 43}"):
        answer = server.client.get(path)
        assert (answer.status, answer.body) == (404, nothing.body)


def test_a_client_that_opens_no_urls_is_told_so(server: ServerProcess, token: str) -> None:
    reply = ask(
        server.client,
        "connect",
        headers=bearer(token),
        capabilities={"elicitation": {}},
    )
    assert reply.outcome == (400, -32021)


def test_a_state_is_of_no_use_without_its_caller(
    call: Begin, provider: IdentityProvider, server: ServerProcess, alice: Browser
) -> None:
    connecting = call()
    url = connecting.url()
    alice.send(url, alice.open(url), **filled(api_key=SECRET))
    other = provider.log_in("bob", resource=f"http://127.0.0.1:{server.port}/mcp").access
    answers = {"account": {"action": "accept"}}
    stolen = ask(
        server.client, "connect", {}, answers, state_of(connecting.reply), headers=bearer(other)
    )
    assert stolen.outcome == (400, -32602)
