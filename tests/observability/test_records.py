"""What one request adds to the metrics, however many strange ones there are."""

import pytest

from app.methods.record import LABELS, RequestRecord
from app.observability import metrics
from app.observability.counting import Names
from app.observability.logs import EventLog
from app.principal import Principal
from app.protocol.errors import InvalidParams
from app.protocol.inbound import Call
from app.protocol.jsonrpc import Message
from app.protocol.schema import Implementation, RequestMeta
from app.settings.metrics import MAX_TOOLS

MANY = 10_000


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> EventLog:
    """One that writes nothing, beside families that are empty."""
    for family in metrics.FAMILIES.values():
        monkeypatch.setattr(family, "values", {})
    monkeypatch.setattr(metrics, "tools", Names(MAX_TOOLS))
    silent = EventLog("request")
    silent.is_enabled = False
    return silent


def call(method: str, name: str, client: str) -> Call:
    meta = RequestMeta("2026-07-28", {}, Implementation(client, "1"), None, None, None, {})
    return Call(client, method, {"name": name}, meta)


def test_ten_thousand_names_that_there_are_not_are_one_series(log: EventLog) -> None:
    for number in range(MANY):
        record = RequestRecord()
        record.call(call("tools/call", f"tool {number}", f"client {number}"))
        record.refused(InvalidParams(f"Unknown tool: {number}"))
        record.write(log, 400)

    assert metrics.TOOL_CALLS.copy() == {(metrics.UNKNOWN, "protocol_error"): MANY}
    assert metrics.REQUESTS.copy() == {("tools/call", "modern", "400"): MANY}
    assert metrics.RESPONSE_TIME.copy() == {}


def test_ten_thousand_methods_and_statuses_are_a_few_series(log: EventLog) -> None:
    for number in range(MANY):
        record = RequestRecord()
        record.call(call(f"method/{number}", "x", "c"))
        record.write(log, number)

    labels = metrics.REQUESTS.copy()
    assert {method for method, _, _ in labels} == {metrics.UNKNOWN}
    assert len(labels) == 500 + 1  # statuses that HTTP has, and none


@pytest.mark.parametrize("method", sorted(LABELS))
def test_a_method_of_the_protocol_is_told_by_its_name(log: EventLog, method: str) -> None:
    record = RequestRecord()
    record.call(call(method, "x", "c"))
    record.write(log, 200)

    assert metrics.REQUESTS.copy() == {(method, "modern", "200"): 1}


def test_a_request_is_counted_once(log: EventLog) -> None:
    record = RequestRecord()
    record.call(call("tools/list", "x", "c"))
    record.is_written = True
    record.write(log, 200)

    assert metrics.REQUESTS.copy() == {}


def test_the_credential_of_a_batch_is_counted_once(log: EventLog) -> None:
    record = RequestRecord()
    record.principal = Principal(issuer="api-key", subject="ada")
    parts = [record.part(Message(id, "ping", None)) for id in (1, 2)]
    for each in (*parts, record):
        each.write(log, 200)

    assert metrics.AUTHENTICATIONS.copy() == {("ok",): 1}
