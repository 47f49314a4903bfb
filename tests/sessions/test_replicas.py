"""Conversations whose every step reaches another replica: three servers with one state."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, cast

import pytest

from app.backing import State
from app.http.serving import Server, make_server
from app.server import create_app
from app.settings import Settings
from app.state.memory import MemoryStore
from tests.sessions.conftest import CONFIG, TOOLS
from tests.sessions.conversation import Conversation
from tests.support.legacy_schema import VERSIONS
from tests.support.stores import ANY_KIND, RedisServer

REPLICAS: Final = 3
CONVERSATIONS: Final = 200
AT_ONCE: Final = 8
KEY: Final = "k" * 32


@dataclass
class Replica:
    """One server of the fleet."""

    url: str = ""


class Fleet:
    """Servers in one event loop, which share a state as replicas share a store and a bus.

    Args:
        url: Of a Redis that they share, each with connections of its own; None: ``state``.
    """

    def __init__(self, state: State | None = None, *, url: str | None = None) -> None:
        self._state = None if url else state or State()
        self._url = url or "memory://"
        self.replicas: list[Replica] = []
        self._servers: list[Server] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> list[Replica]:
        self._thread.start()
        assert self._ready.wait(30)
        return self.replicas

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        settings = Settings.model_validate(
            {
                **CONFIG,
                "server": {**CONFIG["server"], "port": 0},
                "tools": {"directory": TOOLS, "reload": False},
                "secrets": {"keys": [KEY]},
                "state": {"url": self._url, "timeout_s": 10},
                "limits": {"rates": [], "list_rates": []},
            }
        )
        for _ in range(REPLICAS):
            app = create_app(settings, state=self._state)
            self._servers.append(make_server(app, settings.server, on_listening=self._listening))
        await asyncio.gather(*(server.serve() for server in self._servers))

    def _listening(self, host: str, port: int) -> None:
        self.replicas.append(Replica(f"http://{host}:{port}/mcp"))
        if len(self.replicas) == REPLICAS:
            self._ready.set()


@pytest.fixture(scope="module", params=["memory", ANY_KIND])
def fleet(request: pytest.FixtureRequest) -> Iterator[list[Replica]]:
    """The URLs of the replicas."""
    if request.param == "memory":
        with Fleet() as replicas:
            yield replicas
    else:
        with RedisServer(request.param) as redis, Fleet(url=redis.url) as replicas:
            yield replicas


@pytest.mark.timeout(180)
def test_every_step_of_a_conversation_may_reach_another_replica(fleet: list[Replica]) -> None:
    form = {"action": "accept", "content": {"city": "Oslo"}}

    def converse(number: int) -> None:
        version = VERSIONS[number % len(VERSIONS)]
        turned: Any = [*fleet[number % REPLICAS :], *fleet[: number % REPLICAS]]
        with Conversation(turned, version) as conversation:
            assert conversation.open()["protocolVersion"] == version
            assert conversation.ask("tools/list").result["tools"]
            conversation.ask("logging/setLevel", {"level": "error"})
            assert "7" in conversation.call("add", {"a": 3, "b": 4}).text
            counted = conversation.call("count", {"to": 2})
            assert len(counted.messages) == 1, "the level was set on another replica"
            if version >= "2025-06-18":
                answers = {"elicitation/create": form}
                assert "Oslo" in conversation.call("both", answers=answers).text
            assert conversation.end().status_code == 204
            for _ in range(REPLICAS):
                assert conversation.ask("ping").status == 404

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(converse, number) for number in range(CONVERSATIONS)]:
            done.result()


class _Accident(MemoryStore):
    async def get(self, name: str) -> bytes | None:
        raise ZeroDivisionError(name)


def test_a_bug_of_ours_is_told_in_band_and_the_others_of_a_batch_go_on() -> None:
    """A store that answers with an accident to whoever asks for the level of a session."""
    state = State()
    state.sessions = _Accident()
    with Fleet(state) as fleet, Conversation(cast("Any", fleet), "2025-03-26") as conversation:
        conversation.open()
        answer = conversation.call("add", {"a": 1})
        assert (answer.status, answer.code) == (200, -32603)
        call = {"name": "add", "arguments": {"a": 1}}
        response = conversation.post(
            [conversation.message("ping", id=1), conversation.message("tools/call", call, id=2)]
        )
        by_id = {message["id"]: message for message in response.json()}
        assert by_id[1]["result"] == {} and by_id[2]["error"]["code"] == -32603
        assert response.status_code == 200
