"""Frames between the server and its workers, and what a worker's call says."""

import dataclasses
import pickle
import socket
import threading
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.auth.caller import Caller, Seal, read_only_claims
from app.execution.execution import BURST
from app.execution.processes.channel import Socket, WorkerChannel
from app.execution.processes.wire import (
    PRINCIPAL_FIELDS,
    REASONS,
    BadFrame,
    Frame,
    FrameReader,
    Kind,
    encode,
    principal_fields,
    principal_of,
)
from app.principal import ANONYMOUS, Principal
from tests.support.cases import rows

FRAMES = st.lists(
    st.builds(
        Frame,
        st.integers(0, 255),
        st.integers(0, len(REASONS) - 1),
        st.binary(max_size=300),
    ),
    max_size=5,
)


@given(FRAMES, st.lists(st.integers(1, 50), max_size=40))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[Frame], cuts: list[int]
) -> None:
    stream = b"".join(encode(kind, payload, reason) for kind, reason, payload in frames)
    reader = FrameReader(300)
    found: list[Frame] = []
    for cut in cuts:
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    found += reader.feed(stream)
    assert found == frames


@rows(
    "data",
    ("too long", encode(Kind.RESULT, b"x" * 301)),
    ("a length that is nonsense", b"\xff" * 6),
    ("a reason that is none", encode(Kind.RESULT, b"", len(REASONS))),
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(FrameReader(300).feed(data))


class Said:
    """A call's channel, and what comes out of its other end."""

    def __init__(self, **how: Any) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        how = {"remaining_s": 60, "wants_progress": True, "log_level": 0, **how}
        self.channel = WorkerChannel(Socket(theirs), **how)
        self._theirs = theirs
        self._reader = FrameReader(1 << 20)

    def values(self) -> list[Any]:
        try:
            data = self._ours.recv(1 << 20)
        except BlockingIOError:
            data = b""
        return [orjson.loads(frame.payload) for frame in self._reader.feed(data)]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def test_a_burst_is_sent_then_the_newest_value_when_the_call_ends() -> None:
    said = Said()
    for number in range(200):
        said.channel.progress(number, None, None)
    said.channel.end()
    values = [done for done, _, _ in said.values()]
    assert values[:BURST] == list(range(BURST))
    assert values[-1] == 199
    assert len(values) < 60
    said.close()


def test_the_newest_value_is_sent_soon_even_if_the_tool_says_no_more() -> None:
    said = Said()
    for number in range(200):
        said.channel.progress(number, None, None)
    found: list[int] = []
    for _ in range(200):
        found += [done for done, _, _ in said.values()]
        if 199 in found:
            break
        threading.Event().wait(0.01)
    assert found[-1] == 199
    said.channel.end()
    said.close()


def test_what_a_thread_says_after_its_call_goes_nowhere() -> None:
    said = Said()
    said.channel.end()
    said.channel.progress(1, None, None)
    said.channel.log("error", "x", None)
    assert said.values() == []
    assert said.channel.is_over
    said.close()


@rows(
    "say, error",
    ("progress that is no number", lambda c: c.progress("1", None, None), TypeError),
    ("progress that is not finite", lambda c: c.progress(float("nan"), None, None), ValueError),
    ("a total that is no number", lambda c: c.progress(1, True, None), TypeError),
    ("a message that is no text", lambda c: c.progress(1, None, 5), TypeError),
    ("a message with a lone surrogate", lambda c: c.progress(1, None, "\ud800"), TypeError),
    ("an unknown level", lambda c: c.log("loud", "x", None), ValueError),
    ("data without a JSON form", lambda c: c.log("error", object(), None), TypeError),
)
def test_a_mistake_of_the_tool_is_raised_in_the_tool(say: Any, error: type[Exception]) -> None:
    said = Said()
    with pytest.raises(error):
        say(said.channel)
    said.close()


def test_a_flood_of_log_messages_is_cut() -> None:
    said = Said()
    for number in range(5000):
        said.channel.log("error", number, None)
    assert 0 < len(said.values()) < 1000
    said.channel.end()
    said.close()


def test_messages_below_the_wanted_level_are_not_sent() -> None:
    said = Said(log_level=4, wants_progress=False)
    for level in ("debug", "warning", "error", "emergency"):
        said.channel.log(level, level, None)
    said.channel.progress(1, None, None)
    assert [data for _, data, _ in said.values()] == ["error", "emergency"]
    said.close()


def test_what_needs_the_server_itself_is_refused_clearly() -> None:
    said = Said()
    for needs_the_server in (said.channel.asker, said.channel.handles):
        with pytest.raises(RuntimeError, match="Leave out isolation"):
            needs_the_server()
    said.close()


def test_a_caller_crosses_with_its_claims_and_without_what_others_keep_in_it() -> None:
    claims = {"groups": ["a", "b"], "home": {"town": "Graz", "floors": [1, 2]}}
    caller = Caller(
        issuer="https://issuer",
        subject="alice",
        scopes=frozenset({"a:read"}),
        claims=read_only_claims(claims),
        tenant="t",
        roles=frozenset({"clerk"}),
        clearance="high",
        approvals=frozenset({"boss"}),
        credential_id="id",
        expires_at=5.0,
        seal=Seal(),
    )
    caller.found[0] = threading.Lock()  # whatever the registry keeps there

    fields = principal_fields(caller)
    assert fields is not None
    assert fields["claims"] == claims
    assert "found" not in fields
    other = principal_of(pickle.loads(pickle.dumps(fields)))  # noqa: S301  # our own

    assert type(other) is Principal
    assert other.grants == caller.grants
    assert other.found == [None, None]
    assert all(getattr(other, name) == getattr(caller, name) for name in PRINCIPAL_FIELDS)
    assert other.claims == caller.claims
    assert other.claims["home"]["floors"] == (1, 2)
    with pytest.raises(TypeError):
        other.claims["home"]["town"] = "Linz"
    assert set(PRINCIPAL_FIELDS) | {"claims", "grants", "found"} == {
        field.name for field in dataclasses.fields(Principal)
    }


def test_an_anonymous_caller_crosses_as_nothing() -> None:
    assert principal_fields(ANONYMOUS) is None
    assert principal_of(None) is ANONYMOUS
