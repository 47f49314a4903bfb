"""What every bus does: tells all servers, once, and says when something may have been missed."""

import asyncio
from collections.abc import Callable

import structlog

from app.backing import State
from tests.state.conftest import OpenState
from tests.support.stores import RedisServer
from tests.support.waiting import Deadline


async def until(probe: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    deadline = Deadline()
    while not probe():
        assert not deadline.expired, what
        await asyncio.sleep(0.005)


def _adding(heard: set[str], topic: str) -> Callable[[bytes], None]:
    return lambda _: heard.add(topic)


async def listening(state: State, *topics: str) -> None:
    """Wait until a server hears what is published on topics: a subscription takes a moment."""
    heard: set[str] = set()
    ends = [state.bus.subscribe(topic, _adding(heard, topic)) for topic in topics]
    deadline = Deadline()
    while heard != set(topics):
        assert not deadline.expired, f"nothing is heard of {set(topics) - heard}"
        for topic in topics:
            await state.bus.publish(topic, b"are you there?")
        await asyncio.sleep(0.005)
    for end in ends:
        end()


async def test_what_is_published_is_heard_by_every_server_once_and_in_order(
    fleet: list[State],
) -> None:
    heard: list[list[bytes]] = [[], []]
    ends = [state.bus.subscribe("t", at.append) for state, at in zip(fleet, heard, strict=True)]
    for state in fleet:
        await listening(state, "t")
    for at in heard:
        at.clear()
    sent = [b"%d\x00\xff\r\n" % number for number in range(100)]
    for message in sent:
        await fleet[0].bus.publish("t", message)
    await fleet[0].bus.publish("another", b"for others")
    await until(lambda: [len(at) for at in heard] == [100, 100], "all are heard")
    assert heard == [sent, sent]
    for end in ends:
        end()


async def test_who_has_ended_hears_nothing_and_the_others_hear_on(fleet: list[State]) -> None:
    bus = fleet[0].bus
    one, other = list[bytes](), list[bytes]()
    end_one, end_other = bus.subscribe("t", one.append), bus.subscribe("t", other.append)
    await listening(fleet[0], "t")
    end_one()
    end_one()
    one.clear()
    other.clear()
    await bus.publish("t", b"1")
    await until(lambda: other, "it is heard")
    assert (one, other) == ([], [b"1"])
    end_other()
    again = list[bytes]()
    end = bus.subscribe("t", again.append)
    await listening(fleet[0], "t")
    assert b"1" not in again
    end()


async def test_one_who_fails_to_hear_keeps_nothing_from_the_others(
    redis_server: RedisServer, open_state: OpenState, prefix: str
) -> None:
    state = await open_state(redis_server.url, prefix=prefix)
    heard: list[bytes] = []
    with structlog.testing.capture_logs() as logs:
        state.bus.subscribe("t", lambda message: heard.append(bytes([message[0] // 0])))
        state.bus.subscribe("t", heard.append)
        await listening(state, "t")
    assert heard
    assert {log["event"] for log in logs} == {"hearing_failed"}


async def test_after_a_loss_every_topic_is_heard_again_and_then_it_is_told(
    own_server: RedisServer, open_state: OpenState
) -> None:
    one, other = [await open_state(own_server.url, timeout_s=0.3) for _ in range(2)]
    heard: list[bytes] = []
    one.bus.subscribe("early", heard.append)
    await listening(one, "early")
    returned: list[int] = []
    end = one.bus.on_return(lambda: returned.append(len(heard)))
    one.bus.on_return(lambda: returned.append(len(heard)))
    own_server.stop()
    await until(lambda: one.problem, "it is gone")
    one.bus.subscribe("late", heard.append)
    assert not returned
    heard.clear()
    own_server.start()
    await until(lambda: len(returned) == 2, "it is told")
    await until(lambda: other.problem is None, "it is back")
    for topic in ("early", "late"):
        await other.bus.publish(topic, topic.encode())
    await until(lambda: len(heard) == 2, "what is told after the return is heard")
    assert heard == [b"early", b"late"]
    end()
    own_server.drop_clients()
    await until(lambda: len(returned) == 3, "it is told again, to whom it still concerns")
    assert one.problem is None or "closed" in one.problem


async def test_a_server_that_is_well_tells_of_no_return(
    redis_server: RedisServer, open_state: OpenState, prefix: str
) -> None:
    state = await open_state(redis_server.url, prefix=prefix)
    returned: list[int] = []
    state.bus.on_return(lambda: returned.append(1))
    await listening(state, "a", "b")
    assert not returned


async def test_topics_come_and_go_without_another_connection(
    own_server: RedisServer, open_state: OpenState
) -> None:
    state = await open_state(own_server.url)
    for number in range(200):
        state.bus.subscribe(f"{number}", lambda _: None)()
    await listening(state, "last")
    with own_server.connection() as client:
        names = [each["name"] for each in client.client_list()]
        assert names.count("mcp-tool-server") == 2
        await until(lambda: len(client.pubsub_channels()) == 1, "no topic is left but our own")
