"""Stores and buses of each kind: in memory, in Redis 6.2 and in Valkey 9."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from app.backing import State
from app.settings import StateSettings
from app.sharing import state_of
from tests.support.stores import KINDS, RedisServer

_numbers = itertools.count()


OpenState = Callable[..., Awaitable[State]]
"""Opens another state of the same server, as another process would: url and settings."""


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[Callable[[str], RedisServer]]:
    """One server of each kind for tests that leave it as it is."""
    found: dict[str, RedisServer] = {}
    with ExitStack() as stack:

        def get(kind: str) -> RedisServer:
            if kind not in found:
                found[kind] = stack.enter_context(RedisServer(kind))
            return found[kind]

        yield get


@pytest.fixture
async def open_state() -> AsyncIterator[OpenState]:
    """Opens states, which are closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def open_(url: str, **settings: Any) -> State:
            state = state_of(StateSettings.model_validate({"url": url, **settings}))
            await state.start()
            stack.push_async_callback(state.close)
            return state

        yield open_


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Of server."""
    name: str = request.param
    return name


@pytest.fixture
def redis_server(kind: str, redis_servers: Callable[[str], RedisServer]) -> RedisServer:
    """A server that is left as it is."""
    return redis_servers(kind)


@pytest.fixture
def own_server(kind: str) -> Iterator[RedisServer]:
    """A server that a test may stop, freeze or fill."""
    with RedisServer(kind) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """Of a fleet that no other test belongs to."""
    return f"test-{next(_numbers)}:"


@pytest.fixture(params=[pytest.param("memory"), *KINDS])
async def fleet(
    request: pytest.FixtureRequest,
    redis_servers: Callable[[str], RedisServer],
    open_state: OpenState,
    prefix: str,
) -> list[State]:
    """The states of two servers that share; in memory it is one and the same."""
    if request.param == "memory":
        return [State()] * 2
    url = redis_servers(request.param).url
    return [await open_state(url, prefix=prefix) for _ in range(2)]
