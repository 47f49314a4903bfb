"""Cursors: deterministic, authenticated, readable by every replica with the keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol.errors import InvalidParams
from app.protocol.sealed import KeyRing, decode_cursor, encode_cursor

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
