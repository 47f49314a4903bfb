"""Questions and their answers, on the bus between replicas."""

import asyncio
import json
from typing import Any

import pytest

from app.legacy.revisions import REVISIONS
from app.protocol.errors import Unavailable
from app.protocol.schema import Implementation
from app.sessions.dialogue import TOPIC, Dialogues
from app.sessions.tokens import Session
from app.state.interface import StoreUnavailable
from app.state.local_bus import LocalBus
from app.toolkit import ToolError
from tests.support.cases import rows

SESSION = Session("s", REVISIONS["2025-11-25"], {}, Implementation("c", "1"), 1e12, "")
ASKED = {"method": "roots/list", "params": {}}


class _Gone(LocalBus):
    async def publish(self, topic: str, message: bytes) -> None:
        raise StoreUnavailable(topic, message)


def dialogues(bus: LocalBus, timeout_s: float = 5) -> Dialogues:
    none: Any = None  # nothing of it runs here
    return Dialogues(bus, none, none, timeout_s=timeout_s)


async def asked(of: Dialogues, said: list[Any]) -> "asyncio.Task[dict[str, Any]]":
    def say(message: bytes) -> None:
        said.append(json.loads(message))

    task = asyncio.create_task(of.ask(SESSION, ASKED, say, withdraw=say))
    await asyncio.sleep(0)
    assert said[0]["method"] == "roots/list"
    return task


@rows(
    "id",
    ("a number", 1),
    ("a word", "x"),
    ("too short", "ask-" + "0" * 31),
    ("too long", "ask-" + "0" * 33),
    ("not hexadecimal", "ask-" + "g" * 32),
    ("a line more", "ask-" + "0" * 32 + "\n"),
    ("none", None),
)
async def test_what_answers_no_question_is_not_told_to_the_fleet(id: Any) -> None:
    heard: list[bytes] = []
    bus = LocalBus()
    bus.subscribe(TOPIC, heard.append)
    await dialogues(bus).answered(SESSION, {"jsonrpc": "2.0", "id": id, "result": {}})
    assert heard == []


async def test_who_cannot_be_told_is_no_secret_to_the_client() -> None:
    answer = {"jsonrpc": "2.0", "id": "ask-" + "0" * 32, "result": {}}
    with pytest.raises(Unavailable):
        await dialogues(_Gone()).answered(SESSION, answer)


@pytest.mark.parametrize("depth", [10, 198, 199, 200])
async def test_an_answer_as_deep_as_a_body_may_be_arrives(depth: int) -> None:
    deep: Any = json.loads("[" * depth + "]" * depth)
    bus = LocalBus()
    here, there = dialogues(bus), dialogues(bus)
    said: list[Any] = []
    asking = await asked(here, said)
    answer = {"jsonrpc": "2.0", "id": said[0]["id"], "result": {"roots": deep}}
    await there.answered(SESSION, answer)
    assert await asking == answer


async def test_a_question_that_is_over_is_withdrawn() -> None:
    said: list[Any] = []
    with pytest.raises(ToolError):
        await (await asked(dialogues(LocalBus(), timeout_s=0), said))
    assert said[1]["method"] == "notifications/cancelled"
    assert said[1]["params"]["requestId"] == said[0]["id"]
    said = []
    asking = await asked(dialogues(LocalBus()), said)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert said[1]["params"]["requestId"] == said[0]["id"]
