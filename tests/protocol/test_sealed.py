"""Cursors and sealed tokens: authenticated, readable by every replica with the keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol.errors import InvalidParams
from app.protocol.sealed import KeyRing, Sealer, Unopened, decode_cursor, encode_cursor
from tests.support.cases import rows

OLD, NEW = b"o" * 32, b"n" * 32
NAMES = st.text("abcXYZ019_.-", min_size=1, max_size=128)


@given(NAMES)
def test_a_cursor_names_the_last_tool_on_every_replica(name: str) -> None:
    cursor = encode_cursor(name, keys=KeyRing([NEW]))
    assert cursor == encode_cursor(name, keys=KeyRing([NEW]))
    assert decode_cursor(cursor, keys=KeyRing([NEW])) == name


def test_a_cursor_outlives_the_rotation_of_its_key() -> None:
    cursor = encode_cursor("a", keys=KeyRing([OLD]))
    assert decode_cursor(cursor, keys=KeyRing([NEW, OLD])) == "a"
    with pytest.raises(InvalidParams):
        decode_cursor(cursor, keys=KeyRing([NEW]))


@given(NAMES, st.data())
def test_a_cursor_that_was_touched_is_refused(name: str, data: st.DataObject) -> None:
    keys = KeyRing([NEW])
    cursor = encode_cursor(name, keys=keys)
    index = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.sampled_from("ABab01-_=").filter(lambda char: char != cursor[index]))
    with pytest.raises(InvalidParams):
        decode_cursor(cursor[:index] + other + cursor[index + 1 :], keys=keys)


@pytest.mark.parametrize("cursor", ["", "zzz", "é", "=", "A" * 1_000_000, "\ud800", "a b"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParams):
        decode_cursor(cursor, keys=KeyRing([NEW]))


@given(st.text(max_size=100))
def test_no_text_makes_the_decoder_fail_in_another_way(cursor: str) -> None:
    with pytest.raises(InvalidParams):
        decode_cursor(cursor, keys=KeyRing([NEW]))


@pytest.mark.parametrize("keys", [[], [b"short"]])
def test_a_ring_needs_real_keys(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="key"):
        KeyRing(keys)


NONCE = b"n" * 12
LIMIT = 10_000


def _sealer(*keys: bytes, purpose: str = "test 1") -> Sealer:
    return Sealer(KeyRing(keys or (NEW,)), purpose=purpose, max_characters=LIMIT)


@given(
    st.binary(max_size=200),
    st.binary(max_size=50),
    st.floats(1, 1e10),
    st.binary(min_size=12, max_size=12),
)
def test_what_was_sealed_opens_until_its_time(
    data: bytes, bound_to: bytes, expires_at: float, nonce: bytes
) -> None:
    token = _sealer().seal(data, bound_to=bound_to, expires_at=expires_at, nonce=nonce)

    assert _sealer().open(token, bound_to=bound_to, now=0) == data
    with pytest.raises(Unopened):
        _sealer().open(token, bound_to=bound_to, now=expires_at)


@given(st.binary(max_size=100), st.data())
def test_a_token_that_was_touched_does_not_open(data: bytes, draw: st.DataObject) -> None:
    token = _sealer().seal(data, bound_to=b"", expires_at=9, nonce=NONCE)
    index = draw.draw(st.integers(0, len(token) - 1))
    other = draw.draw(st.sampled_from("ABab01-_=").filter(lambda char: char != token[index]))
    with pytest.raises(Unopened):
        _sealer().open(token[:index] + other + token[index + 1 :], bound_to=b"", now=0)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_token_opens_for_nothing_but_what_it_is_bound_to(one: bytes, other: bytes) -> None:
    token = _sealer().seal(b"data", bound_to=one, expires_at=9, nonce=NONCE)
    if one == other:
        assert _sealer().open(token, bound_to=other, now=0) == b"data"
    else:
        with pytest.raises(Unopened):
            _sealer().open(token, bound_to=other, now=0)


@rows(
    "maker, reader, opens",
    ("the same key", _sealer(NEW), _sealer(NEW), True),
    ("a key that has become old", _sealer(OLD), _sealer(NEW, OLD), True),
    ("a key that is gone", _sealer(OLD), _sealer(NEW), False),
    ("a replica that has not got the new key", _sealer(NEW, OLD), _sealer(OLD), False),
    ("another purpose", _sealer(NEW, purpose="test 2"), _sealer(NEW), False),
)
def test_keys_and_purpose_decide_who_can_open(maker: Sealer, reader: Sealer, opens: bool) -> None:
    token = maker.seal(b"data", bound_to=b"x", expires_at=9, nonce=NONCE)
    if opens:
        assert reader.open(token, bound_to=b"x", now=0) == b"data"
    else:
        with pytest.raises(Unopened):
            reader.open(token, bound_to=b"x", now=0)


@given(st.text(max_size=100))
def test_no_text_makes_the_opener_fail_in_another_way(text: str) -> None:
    with pytest.raises(Unopened):
        _sealer().open(text, bound_to=b"", now=0)


def test_a_token_shows_nothing_of_what_is_in_it_and_is_bounded() -> None:
    token = _sealer().seal(b"a" * 3000, bound_to=b"", expires_at=9, nonce=NONCE)
    assert b"aaa" not in token.encode()
    with pytest.raises(Unopened):
        _sealer().open("A" * (LIMIT + 1), bound_to=b"", now=0)
    with pytest.raises(ValueError, match="12 bytes"):
        _sealer().seal(b"", bound_to=b"", expires_at=9, nonce=b"short")
