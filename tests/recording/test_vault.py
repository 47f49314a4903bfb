"""Recordings at rest: only the keys of the server open them, and only as they were written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol.sealed import KeyRing
from app.recording.recording import Unusable
from app.recording.vault import OVERHEAD_BYTES, Vault, is_sealed
from tests.support.cases import rows

OLD, NEW, FOREIGN = (letter * 32 for letter in (b"o", b"n", b"f"))
TEXT = b'{"password": "correct horse"}'
SEALED = Vault(KeyRing([OLD])).seal(TEXT)


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_what_was_sealed_is_opened(data: bytes) -> None:
    vault = Vault(KeyRing([NEW]))

    sealed = vault.seal(data)

    assert vault.open(sealed) == data
    assert len(sealed) == len(data) + OVERHEAD_BYTES
    assert is_sealed(sealed)


def test_nothing_of_it_can_be_read() -> None:
    assert b"horse" not in SEALED
    assert b"password" not in SEALED
    assert Vault(KeyRing([OLD])).seal(TEXT) != SEALED


def test_a_key_that_was_replaced_still_opens() -> None:
    rotated = Vault(KeyRing([NEW, OLD]))

    assert rotated.open(SEALED) == TEXT
    with pytest.raises(Unusable):
        Vault(KeyRing([OLD])).open(rotated.seal(TEXT))


@settings(deadline=None)
@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_no_byte_of_it_can_be_changed(place: int, change: int) -> None:
    altered = bytearray(SEALED)
    altered[place] ^= change

    with pytest.raises(Unusable):
        Vault(KeyRing([OLD])).open(bytes(altered))


@settings(deadline=None)
@given(st.integers(0, len(SEALED) - 1))
def test_nothing_can_be_cut_off(length: int) -> None:
    with pytest.raises(Unusable):
        Vault(KeyRing([OLD])).open(SEALED[:length])


@rows(
    "keys, data, said",
    ("no keys", None, SEALED, "there are no [secrets] keys"),
    ("other keys", [FOREIGN], SEALED, "altered or cut short, or is of a server with other keys"),
    ("a newer release", [OLD], SEALED.replace(b" 1\n", b" 2\n", 1), "made by a newer release"),
    ("a format that never was", [OLD], SEALED.replace(b" 1\n", b" 0\n", 1), "is not known"),
    ("another file", [OLD], b"%PDF-1.7 " * 20, "no recording"),
    ("the first line alone", [OLD], SEALED.split(b"\n")[0] + b"\n", "cut short"),
)
def test_what_does_not_open_is_refused_with_the_reason(
    keys: list[bytes] | None, data: bytes, said: str
) -> None:
    with pytest.raises(Unusable) as caught:
        Vault(None if keys is None else KeyRing(keys)).open(data)

    assert said in str(caught.value)
