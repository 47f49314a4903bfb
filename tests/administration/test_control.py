"""The control document: what was encoded is read again, and nothing else is."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.fleet.control import (
    DRAINED_S,
    MAX_BYTES,
    MAX_REVOKED,
    REVOCATION_MARGIN_S,
    Control,
    Epoch,
    Full,
    Unusable,
    parse_control,
    parse_epoch,
)
from app.policy.rollouts import ON, Switch
from tests.support.cases import rows

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
instants = st.integers(0, 10**11).map(float)
documents = st.builds(
    Control,
    epoch=st.builds(
        Epoch, st.integers(0, 1 << 53), st.binary(min_size=8, max_size=8).map(bytes.hex)
    ),
    switches=st.dictionaries(
        names,
        st.builds(
            Switch,
            enabled=st.booleans(),
            percent=st.none() | st.integers(0, 100),
            tenants=st.frozensets(names, max_size=3),
        ),
        max_size=4,
    ),
    revoked=st.dictionaries(st.tuples(names, names), st.none() | instants, max_size=4),
    drained=st.dictionaries(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True), instants),
    reloads=st.integers(0, 1000),
)
SOUND: dict[str, Any] = orjson.loads(
    Control(epoch=Epoch(3, "ab" * 8), reloads=1)
    .with_switch("a", Switch(percent=10))
    .with_revoked(("api-key", "ci"), 5.0)
    .with_drained("host-1", 7.0)
    .encode()
)


@given(documents)
def test_a_document_is_read_as_it_was_written(document: Control) -> None:
    assert parse_control(document.encode()) == document


@given(st.builds(Epoch, st.integers(0, 1 << 53), st.binary(min_size=8, max_size=8).map(bytes.hex)))
def test_an_epoch_likewise(epoch: Epoch) -> None:
    assert parse_epoch(epoch.encode()) == epoch


@pytest.mark.parametrize(
    "data",
    [b"", b":", b"1", b"1:", b"x:" + b"0" * 16, b"-1:" + b"0" * 16, b"1:" + b"G" * 16, b"9" * 99,
     b"\xb2:" + b"0" * 16, b"99999999999999999:" + b"0" * 16],
)  # fmt: skip
def test_what_is_no_epoch_is_none(data: bytes) -> None:
    assert parse_epoch(data) is None


@given(st.binary(max_size=200))
def test_garbage_is_no_document(data: bytes) -> None:
    with pytest.raises(Unusable):
        parse_control(data)


@rows(
    "change",
    ("another version", {"format": 2}),
    ("a list of switches", {"switches": []}),
    ("a switch that is a number", {"switches": {"a": 1}}),
    ("a switch without tenants", {"switches": {"a": {"enabled": True, "percent": 1}}}),
    ("101 percent", {"switches": {"a": {"enabled": True, "percent": 101, "tenants": []}}}),
    ("a percentage that is true",
     {"switches": {"a": {"enabled": True, "percent": True, "tenants": []}}}),
    ("a tenant that is a number",
     {"switches": {"a": {"enabled": True, "percent": 1, "tenants": [1]}}}),
    ("an endless name", {"switches": {"a" * 257: {"enabled": True, "percent": 1, "tenants": []}}}),
    ("revoked at a word", {"revoked": {"api-key": {"ci": "soon"}}}),
    ("revoked ids in a list", {"revoked": {"api-key": ["ci"]}}),
    ("a revision below zero", {"revision": -1}),
    ("a revision of a half", {"revision": 1.5}),
    ("a revision without end", {"revision": 1 << 60}),
    ("a stamp that is none", {"stamp": "x"}),
    ("a stamp that is a number", {"stamp": 5}),
    ("reloads of nothing", {"reloads": None}),
)  # fmt: skip
def test_a_document_with_one_fault_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(Unusable):
        parse_control(orjson.dumps({**SOUND, **change}))


def test_one_without_a_member_is_none_and_so_is_one_too_large() -> None:
    for name in SOUND:
        with pytest.raises(Unusable):
            parse_control(orjson.dumps({key: SOUND[key] for key in SOUND if key != name}))
    with pytest.raises(Unusable, match="too large"):
        parse_control(b" " * (MAX_BYTES + 1))


def test_ten_thousand_revocations_fit_and_one_more_does_not() -> None:
    jti = "9f2c1e4a-5d0b-4c7e-8f39-{:012d}"
    full = Control(
        revoked={("https://login.example.com", jti.format(n)): 1e9 for n in range(MAX_REVOKED)}
    )
    assert len(full.encode()) < MAX_BYTES
    assert parse_control(full.encode()).revoked == full.revoked
    with pytest.raises(Full, match="10000 revoked credentials"):
        full.with_revoked(("api-key", "ci"), None).encode()
    long = Control(revoked={("i" * 256, f"{n:0256d}"): 1e9 for n in range(MAX_REVOKED)})
    with pytest.raises(Full, match="larger"):
        long.encode()


def test_what_time_has_made_void_goes_when_something_is_changed() -> None:
    document = (
        Control()
        .with_revoked(("a", "over"), 100.0)
        .with_revoked(("a", "leeway"), 101.0)
        .with_revoked(("a", "endless"), None)
        .with_drained("gone", 0.0)
        .with_drained("there", 0.0)
    )
    now = 100.0 + REVOCATION_MARGIN_S
    tidied = document.tidied(now, {"there"})
    assert set(tidied.revoked) == {("a", "leeway"), ("a", "endless")}
    assert set(tidied.drained) == {"gone", "there"}
    assert set(document.tidied(DRAINED_S, {"there"}).drained) == {"there"}


def test_a_switch_for_everybody_needs_no_entry() -> None:
    document = Control().with_switch("a", Switch(percent=10)).with_switch("b", ON)
    assert set(document.switches) == {"a"}
    assert document.with_switch("a", ON) == Control()


def test_a_second_drain_does_not_make_it_younger() -> None:
    document = Control().with_drained("a", 1.0).with_drained("a", 2.0)
    assert document.drained == {"a": 1.0}
    assert document.with_undrained("a") == Control()
