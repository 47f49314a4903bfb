"""Batches are read as a whole, or refused as a whole."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.legacy.revisions import REVISIONS
from app.protocol.errors import InvalidRequest
from app.sessions.batches import MAX_BATCH, read_batch
from tests.support.cases import rows

MARCH = REVISIONS["2025-03-26"]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def request(id: Any = 1, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def cancel(id: Any) -> dict[str, Any]:
    params = {"requestId": id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


ANSWER = {"jsonrpc": "2.0", "id": "ask", "result": {}}


@rows(
    "values",
    ("nothing", []),
    ("too much", [request(n) for n in range(MAX_BATCH + 1)]),
    ("a number", [request(), 1]),
    ("a batch", [[request()]]),
    ("initialize", [request(), request(2, "initialize")]),
    ("a modern request", [request(), request(2, "tools/list", _meta=META)]),
    ("one id twice", [request(1), request(1, "tools/list")]),
    ("an odd id", [request(1.5)]),
)
def test_one_wrong_message_refuses_all(values: list[Any]) -> None:
    with pytest.raises(InvalidRequest):
        read_batch([ANSWER, *values] if values else values, MARCH, in_session=True)


@rows("version", ("June", "2025-06-18"), ("November", "2025-11-25"))
def test_a_revision_without_batches_reads_none(version: str) -> None:
    with pytest.raises(InvalidRequest, match=version):
        read_batch([request()], REVISIONS[version], in_session=True)


def test_an_answer_comes_in_a_session_alone() -> None:
    assert read_batch([ANSWER], MARCH, in_session=True).responses == [ANSWER]
    with pytest.raises(InvalidRequest):
        read_batch([ANSWER], MARCH, in_session=False)


@given(st.lists(st.integers(0, 5) | st.sampled_from("012345"), unique_by=repr), st.data())
def test_what_a_batch_cancels_itself_is_never_begun(ids: list[Any], data: st.DataObject) -> None:
    cancelled = [id for id in ids if data.draw(st.booleans())]
    values = [*map(request, ids), *map(cancel, cancelled), cancel(None)]
    found = read_batch(data.draw(st.permutations(values)), MARCH, in_session=False)
    left = [id for id in ids if repr(id) not in set(map(repr, cancelled))]
    assert sorted(map(repr, left)) == sorted(repr(message.id) for message in found.requests)
    assert len(found.notifications) == len(cancelled) + 1
