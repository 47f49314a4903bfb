"""What is on record of calls, and what never is."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.audit.audit import Audit
from app.audit.chain import MAX_LINE_BYTES
from app.auth.caller import Caller, Seal
from app.execution.execution import Execution
from app.methods.answers import Answer, Sender
from app.principal import Principal
from app.protocol.errors import ProtocolError, Unavailable
from app.protocol.inbound import Call
from app.protocol.schema import RequestMeta
from app.service import Service
from app.settings import Settings
from tests.audit.ledger import Clock
from tests.audit.test_writer import Shelf
from tests.sessions.carrying import until
from tests.support.cases import rows
from tests.support.toolfiles import write

TOOLS = '''
from app import ToolError, tool

ran = []


@tool
async def echo(text: str) -> str:
    """Give it back."""
    return text


@tool
async def breaks() -> str:
    """Fail."""
    raise ValueError("hunter2")


@tool(audit="required")
async def pay(amount: int) -> int:
    """Pay."""
    ran.append(amount)
    return amount


@tool(audit="off")
async def ping() -> str:
    """Nothing that anybody asks about later."""
    return "pong"
'''
ADA = Principal(
    issuer="https://login.example.com", subject="ada", tenant="acme", credential_id="jti-7"
)


class Desk:
    """A service whose record is kept on a shelf."""

    def __init__(self, service: Service, shelf: Shelf) -> None:
        self.service = service
        self.shelf = shelf

    @property
    def ran(self) -> list[int]:
        """What was paid."""
        found: list[int] = self.service.registry.catalog.tools["pay"].source.module.ran
        return found

    @property
    def records(self) -> list[dict[str, Any]]:
        """What is on record."""
        return [json.loads(b"{%b}" % record) for record in self.shelf.records]

    async def call(
        self,
        name: Any,
        arguments: Any = None,
        sender: Sender = Sender(ADA, None, "192.0.2.1"),  # noqa: B008  # immutable
        *,
        id: Any = 1,
        trace: str | None = None,
    ) -> Answer:
        """Send a call, and wait for its answer."""
        meta = RequestMeta("2026-07-28", {}, None, None, None, trace, {})
        params = {"name": name, "arguments": arguments or {}}
        answer = self.service.router.dispatch(Call(id, "tools/call", params, meta), sender)
        if not isinstance(answer, Answer):
            answer = await answer
        if isinstance(answer, Execution):
            await asyncio.wait_for(answer.wait(), 10)
        return answer


@asynccontextmanager
async def desk(tmp_path: Path, **settings: Any) -> AsyncIterator[Desk]:
    """A service with these settings."""
    shelf, clock = Shelf(), Clock()
    write(tmp_path / "tools" / "tools.py", TOOLS)
    validated = Settings.model_validate(
        {
            "tools": {"directory": tmp_path / "tools", "reload": False},
            "audit": {"directory": tmp_path / "audit", "patience_s": 0.2},
            **settings,
        }
    )
    audit = Audit(validated, sink=shelf, clock=clock)
    service = Service(validated, log_problems=False, audit=audit)
    await service.start()
    try:
        yield Desk(service, shelf)
    finally:
        shelf.runs.set()
        shelf.problem = None
        await service.stop()


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Desk]:
    """A service."""
    async with desk(tmp_path, secrets={"keys": ["k" * 32]}) as found:
        yield found


async def test_who_what_when_and_what_became_of_it(home: Desk) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    await home.call("echo", {"text": "hi"}, id="r-1", trace=trace)
    (record,) = home.records
    duration_ms, digest, version = (
        record.pop(name) for name in ("duration_ms", "arguments", "version")
    )
    assert record == {
        "time": "2027-01-15T08:00:00.000000Z",
        "kind": "call",
        "issuer": "https://login.example.com",
        "subject": "ada",
        "tenant": "acme",
        "credential": "jti-7",
        "address": "192.0.2.1",
        "tool": "echo",
        "request_id": "r-1",
        "trace_id": "a" * 32,
        "revision": "2026-07-28",
        "decision": "allow",
        "rule": "default (allow)",
        "outcome": "ok",
    }
    assert 0 < duration_ms < 10_000
    assert version == home.service.registry.catalog.tools["echo"].version.hex()
    assert len(digest) == 64


async def test_equal_arguments_have_equal_digests_that_nobody_can_guess(
    home: Desk, tmp_path: Path
) -> None:
    for text in ("yes", "yes", "no"):
        await home.call("echo", {"text": text})
    first, second, third = (record["arguments"] for record in home.records)
    assert first == second != third
    async with desk(tmp_path, secrets={"keys": ["o" * 32]}) as other:
        await other.call("echo", {"text": "yes"})
        assert other.records[0]["arguments"] != first


@rows(
    "name, arguments, expected",
    ("unknown", "nowhere", {}, {"decision": "none", "outcome": "protocol_error", "code": -32602}),
    ("bad arguments", "echo", {"t": 1}, {"decision": "allow", "outcome": "tool_error"}),
    ("an exception", "breaks", {}, {"decision": "allow", "outcome": "internal_error"}),
)
async def test_calls_that_fail_are_on_record_too(
    home: Desk, name: str, arguments: Any, expected: dict[str, Any]
) -> None:
    with contextlib.suppress(ProtocolError):
        await home.call(name, arguments)
    (record,) = home.records
    assert {key: record.get(key) for key in expected} == expected
    assert (record["version"] is None) == (name == "nowhere")
    assert ("error_id" in record) == (name == "breaks")


@rows(
    "name",
    ("a line of its own", 'x","hash":"0"}\n{"seq":1,"kind":"call"'),
    ("control characters", "a\x00\x1b[31m\u202e\u2028b"),
    ("a megabyte", "n" * 1_000_000),
    ("a lone surrogate", "\ud800"),
    ("percent signs", "%b%d%s"),
)
async def test_a_client_s_words_stay_within_their_field(home: Desk, name: str) -> None:
    sender = Sender(Principal(issuer=name, subject=name, tenant=name, credential_id=name))
    with pytest.raises(ProtocolError):
        await home.call(name, {name: name}, sender, id=name)
    (raw,), (record,) = home.shelf.records, home.records
    assert len(raw) < MAX_LINE_BYTES / 8
    assert b"\n" not in raw
    assert raw.isascii() or name.isprintable()
    assert set(record) >= {"tool", "issuer", "outcome"}
    assert all(str(value).isprintable() for value in record.values())


async def test_no_argument_result_or_credential_is_on_record(home: Desk) -> None:
    await home.call("echo", {"text": "sesame-4711"})
    await home.call("breaks")
    with pytest.raises(ProtocolError):
        await home.call("nowhere", {"password": "sesame-4711"})
    text = b"".join(home.shelf.records)
    assert b"sesame" not in text
    assert b"hunter2" not in text


async def test_a_token_without_an_id_is_named_by_its_digest(home: Desk) -> None:
    caller = Caller(issuer="i", subject="s", seal=Seal(), token_digest="sha256:abc")
    await home.call("echo", {"text": ""}, Sender(caller))
    assert home.records[0]["credential"] == "sha256:abc"


async def test_no_answer_leaves_before_its_record_is_written(home: Desk) -> None:
    home.shelf.runs.clear()
    calls = [asyncio.create_task(home.call("echo", {"text": str(n)})) for n in range(20)]
    done, _ = await asyncio.wait(calls, timeout=0.1)
    assert not done
    home.shelf.runs.set()
    await asyncio.gather(*calls)
    assert len(home.records) == 20
    assert len(home.shelf.batches) <= 2


async def test_a_tool_can_be_left_out(home: Desk) -> None:
    await home.call("ping")
    assert home.records == []


async def test_a_tool_that_demands_a_record_has_one_before_it_runs(home: Desk) -> None:
    home.shelf.runs.clear()
    call = asyncio.create_task(home.call("pay", {"amount": 5}))
    await asyncio.wait([call], timeout=0.05)
    assert home.ran == []
    home.shelf.runs.set()
    await call
    assert home.ran == [5]
    intent, end = home.records
    assert (intent["kind"], end["kind"]) == ("intent", "call")
    assert intent["intent"] == end["intent"] == 1
    assert intent["arguments"] == end["arguments"]
    assert intent["subject"] == "ada"
    assert "outcome" not in intent


@rows("how", ("fails", "fails"), ("hangs", "hangs"))
async def test_a_tool_that_demands_a_record_does_not_run_without(home: Desk, how: str) -> None:
    if how == "hangs":
        home.shelf.runs.clear()
    else:
        home.shelf.problem = OSError(28, "No space left on device")
    for _ in range(2):
        with pytest.raises(Unavailable, match="put on record") as refused:
            await home.call("pay", {"amount": 5})
        assert refused.value.setting == "audit"
    assert home.ran == []
    # Others go on.
    await home.call("echo", {"text": "hi"})
    assert home.service.audit is not None
    writer = home.service.audit.writer
    assert writer is not None
    assert writer.unrecorded > 0
    home.shelf.problem = None
    home.shelf.runs.set()
    await until(lambda: not writer.is_failing, "its recovery")
    await home.call("pay", {"amount": 6})
    assert home.ran == [6]
    kinds = [(record["kind"], record.get("outcome")) for record in home.records]
    assert kinds[:2] == [("intent", None), ("call", "limited")]
    assert kinds[-2:] == [("intent", None), ("call", "ok")]


async def test_an_intent_does_not_say_that_the_arguments_are_right(home: Desk) -> None:
    await home.call("pay", {"amount": "many"})
    assert [record["kind"] for record in home.records] == ["intent", "call"]
    assert home.records[1]["outcome"] == "tool_error"
    assert home.ran == []


async def test_without_a_record_such_a_tool_is_not_served(tmp_path: Path) -> None:
    write(tmp_path / "tools.py", TOOLS)
    settings = {"tools": {"directory": tmp_path, "reload": False}}
    service = Service(Settings.model_validate(settings), log_problems=False)
    await service.start()
    try:
        assert set(service.registry.catalog.tools) == {"echo", "breaks", "ping"}
        (problem,) = service.registry.problems
        assert 'audit="required" needs a record' in str(problem)
    finally:
        await service.stop()


async def test_settings_have_the_last_word(tmp_path: Path) -> None:
    overrides = {"echo": {"audit": "off"}, "ping": {"audit": "required"}, "pay": {"audit": "on"}}
    async with desk(tmp_path, overrides=overrides) as home:
        await home.call("echo", {"text": "hi"})
        await home.call("ping")
        await home.call("pay", {"amount": 1})
        kinds = [(record["kind"], record["tool"]) for record in home.records]
    assert kinds == [("intent", "ping"), ("call", "ping"), ("call", "pay")]
