"""Which credential a request shows, and which requests show too many."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.auth.credentials import (
    MAX_QUERY,
    Credential,
    find_credential,
    has_query_token,
    other_scheme,
)
from app.auth.problems import Malformed, Refused
from app.auth.tokens import MAX_TOKEN_BYTES
from app.protocol.headers import HeaderMap
from tests.support.cases import rows

Lines = list[tuple[bytes, bytes]]
AUTH, KEY = b"authorization", b"x-api-key"


@rows(
    "lines, expected",
    ("none", [], None),
    ("a bearer token", [(AUTH, b"Bearer a.b-c_d~e+f/g==")], (b"a.b-c_d~e+f/g==", False)),
    ("the scheme has no case", [(AUTH, b"bEARER abc")], (b"abc", False)),
    ("several spaces", [(AUTH, b" Bearer   abc\t")], (b"abc", False)),
    ("a key", [(KEY, b" mts_a_b ")], (b"mts_a_b", True)),
    ("a key as a token", [(AUTH, b"Bearer mts_a_b")], (b"mts_a_b", True)),
    ("a long credential of another scheme", [(AUTH, b"Negotiate " + b"Y" * 60_000)], None),
    ("an empty header is none", [(AUTH, b""), (KEY, b"")], None),
    ("another scheme is none of ours", [(AUTH, b"Basic dXNlcjpwYXNz")], None),
    ("nor is a scheme alone", [(AUTH, b"Negotiate")], None),
    ("a key beside another scheme", [(AUTH, b"Basic dXNlcg=="), (KEY, b"k")], (b"k", True)),
    ("other headers twice", [(b"accept", b"a"), (b"accept", b"b"), (KEY, b"k")], (b"k", True)),
)
def test_a_credential_is_found(lines: Lines, expected: tuple[bytes, bool] | None) -> None:
    found = find_credential(HeaderMap(lines), b"")
    assert found == (Credential(*expected) if expected else None)


@rows(
    "lines, query",
    ("token and key", [(AUTH, b"Bearer a"), (KEY, b"k")], b""),
    ("two tokens", [(AUTH, b"Bearer a"), (AUTH, b"Bearer b")], b""),
    ("one token twice", [(AUTH, b"Bearer a"), (AUTH, b"Bearer a")], b""),
    ("two keys", [(KEY, b"k"), (KEY, b"k")], b""),
    ("a token and another scheme", [(AUTH, b"Bearer a"), (AUTH, b"Basic b")], b""),
    ("a token beside one in the query", [(AUTH, b"Bearer a")], b"access_token=b"),
    ("a key beside a token in the query", [(KEY, b"k")], b"x=1&access_token=b"),
    ("two tokens that a proxy joined", [(AUTH, b"Bearer a, Bearer b")], b""),
    ("no token", [(AUTH, b"Bearer")], b""),
    ("spaces for a token", [(AUTH, b"Bearer   ")], b""),
    ("two words", [(AUTH, b"Bearer a b")], b""),
    ("a tab between", [(AUTH, b"Bearer\ta")], b""),
    ("quotes", [(AUTH, b'Bearer "a"')], b""),
    ("padding within", [(AUTH, b"Bearer a=b")], b""),
    ("not ASCII", [(AUTH, "Bearer ä".encode())], b""),
    ("a line break", [(AUTH, b"Bearer a\nb")], b""),
    ("a scheme as long as a token", [(AUTH, b"B" * 60_000)], b""),
    ("two, one of them long", [(AUTH, b"Bearer " + b"a" * 60_000), (KEY, b"k")], b""),
    ("no scheme", [(AUTH, b"=abc")], b""),
)
def test_two_credentials_or_a_malformed_one_are_malformed(lines: Lines, query: bytes) -> None:
    with pytest.raises(Malformed):
        find_credential(HeaderMap(lines), query)


@rows(
    "query, there",
    ("plain", b"access_token=abc", True),
    ("among others", b"a=1&access_token=abc&b=2", True),
    ("empty", b"access_token=", True),
    ("without a value", b"access_token", True),
    ("escaped", b"%61ccess%5Ftoken=abc", True),
    ("all of it escaped", b"b=1&%61%63%63%65%73%73%5f%74%6F%6b%65%6e&", True),
    ("escaped twice", b"access%255Ftoken=abc", False),
    ("behind an escaped separator", b"q=%26access_token%3D", False),
    ("another name", b"my_access_token=abc&access_tokens=1", False),
    ("as a value", b"q=access_token", False),
    ("none", b"", False),
    ("bytes of no encoding", b"\xff\xfe=%ff&&&==", False),
)
def test_a_token_in_the_query_string_is_seen_and_refused(query: bytes, there: bool) -> None:
    assert has_query_token(query) is there
    if there:
        with pytest.raises(Refused) as caught:
            find_credential(HeaderMap([]), query)
        assert not isinstance(caught.value, Malformed)


PIECES = (
    *(b"access", b"_", b"token", b"access_token", b"acc", b"ess", b"%61", b"%5F", b"%5f", b"%6E"),
    *(b"&", b"=", b"+", b";", b"%", b"%6", b"6e", b"%26", b"%3D", b"\n", b"\xff"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
@example(b"%61ccess_token")
@example(b"a&access_token=")
def test_a_query_is_read_as_the_standard_library_reads_it(query: bytes) -> None:
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    assert has_query_token(query) is ("access_token" in names)


def test_a_long_query_is_refused_before_it_is_read() -> None:
    assert not has_query_token(b"%61=%61&" * (MAX_QUERY // 8))
    for query in (b"%61=%61&" * 7800, b"a" * (MAX_QUERY + 1)):
        with pytest.raises(Malformed, match="query string is longer"):
            find_credential(HeaderMap([]), query)


@pytest.mark.parametrize("end", [b"", b"\x80", b"==="])
def test_a_long_token_is_refused_before_it_is_read(end: bytes) -> None:
    too_long = b"Bearer " + b"a" * (MAX_TOKEN_BYTES + 1 - len(end)) + end
    with pytest.raises(Refused, match="too long") as caught:
        find_credential(HeaderMap([(AUTH, too_long)]), b"")
    assert not isinstance(caught.value, Malformed)
    longest = b"a" * MAX_TOKEN_BYTES
    assert find_credential(HeaderMap([(AUTH, b"Bearer " + longest)]), b"") == (longest, False)


def test_another_scheme_is_told_from_none() -> None:
    assert other_scheme(HeaderMap([(AUTH, b"Basic abc")]))
    assert not other_scheme(HeaderMap([(AUTH, b"bearer abc")]))
    assert not other_scheme(HeaderMap([(AUTH, b" ")]))
    assert not other_scheme(HeaderMap([]))


@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=40))
@example(b"Bearer a", b"", b"")
@example(b"Bearer " + b"=" * 40, b"", b"")
def test_whatever_comes_is_one_credential_none_or_a_refusal(
    authorization: bytes, key: bytes, query: bytes
) -> None:
    found, said = None, "Fine."
    try:
        found = find_credential(HeaderMap([(AUTH, authorization), (KEY, key)]), query)
    except Refused as refused:
        said = str(refused)
    assert said.isascii() and said.endswith(".")
    if found is not None:
        assert found.text
        assert found.text in (key if found.is_key else authorization)
        assert not has_query_token(query)


@given(st.from_regex(rb"[A-Za-z0-9\-._~+/]{1,60}={0,2}", fullmatch=True))
def test_every_token_comes_through_as_it_is(token: bytes) -> None:
    assert find_credential(HeaderMap([(AUTH, b"Bearer " + token)]), b"") == (token, False)
