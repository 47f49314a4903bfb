"""What is masked, what is not, and that it takes no longer than the text is long."""

import base64
import hashlib
import json
import pickle
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.guards.national_ids import LOCALES as KNOWN
from app.guards.redaction import KINDS, Redactor
from app.guards.spans import Kind
from app.settings import REDACTED_LOCALES
from app.settings.sections import LoggingSettings
from tests.guards.planted import LOCALES, PLANTED

EVERYTHING = Redactor(KINDS, locales=LOCALES)
ALL = [(kind, text, part) for kind, row in PLANTED.items() for text, part in row]


@pytest.mark.parametrize(("kind", "text", "part"), ALL)
def test_what_is_looked_for_is_masked(kind: Kind, text: str, part: str) -> None:
    masked = Redactor([kind], locales=LOCALES).text(text)
    assert part in text
    assert part not in masked


@pytest.mark.parametrize(("kind", "text", "part"), ALL)
def test_other_kinds_do_not_look_for_it(kind: Kind, text: str, part: str) -> None:
    """A number may be that of a phone in one country and that of a person in another."""
    del part
    others: list[Kind] = ["email", "secret"] if kind in ("card", "phone", "national_id") else []
    assert Redactor(others, locales=LOCALES).text(text) is text


MASKS: dict[str, tuple[str, str]] = {
    "an address": ("to <joe@example.com>, now", "to <[email]>, now"),
    "a URL keeps all but the password": (
        "at postgres://admin:hunter2@db.example.com/prod?x=1",
        "at postgres://admin:[secret]@db.example.com/prod?x=1",
    ),
    "a header keeps its scheme": ("Authorization: Bearer abc", "Authorization: Bearer [secret]"),
    "an assignment keeps its name": ("?api_key=abc&x=1", "?api_key=[secret]&x=1"),
    "quotes stay": ('{"password": "abc", "x": 1}', '{"password": "[secret]", "x": 1}'),
    "brackets stay": ("login(password=abc)", "login(password=[secret])"),
    "a card": ("card 4111 1111 1111 1111.", "card ****1111."),
    "a card among numbers": ("12 4111111111111111 99", "12 ****1111 99"),
    "two cards": ("4111111111111111,5555555555554444", "****1111,****4444"),
    "a phone number in a sentence": ("call (212) 555-1234, ext", "call ****1234, ext"),
    "a phone number before another": ("+49 170 1234567 12 pieces", "****4567 12 pieces"),
    "an id with a letter": ("DNI 54362315K", "DNI ****315K"),
    "an id that is a word of its sentence": ("ssn is 536-90-4399", "ssn is ****4399"),
    "a line break that was quoted": (r"x\n joe@example.com", r"x\n [email]"),
    "a card in a quoted text": (r"x\n4111111111111111\n", r"x\n****1111\n"),
    "an address beside a secret": ("password=abc joe@example.com", "password=[secret] [email]"),
    "an address that is a secret": ("password=joe@example.com", "password=[secret]"),
    "a key within a URL": ("https://u:ghp_abc@h.example", "https://u:[secret]@h.example"),
}


@pytest.mark.parametrize(("text", "masked"), MASKS.values(), ids=MASKS.keys())
def test_what_is_around_it_stays(text: str, masked: str) -> None:
    assert EVERYTHING.text(text) == masked


def test_how_many_digits_stay_can_be_chosen() -> None:
    text = "4111111111111111 +491701234567 536-90-4399"
    some = Redactor(KINDS, locales=["us"], keep_last=2)
    none = Redactor(KINDS, locales=["us"], keep_last=0)
    assert some.text(text) == "****11 ****67 ****99"
    assert none.text(text) == "[card] [phone] [national id]"
    assert none.text(none.text(text)) == none.text(text)


IMAGE = base64.b64encode(b"".join(hashlib.sha512(bytes([n])).digest() for n in range(256))).decode()
CLEAN: dict[str, str] = {
    "a sentence": "The date must lie in the future.",
    "a UUID": "550e8400-e29b-41d4-a716-446655440000",
    "a UUID that looks like a card": "a0000000-4111-1111-8111-411111111111",
    "a UUID of digits": "41111111-1111-4111-8111-111111111111",
    "an instant": "2026-07-28T09:00:00.123456789Z and 2026-07-28 09:00:00+02:00",
    "a date": "28.07.2026, 07/28/2026, 2026-07-28",
    "seconds since 1970": "1785229200 1785229200123 1785229200123456",
    "a hash": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "a hash of digits": "1234567890123456789012345678901234567890",
    "a price": "€ 1,234.56 or 1.234,56 or 19.99",
    "an address of a machine": "192.168.100.200:8080, 10.0.0.1, 2001:db8::1",
    "a version": "1.2.3, 2026.7.28, 10.15.7.1234",
    "a fraction": "0.4111111111111111 -0.3012345678",
    "sixteen digits": "4111111111111112",
    "sixteen digits of nobody": "1234567890123452",
    "an account in columns": "4 11 11 11 11 11 11 11 11",
    "half an address": "user@ and @user and user@host and git@github.com:org/x.git",
    "a picture for fine screens": "icon@2x.png",
    "a package": "@scope/name@1.2.3",
    "base64": IMAGE,
    "a picture": f"data:image/png;base64,{IMAGE}",
    "a URL": "https://example.com:8443/a/b?x=1#y",
    "a user of a URL": "ssh://git@host/x",
    "places in a list": '{"nextPageToken": "CAUQAA123456789012", "page_token": "abc123abc123abc1"}',
    "a token of a text": "token=hello, 15 tokens: 3",
    "no password": "password=None password='' password=${PASSWORD} password: *** password",
    "a name alone": "the password, a secret and an api_key are needed",
    "a folder": "PWD=/home/joe OLDPWD=/tmp",
    "a scheme": 'WWW-Authenticate: Bearer realm="x", error="invalid_token"',
    "a public key": "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkq\n-----END PUBLIC KEY-----",
    "a mention of a key": "It starts with -----BEGIN PRIVATE KEY----- as they do.",
    "a short one": "sk-learn ghp_short AKIA xoxb- eyJ.eyJ.x SG.a.b npm_config_cache",
    "a word": "mask-based-on-a-very-long-name-of-digits",
    "a digit that is none": "\u0664\u0661\u0661\u0661",
}  # fmt: skip


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN.keys())
@pytest.mark.parametrize("locales", [(), ("us", "de")], ids=["anywhere", "by country"])
def test_what_only_looks_alike_stays_the_same_object(text: str, locales: tuple[str, ...]) -> None:
    assert Redactor(KINDS, locales=locales).text(text) is text
    data = {"x": [text]}
    assert Redactor(KINDS, locales=locales).data(data) is data


def test_numbers_of_a_country_are_looked_for_where_it_is_named() -> None:
    for text in ("536-90-4399", "(212) 555-1234"):
        assert Redactor(KINDS).text(text) is text
        assert Redactor(KINDS, locales=["us"]).text(text) == "****" + text[-4:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kinds": ["mail"]}, ("unknown kind 'mail'", "email", "national_id")),
        ({"kinds": KINDS, "locales": ["uk"]}, ("unknown locale 'uk'", "gb", "us")),
        ({"kinds": KINDS, "locales": ["US"]}, ("unknown locale 'US'",)),
        ({"kinds": KINDS, "keep_last": 5}, ("keep_last is 5", "0 to 4")),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(
    arguments: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # its words are looked at below
        Redactor(**arguments)
    assert all(word in str(caught.value) for word in words)


def test_settings_know_the_same_kinds_and_countries() -> None:
    assert LoggingSettings().redact == KINDS
    assert REDACTED_LOCALES == KNOWN


def test_it_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(EVERYTHING))  # noqa: S301  # our own
    for _, text, _ in ALL:
        assert sent.text(text) == EVERYTHING.text(text)


# Data.


def test_data_keeps_its_form() -> None:
    data = {
        "joe@example.com": 1,
        "list": ["+491701234567", 4111111111111111, 4111111111111112, 1.5, True, None],
        "deep": {"password": "abc", "api_keys": ["abc", "def"], "token": "hello", "secret": None},
        "person": 44051401359,
    }
    assert EVERYTHING.data(data) == {
        "[email]": 1,
        "list": ["****4567", "****1111", 4111111111111112, 1.5, True, None],
        "deep": {"password": "[secret]", "api_keys": ["[secret]"] * 2, "token": "hello",
                 "secret": None},
        "person": "****1359",
    }  # fmt: skip


def test_keys_that_become_alike_keep_their_values() -> None:
    data = {"a@example.com": 1, "b@example.com": 2, "c": 3}
    assert EVERYTHING.data(data) == {"[email]": 1, "[email] 2": 2, "c": 3}
    data = {"a@example.com": 1, "b@example.com": 2, "[email] 2": 3}
    assert EVERYTHING.data(data) == {"[email]": 1, "[email] 3": 2, "[email] 2": 3}


# Properties.

planted = st.sampled_from(ALL)
# What may stand directly beside something. A letter or a digit would make it something else.
beside = st.sampled_from(["", " ", "\n", "\t", "(", ")", '"', "'", ",", ";", "世", "é", "…", "|"])
# No "-----" that would end a key early, no quotes or backslash that turn what follows into another.
around = st.text(st.characters(codec="utf-8", exclude_characters="-'\"\\"), max_size=40)


@settings(deadline=None)
@given(planted, around, beside, beside, around)
def test_nothing_survives_in_any_text(
    case: tuple[Kind, str, str], before: str, left: str, right: str, after: str
) -> None:
    _, text, part = case
    if left in ("é", "") or right in ("é", ""):
        left, right = " ", " "
    masked = EVERYTHING.text(f"{before} {left}{text}{right} {after}")
    assert part not in masked.replace(before, "").replace(after, "")


@settings(deadline=None)
@given(planted, st.recursive(st.just(None), lambda inner: st.one_of(
    st.lists(inner, min_size=1, max_size=3),
    st.dictionaries(st.text(), inner, min_size=1, max_size=3),
), max_leaves=5), st.booleans())  # fmt: skip
def test_nothing_survives_in_any_data(
    case: tuple[Kind, str, str], shape: Any, as_key: bool
) -> None:
    _, text, part = case

    def plant(node: Any) -> Any:
        if isinstance(node, list):
            return [plant(each) for each in node]
        if isinstance(node, dict):
            return {key: plant(each) for key, each in node.items()}
        return {text: 1} if as_key else text

    shown = json.dumps(EVERYTHING.data(plant(shape)), ensure_ascii=False)
    keys = json.dumps(list(_keys(shape)), ensure_ascii=False)
    assert part not in shown or part in keys


def _keys(node: Any) -> Any:
    if isinstance(node, list):
        for each in node:
            yield from _keys(each)
    elif isinstance(node, dict):
        for key, each in node.items():
            yield key
            yield from _keys(each)


pieces = st.one_of(planted.map(lambda case: case[1]), beside, around, st.sampled_from(
    ["\\", "\\n", "[secret]", "[email]", "****1111", "token=", "Bearer ", "Cookie: a="]
), st.sampled_from(
    ["password=", "token: ", '"', "://a:", "@", "+", "4111 ", "-----BEGIN ", "eyJ"]
))  # fmt: skip


@settings(deadline=None)
@given(st.lists(pieces, max_size=8))
def test_what_is_masked_is_not_masked_again(parts: list[str]) -> None:
    once = EVERYTHING.text("".join(parts))
    assert EVERYTHING.text(once) is once


NAMING = ("token", "pass", "pwd", "secret", "key", "cookie", "string", "authorization")
words = st.text(st.characters(exclude_characters="@+-:=>*", exclude_categories=("Nd", "Cs")))


@given(words)
def test_a_clean_text_is_the_same_object(text: str) -> None:
    assert EVERYTHING.text(text) is text


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(-1000, 1000), words),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(words, inner)),
))  # fmt: skip
def test_clean_data_is_the_same_object(data: Any) -> None:
    # A name may turn up by chance; its values are not clean then.
    shown = repr(data).lower()
    if not any(word in shown for word in NAMING):
        assert EVERYTHING.data(data) is data


@given(st.one_of(planted.map(lambda case: case[1]), st.text()))
def test_a_text_in_data_is_masked_as_it_is_alone(text: str) -> None:
    assert EVERYTHING.data([{"x": text}]) == [{"x": EVERYTHING.text(text)}]


# Time.

HOSTILE = (
    *("a", "1", "1 ", "4 ", "4-", "411 ", "4111 1111 1111 1111 ", "555-", "(1", "1."),
    *("+", "+1 ", "+49 170 1234567 ", "(212) 555-1234 ", "536-90-4399 ", "ssn: "),
    *("@", "a@", "a@a.", "a.a@a.a.", "%40", "\\", "\\n", "\u0130"),
    *("eyJ", "-eyJabcdefgh.", "eyJabcdefgh.ab", "sk-", "-sk-1", "xoxb-", "AKIA"),
    *("SG.aaaaaaaaaaaaaaaa", "-", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----"),
    *("://", "://a:", "a://b:c@", "authorization: ", "authorization:bearer ", "bearer "),
    *("password=", 'password="', 'password=\\"', "password=)", "password=a,", "password={{"),
    *("pwd=/", "key=", "token=", 'token="', "next_token=", "[secret]:", "<password>"),
    *("cookie:", "cookie: a"),
)


@pytest.mark.parametrize(
    ("locales", "size"), [((), 1 << 20), (("us",), 1 << 18)], ids=["anywhere", "by country"]
)
@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.timeout(120)
def test_time_grows_as_the_text_does(unit: str, locales: tuple[str, ...], size: int) -> None:
    redactor = Redactor(KINDS, locales=locales)
    whole = (unit * (size // len(unit) + 1))[:size]
    redactor.text(whole[: size // 16])  # what is imported at first use is there

    def took(text: str) -> float:
        began = time.process_time()
        redactor.text(text)
        return time.process_time() - began

    # Eight times the text: what is quadratic takes 64 times as long, and caches explain no more
    # than a factor of two.
    part, all_of_it = took(whole[: size // 8]), took(whole)
    assert all_of_it <= 8 * 3 * max(part, 0.01)
