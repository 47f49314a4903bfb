"""How often the way to the store is gone: what is asked in one turn of the loop goes together."""

import asyncio
from collections.abc import Awaitable

from app.state.interface import Quota
from tests.state.conftest import OpenState
from tests.state.test_redis_outages import OPERATIONS
from tests.state.test_stores import admit
from tests.support.relay import Relay
from tests.support.stores import RedisServer


async def test_what_is_asked_at_once_is_one_way_there_and_back(
    redis_server: RedisServer, open_state: OpenState, prefix: str
) -> None:
    with Relay(redis_server.port) as relay:
        state = await open_state(f"redis://127.0.0.1:{relay.port}", prefix=prefix, timeout_s=30.0)
        idle = list(relay.sent)
        for operation in OPERATIONS.values():
            await operation(state)  # scripts are known from here on
        # The other one listens for the bus, and asks now and then whether the server is there.
        (store,) = (n for n, sent in enumerate(idle) if relay.sent[n] >= sent + len(OPERATIONS))
        quotas = [Quota("a", 1000, 60), Quota("b", 1000, 60)]
        turns: list[list[Awaitable[object]]] = [
            [admit(state.limits, *quotas)],
            [admit(state.limits, *quotas), state.outcomes.take("k", b"1", ttl_s=60, owner="ada")],
            [state.outcomes.replace("k", b"1", b"2", ttl_s=60, owner="ada")],
            [state.kept.get(f"{number}") for number in range(100)],
        ]
        for asked in turns:
            before = relay.sent[store]
            await asyncio.gather(*asked)
            assert relay.sent[store] == before + 1
