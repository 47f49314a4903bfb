"""Calls whose count must be waited for: what changes meanwhile, and what is never counted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.auth.challenge import Challenge
from app.execution.asking import Desk
from app.execution.caching import ResultCache
from app.execution.course import Courses
from app.execution.endings import Endings
from app.execution.execution import Execution
from app.execution.executor import Executor
from app.execution.idempotency import Claims
from app.execution.processes.pool import Processes
from app.execution.results import ResultEncoder
from app.methods.answers import Answer, Reply, Sender
from app.methods.discover import server_messages
from app.methods.tools import Asked, CallTool, ListTools
from app.policy.limits import Limiter
from app.protocol.errors import InvalidParams, ProtocolError, TooManyRequests, Unavailable
from app.protocol.inbound import Call
from app.protocol.schema import RequestMeta
from app.protocol.sealed import KeyRing
from app.registry.catalog import Catalog
from app.registry.once import load_once
from app.settings import Settings
from app.state.interface import Quota, Wait
from app.state.memory import MemoryStore
from tests.support.cases import rows
from tests.support.toolfiles import write_tool

ONCE = {"rates": [{"tools": ["*"], "bucket": "user", "capacity": 1, "period_s": 60}]}


class _Slow(MemoryStore):
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def admit(self, quotas: Sequence[Quota]) -> Wait | None:  # type: ignore[override]
        self.asked.set()
        await self.answers.wait()
        return super().admit(quotas)


class Counter:
    """The handlers of calls and lists over a folder that is loaded again by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = _Slow()
        self.settings = Settings()
        self.load(limits=ONCE)
        messages = server_messages(self.settings)
        encoder = ResultEncoder(messages, max_bytes=10_000)
        desk = Desk(KeyRing([bytes(32)]), MemoryStore(), ask_ttl_s=600)
        self.endings = Endings(encoder, end=lambda _: None)
        processes = Processes(self.settings.execution, self.endings, log_level="error")
        self.executor = Executor(
            self.settings,
            self.endings,
            desk=desk,
            begin=lambda _: None,
            end=lambda _: None,
            processes=processes,
        )
        courses = Courses(
            self.executor,
            self.endings,
            cache=ResultCache(0),
            claims=Claims(MemoryStore(), ttl_s=60),
            limit=10,
        )
        limiter = Limiter(self.store)
        self.call_tool = CallTool(
            lambda: self.catalog,
            self.executor,
            encoder,
            courses,
            limiter=limiter,
            desk=desk,
            clock=lambda: 0.0,
            challenge=lambda: Challenge(self.settings),
        )
        self.list_tools = ListTools(lambda: self.catalog, limiter, clock=lambda: 0.0)

    def load(self, **sections: Any) -> None:
        """Publish what the folder and these settings are now."""
        tools = {"tools": {"directory": str(self.folder)}}
        self.settings = Settings.model_validate({**tools, **sections})
        self.catalog: Catalog = load_once(self.settings, server_messages(self.settings)).catalog

    def begin(self) -> Any:
        """A call of `old`, whose count is asked for."""
        return self.call_tool(self.request("tools/call", {"name": "old"}), Sender())

    @staticmethod
    def request(method: str, params: dict[str, Any]) -> Call:
        meta = RequestMeta("2026-07-28", {}, None, None, None, None, {})
        return Call(1, method, params, meta)

    async def finish(self, coming: Any) -> bytes:
        """Let the store answer; the result of the call."""
        self.store.answers.set()
        return await result_of(await coming)


async def result_of(answer: Answer) -> bytes:
    if isinstance(answer, Reply):
        return answer.result
    assert isinstance(answer, Execution)
    await answer.wait()
    assert answer.result is not None
    return answer.result


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Counter]:
    write_tool(tmp_path, "old", "one")
    desk = Counter(tmp_path)
    yield desk
    await desk.executor.stop()


async def test_a_call_waits_for_its_count_and_runs(desk: Counter) -> None:
    assert b'"one"' in await desk.finish(desk.begin())

    with pytest.raises(TooManyRequests):
        await desk.finish(desk.begin())


async def test_a_tool_that_is_replaced_meanwhile_runs_as_it_is_now(desk: Counter) -> None:
    """Nothing holds the version that was found; what it leans on may be closed."""
    coming = desk.begin()
    write_tool(desk.folder, "old", "two")
    desk.load(limits=ONCE)

    assert b'"two"' in await desk.finish(coming)


@rows(
    "sections, refusal",
    ("gone", {"overrides": {"old": {"enabled": False}}}, (400, -32602)),
    ("hidden", {"policies": [{"tools": ["x"]}]}, (400, -32602)),
    ("for others", {"policies": [{"tools": ["*"], "requires": {"scopes": ["a"]}}]}, (401, -31401)),
)
async def test_what_may_no_longer_be_called_is_refused(
    desk: Counter, sections: dict[str, Any], refusal: tuple[int, int]
) -> None:
    coming = desk.begin()
    desk.load(**sections)

    with pytest.raises(ProtocolError) as refused:
        await desk.finish(coming)

    assert (refused.value.http_status, refused.value.code) == refusal


async def test_a_server_that_has_become_full_meanwhile_says_so(desk: Counter) -> None:
    coming = desk.begin()
    desk.endings.running = desk.settings.limits.concurrent_calls

    with pytest.raises(Unavailable):
        await desk.finish(coming)
    with pytest.raises(Unavailable):  # and is not asked to count what has no room
        desk.begin()


async def test_a_tool_that_there_is_not_is_refused_when_it_is_counted(desk: Counter) -> None:
    desk.store.answers.set()
    request = desk.request("tools/call", {"name": "nobody"})

    outcomes = []
    for _ in range(2):
        with pytest.raises(ProtocolError) as refused:
            await desk.finish(desk.call_tool(request, Sender()))
        outcomes.append(type(refused.value))

    assert outcomes == [InvalidParams, TooManyRequests]


async def test_a_list_waits_for_its_count(desk: Counter) -> None:
    coming: Any = desk.list_tools(desk.request("tools/list", {}), Sender())

    assert b'"old"' in await desk.finish(coming)


async def test_a_retry_of_a_call_that_was_counted_is_free(desk: Counter) -> None:
    call = desk.request("tools/call", {"name": "old"})
    (offer,) = desk.catalog.view(Sender().principal, 0.0).offers.values()
    for _ in range(3):
        asked = Asked(offer, {}, call, Sender(), 30.0, None, state="opened")
        begun: Any = desk.call_tool._begin(desk.catalog, asked)
        assert b'"one"' in await result_of(begun)

    assert not desk.store.asked.is_set()
