"""Pages of this server that a call of an older revision waits for."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from app.execution.asking import Desk
from app.legacy.revisions import REVISIONS
from app.methods.answers import Sender
from app.principal import Principal
from app.protocol.jsonrpc import Message
from app.protocol.schema import Implementation
from app.protocol.sealed import KeyRing
from app.service import Service
from app.sessions.dialogue import Dialogues, LiveAsking
from app.sessions.methods import Running
from app.sessions.tokens import Session
from app.settings import Settings
from app.state.local_bus import LocalBus
from app.state.memory import MemoryStore
from app.toolkit import ToolError
from tests.sessions.conftest import CONFIG, TOOLS

URL = "https://tools.example/elicit"
ADA = Principal(issuer="https://issuer.example", subject="ada")
CAPABILITIES: dict[str, Any] = {"elicitation": {"url": {}}}
LATEST = REVISIONS["2025-11-25"]
SESSION = Session("s", LATEST, CAPABILITIES, Implementation("c", "1"), 1e12, "")


class Account(BaseModel):
    password: SecretStr


class Talk:
    """A call that asks, and its client.

    Args:
        timeout_s: How long a page may take.
    """

    def __init__(self, service: Service, running: Running, timeout_s: float = 5) -> None:
        keys = KeyRing([b"k" * 32])
        self.desk = Desk(keys, MemoryStore(), ask_ttl_s=60, pages_url=lambda _: URL)
        self.dialogues = Dialogues(LocalBus(), service.executor, self.desk, timeout_s=timeout_s)
        self.execution = running.execution
        self.asking = LiveAsking(self.dialogues, SESSION, ADA, self.execution)

    def ask(self) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.asking.elicit_page("a", "Your password?", Account))

    async def agree(self) -> str:
        """Say yes to the next question; the handle of its page."""
        await self.execution.wait()
        (said,) = map(json.loads, self.execution.take_notifications())
        answer = {"jsonrpc": "2.0", "id": said["id"], "result": {"action": "accept"}}
        await self.dialogues.answered(SESSION, answer)
        return str(said["params"]["url"]).removeprefix(f"{URL}/")

    async def complete(self, handle: str, content: dict[str, Any]) -> None:
        page = await self.desk.pages.find(handle)
        assert page is not None
        assert await self.desk.pages.complete(handle, page, content)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    tools = {"directory": TOOLS, "reload": False}
    service = Service(Settings.model_validate({**CONFIG, "tools": tools}))
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def running(service: Service, tmp_path: Path) -> Running:
    params = {"name": "wait", "arguments": {"path": str(tmp_path / "lines")}}
    message = Message(1, "tools/call", params)
    answer = await service.legacy.answer(message, LATEST, None, Sender(), can_ask=False)
    assert isinstance(answer, Running)
    return answer


async def test_the_same_page_serves_whoever_asks_again(service: Service, running: Running) -> None:
    talk = Talk(service, running)
    one, other = talk.ask(), talk.ask()
    await talk.complete(await talk.agree(), {"password": "hunter2"})
    for asked in (one, other, talk.ask()):
        assert (await asked).data.password.get_secret_value() == "hunter2"
    assert not talk.execution.has_notifications


async def test_what_does_not_fit_is_told_to_the_tool_which_may_ask_anew(
    service: Service, running: Running
) -> None:
    talk = Talk(service, running)
    for content, problem in (({}, "does not fit"), ({"password": "hunter2"}, None)):
        asked = talk.ask()
        await talk.complete(await talk.agree(), content)
        if problem is None:
            assert (await asked).action == "accept"
        else:
            with pytest.raises(ToolError, match=problem):
                await asked


async def test_a_page_that_nobody_waits_for_is_closed(service: Service, running: Running) -> None:
    talk = Talk(service, running, timeout_s=0.2)
    asked = talk.ask()
    handle = await talk.agree()
    with pytest.raises(ToolError, match="in time"):
        await asked
    assert await talk.desk.pages.find(handle) is None
