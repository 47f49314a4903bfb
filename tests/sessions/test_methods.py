"""Calls of sessions that share an id, a session, or nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.backing import State
from app.methods.answers import Reply, Sender
from app.protocol.jsonrpc import Message
from app.service import Service
from app.sessions.methods import LegacyMethods, Running
from app.sessions.tokens import Session
from app.settings import Settings
from app.state.interface import StoreUnavailable
from app.state.local_bus import LocalBus
from tests.sessions.conftest import CONFIG, TOOLS
from tests.sessions.conversation import CLIENT

SENDER = Sender()


class _Broken(LocalBus):
    """Nobody else can be told."""

    async def publish(self, topic: str, message: bytes) -> None:
        raise StoreUnavailable(topic, message)


@pytest.fixture(params=["a bus", "a broken bus"])
async def methods(request: pytest.FixtureRequest) -> AsyncIterator[LegacyMethods]:
    state = State()
    if request.param == "a broken bus":
        state.bus = _Broken()
    tools = {"directory": TOOLS, "reload": False}
    service = Service(Settings.model_validate({**CONFIG, "tools": tools}), state=state)
    await service.start()
    yield service.legacy
    await service.stop()


async def opened(methods: LegacyMethods) -> Session:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    token = methods.open(Message(0, "initialize", params), SENDER.principal).token
    return await methods.sessions.find(token, SENDER.principal)


async def begun(methods: LegacyMethods, session: Session, name: str, **arguments: Any) -> Running:
    message = Message("same", "tools/call", {"name": name, "arguments": arguments})
    running = await methods.answer(message, session.revision, session, SENDER, can_ask=False)
    assert isinstance(running, Running)
    return running


async def test_the_end_of_a_call_is_not_that_of_another_with_its_id(
    methods: LegacyMethods, tmp_path: Path
) -> None:
    session = await opened(methods)
    first = await begun(methods, session, "count", to=1)
    second = await begun(methods, session, "wait", path=str(tmp_path / "lines"))
    await first.execution.wait()
    methods.finished(first.session, "same")
    assert not second.execution.is_over
    await methods.cancel(session, {"requestId": "same"})
    assert second.execution.cancelled
    methods.finished(second.session, "same")
    assert not methods._running


async def test_a_call_is_of_the_session_in_which_it_began(methods: LegacyMethods) -> None:
    """Over stdio there may be another one by the time that it ends."""
    session = await opened(methods)
    running = await begun(methods, session, "count", to=1)
    await opened(methods)
    while not running.execution.is_over:
        running.execution.take_notifications()
        await running.execution.wait()
    assert running.session == session
    methods.finished(running.session, "same")
    assert not methods._running


async def test_what_is_open_in_a_session_is_told_of_its_end(methods: LegacyMethods) -> None:
    session, other = await opened(methods), await opened(methods)
    told: list[str] = []
    methods.on_end(session.id, lambda: told.append("first"))
    forget = methods.on_end(session.id, lambda: told.append("gone"))
    stay = methods.on_end(other.id, lambda: told.append("another"))
    forget()
    await methods.end(session)
    assert told == ["first"]
    stay()
    stay()
    assert other.id not in methods._enders


async def test_how_an_answer_ended_is_known_with_it(methods: LegacyMethods) -> None:
    session = await opened(methods)
    bad = Message(1, "tools/call", {"name": "add", "arguments": {"a": "x"}})
    answer = await methods.answer(bad, session.revision, session, SENDER, can_ask=False)
    assert isinstance(answer, Reply) and answer.outcome == "tool_error"
