"""Streams to come back to: whatever becomes of the client, what its call says is not lost."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.backing import State
from app.execution.execution import Execution
from app.http import legacy_calls
from app.http.serving import make_server
from app.legacy.revisions import REVISIONS
from app.principal import ANONYMOUS, Principal
from app.protocol.schema import Implementation
from app.server import create_app
from app.sessions.replays import (
    ATTACH_TOPIC,
    DELIVERED_TTL_S,
    MAX_BYTES,
    MAX_EVENTS,
    WRITE_S,
    Recording,
    Replays,
    place_of,
)
from app.sessions.tokens import Session
from app.settings import Settings
from app.state.local_bus import LocalBus
from app.state.memory import MemoryStore
from app.toolkit.handles import owner_of
from tests.sessions.carrying import Carrying, Client, Writes, carrying, until
from tests.sessions.conftest import CONFIG, KEYS
from tests.support.cases import rows

ADA = Principal(issuer="i", subject="ada")
SESSION = Session(
    "one", REVISIONS["2025-11-25"], {}, Implementation("c", "1"), 1e12, owner_of(ADA.identity)
)


@pytest.fixture
async def carries(tmp_path: Path) -> AsyncIterator[Carrying]:
    """A server that keeps its streams open."""
    async with carrying(tmp_path) as made:
        yield made


async def _begun(carries: Carrying, client: Client | None = None) -> Client:
    """A client that has the first event of its call."""
    client = carries.call(client=client)
    carries.say(1)
    await until(lambda: client.messages, "the first message")
    return client


async def _finds_the_result(carries: Carrying, last: str) -> Client:
    """Come back, and read to the end."""
    back = carries.come_back(last)
    await until(lambda: back.is_over, "the end of the rest")
    assert "the end after" in str(back.messages[-1]["result"])
    return back


# How a client leaves.


async def test_a_result_that_comes_while_its_client_is_sent_away_is_kept(tmp_path: Path) -> None:
    async with carrying(tmp_path, legacy={"poll_after_s": 0.1}) as carries:

        async def end_the_call() -> None:
            carries.say("end")
            await carries.called()

        client = Client()
        client.on_end = end_the_call
        await _begun(carries, client)
        await client.done()
        assert not any("result" in message for message in client.messages)
        await _finds_the_result(carries, client.ids[-1])


async def test_a_result_that_comes_as_its_client_comes_back_is_kept(carries: Carrying) -> None:
    client = await _begun(carries)
    client.on_end = carries.called
    carries.say("end")
    back = carries.come_back(client.ids[0])
    await client.done()
    await until(lambda: back.is_over, "the end of the rest")
    assert "the end after 1" in str(back.messages[-1])


@rows(
    "leaves",
    ("it drops", Client.leave),
    ("it stalls", lambda _: None),
)
async def test_the_result_is_kept_for_who_did_not_get_it(
    carries: Carrying, monkeypatch: pytest.MonkeyPatch, leaves: Callable[[Client], None]
) -> None:
    monkeypatch.setattr(legacy_calls, "SLOW_READER_S", 0.2)
    client = await _begun(carries)
    client.reads.clear()
    carries.say(2)
    await until(lambda: client.blocked, "a write that is not taken")
    carries.say("end")
    await carries.called()
    leaves(client)
    await client.done()
    back = await _finds_the_result(carries, client.ids[0])
    assert len([each for each in back.messages if "result" in each]) == 1
    assert carries.writes.calls[-1][0] > DELIVERED_TTL_S


async def test_a_result_that_was_sent_is_kept_for_a_short_while(carries: Carrying) -> None:
    client = await _begun(carries)
    carries.say("end")
    await client.done()
    assert client.messages[-1]["result"]
    back = await _finds_the_result(carries, client.ids[0])
    assert back.messages == client.messages
    assert carries.writes.calls == [(DELIVERED_TTL_S, "")]


async def test_a_stalled_connection_is_let_go_when_its_client_comes_back(carries: Carrying) -> None:
    client = await _begun(carries)
    client.reads.clear()
    carries.say(2)
    await until(lambda: client.blocked, "a write that is not taken")
    back = carries.come_back(client.ids[0])
    await until(lambda: len(back.messages) == 2, "what was missed")
    await client.done()
    assert client.is_aborted
    carries.say("end")
    await until(lambda: back.is_over, "the end of the rest")
    assert "the end after 2" in str(back.messages[-1])


@rows("waits", ("it left at once", False), ("it left while its first bytes waited", True))
async def test_what_nobody_can_ask_for_is_not_kept(carries: Carrying, *, waits: bool) -> None:
    client = Client()
    client.reads.clear()
    carries.call(client=client)
    if waits:
        await until(lambda: client.blocked, "the head")
    client.leave()
    await client.done()
    carries.say(1)
    carries.say("end")
    await carries.called()
    await until(lambda: not carries.service._replays._tasks, "the end of what goes on")
    assert carries.writes.calls == []


# What is written.


async def test_a_silent_call_outlives_the_time_of_its_stream(tmp_path: Path) -> None:
    async with carrying(tmp_path, legacy={"replay_ttl_s": 0.4}) as carries:
        client = await _begun(carries)
        client.leave()
        for number in range(1, 6):  # without a word; each is as old as half of that time
            while len(carries.writes.calls) < number:
                had = len(carries.writes.calls)
                await until(lambda had=had: len(carries.writes.calls) > had, "a write")  # type: ignore[misc]  # mypy infers no default
            await until(lambda: len(carries.writes), "what was written")
        back = carries.come_back(client.ids[0])
        await until(lambda: back.messages, "what was missed")
        carries.say("end")
        await until(lambda: back.is_over, "the end of the rest")
        assert "the end after 1" in str(back.messages[-1])


async def test_many_events_after_the_client_left_are_few_writes(carries: Carrying) -> None:
    client = await _begun(carries)
    client.leave()
    began = asyncio.get_running_loop().time()
    for number in range(2, 40):
        carries.say(number)  # each is an event of its own: the tool says one at a time
    carries.say("end")
    back = await _finds_the_result(carries, client.ids[0])
    assert [each["params"]["data"]["said"] for each in back.messages[:-1]] == list(range(1, 40))
    took_s = asyncio.get_running_loop().time() - began
    assert len(carries.writes.calls) <= took_s / WRITE_S + 2


async def test_streams_take_no_room_of_sessions_and_are_their_callers(tmp_path: Path) -> None:
    async with carrying(tmp_path) as carries:
        client = carries.call(client=None)
        carries.say("end")
        await client.done()
        sessions: Any = carries.state.sessions
        assert len(sessions) == 0
    assert {owner for _, owner in carries.writes.calls} <= {owner_of(ANONYMOUS.identity)}
    store = Writes()
    replays = Replays(store, LocalBus(), ttl_s=9)
    await replays.begin(SESSION, ADA).write()
    assert store.calls == [(9, owner_of(ADA.identity))]
    await replays.close()


@example(sizes=[MAX_BYTES // 3] * 5, count=0)
@given(sizes=st.lists(st.integers(0, MAX_BYTES // 3), max_size=12), count=st.integers(0, 600))
async def test_a_recording_has_bounds(sizes: list[int], count: int) -> None:
    replays = Replays(MemoryStore(), LocalBus(), ttl_s=9)
    recording = replays.begin(SESSION, ADA)
    for size in [*sizes, *(1 for _ in range(count))]:
        recording.add(b"x" * size)
    kept = [message async for message in _all(replays, recording)]
    assert len(kept) <= MAX_EVENTS
    assert sum(len(message) for _, message in kept) <= MAX_BYTES
    numbers = [int(id.rpartition(".")[2]) for id, _ in kept]
    total = len(sizes) + count
    assert numbers == list(range(total - len(kept) + 1, total + 1))
    assert kept or not total
    await replays.close()


async def test_all_streams_that_go_on_have_a_bound_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.sessions.replays.MAX_LIVE_BYTES", 1000)
    replays = Replays(MemoryStore(), LocalBus(), ttl_s=9)
    recordings = [replays.begin(SESSION, ADA) for _ in range(4)]
    for recording in 100 * recordings:
        recording.add(b"x" * 90)
        assert replays.live_bytes == sum(each.size for each in recordings) <= 1000
    assert all(recording.size for recording in recordings)  # none has lost its last event
    for recording in 2 * recordings:
        replays.end(recording)
    assert replays.live_bytes == 0
    await replays.close()


async def _all(replays: Replays, recording: Recording) -> AsyncIterator[tuple[str, bytes]]:
    recording.finish()
    await recording.write()
    place = place_of(recording.first_id)
    assert place is not None
    async with contextlib.aclosing(replays.events(SESSION, place)) as events:
        async for event in events:
            assert event is not None
            yield event


# Who may come back, and where.


async def test_a_stream_is_its_sessions_alone() -> None:
    replays = Replays(MemoryStore(), LocalBus(), ttl_s=9)
    recording = replays.begin(SESSION, ADA)
    recording.add(b"{}")
    assert len([each async for each in _all(replays, recording)]) == 1
    place = place_of(recording.first_id)
    assert place is not None
    others = SESSION._replace(id="another")
    async with contextlib.aclosing(replays.events(others, place)) as events:
        assert [each async for each in events if each is not None] == []
    await replays.close()


class _Late(LocalBus):
    """A bus that loses what it is told first, as one that is joined late."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self._lost = lost

    async def publish(self, topic: str, message: bytes) -> None:
        if topic == ATTACH_TOPIC and self._lost:
            self._lost -= 1
            return
        await super().publish(topic, message)


def _follow(owner: Replays, recording: Recording) -> None:
    owner.follow(recording.write())


@rows("lost, slow_s", ("an owner that is slow", 0, 0.4), ("a message that is lost", 1, 0.0))
async def test_every_replica_waits_for_the_one_that_has_the_stream(
    lost: int, slow_s: float
) -> None:
    store, bus = Writes(), _Late(lost)
    store.slow_s = slow_s
    owner, reader = Replays(store, bus, ttl_s=9), Replays(store, bus, ttl_s=9)
    recording = owner.begin(SESSION, ADA)
    recording.add(b'{"a":1}')
    recording.finish()
    recording.on_attach = lambda: _follow(owner, recording)
    place = place_of(recording.first_id)
    assert place is not None
    found = [each async for each in reader.events(SESSION, place) if each is not None]
    assert found == [(f"{recording.id}.1", b'{"a":1}')]
    await reader.close()
    await owner.close()


async def test_a_stream_that_has_ended_is_not_asked_for_any_more() -> None:
    replays = Replays(MemoryStore(), bus := LocalBus(), ttl_s=9)
    recording = replays.begin(SESSION, ADA)
    asked: list[int] = []
    recording.on_attach = lambda: asked.append(1)
    await bus.publish(ATTACH_TOPIC, recording.name.encode())
    assert asked == [1]
    replays.end(recording)
    recording.on_attach = lambda: asked.append(2)
    await bus.publish(ATTACH_TOPIC, recording.name.encode())
    assert asked == [1]
    await replays.close()


# Who reads the rest takes a place.


async def test_who_comes_back_takes_a_place_among_the_listeners(tmp_path: Path) -> None:
    key = {"x_api_key": KEYS["ada"]}
    async with carrying(tmp_path, limits={"listen_streams": 2}) as carries:
        hub = carries.service.hub
        await carries.open(**key)
        nowhere = "0" * 32 + ".7"
        readers = [carries.come_back(nowhere, **key) for _ in range(2)]
        await until(lambda: all(each.text for each in readers), "the heads")
        for reader in readers:
            assert reader.ids == [nowhere] and "retry: " in reader.text
        refused = carries.come_back(nowhere, **key)
        await refused.done()
        assert refused.status == 503
        streams = hub.authenticated()
        assert [sorted(stream.credential or ()) for stream in streams] == [[b"x-api-key"]] * 2
        streams[0].refuse()  # its credential was revoked
        await until(lambda: sum(each.is_over for each in readers) == 1, "the end of one")
        hub.shut_down()
        for reader in readers:
            await reader.done()
            assert reader.is_over
        assert hub.authenticated() == []


async def test_who_reads_the_rest_is_told_goodbye(carries: Carrying) -> None:
    client = await _begun(carries)
    client.leave()
    await client.done()
    back = carries.come_back(client.ids[0])
    await until(lambda: back.messages, "what was missed")
    carries.service.hub.shut_down()
    await back.done()
    assert back.is_over and not any("result" in message for message in back.messages)
    carries.say("end")
    await carries.called()


async def test_who_leaves_while_it_reads_the_rest_leaves_nothing_behind(carries: Carrying) -> None:
    client = await _begun(carries)
    client.leave()
    await client.done()
    back = carries.come_back(client.ids[0])
    await until(lambda: back.messages, "what was missed")
    hearers = carries.service._bus._hearers  # type: ignore[attr-defined]  # of LocalBus
    assert any(topic.startswith("replay:") for topic in hearers)
    back.leave()
    await back.done()
    assert not any(topic.startswith("replay:") for topic in hearers)
    carries.say("end")
    await carries.called()


async def test_listeners_that_left_while_their_session_was_looked_up_are_forgotten(
    tmp_path: Path,
) -> None:
    class Held(MemoryStore):
        asked = 0
        released: asyncio.Event

        async def get(self, name: str) -> bytes | None:
            self.asked += 1
            await self.released.wait()
            return await super().get(name)

    state, store = State(), Held()
    store.released = asyncio.Event()
    state.ended = store
    tmp_path.joinpath("tools").mkdir()
    tools = {"directory": str(tmp_path / "tools"), "reload": False}
    settings = Settings.model_validate({**CONFIG, "server": {"port": 0}, "tools": tools})
    app = create_app(settings, state=state)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = make_server(
        app,
        settings.server,
        on_listening=lambda _, at: port.set_result(at),
    )
    serving = asyncio.create_task(server.serve())
    try:
        where = "127.0.0.1", await port
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":'
            b'"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
        )
        reader, writer = await asyncio.open_connection(*where)
        writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = (await reader.read()).split(b"\r\n")
        writer.close()
        token = next(line for line in head if line.lower().startswith(b"mcp-session-id: "))
        writers = []
        for _ in range(5):
            _, writer = await asyncio.open_connection(*where)
            writer.write(
                b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n%b\r\n\r\n"
                % token
            )
            writers.append(writer)
        await until(lambda: store.asked == 5, "the look-ups")
        for writer in writers:
            writer.close()
        await until(lambda: not server.server_state.connections, "the ends of the connections")
        store.released.set()
        await until(lambda: not server.server_state.tasks, "the ends of the exchanges")
    finally:
        store.released.set()
        server.should_exit = True
        if app.service is not None:
            app.service.hub.shut_down()
        await asyncio.wait_for(serving, 15)


# The end.


async def test_at_the_end_what_goes_on_is_written_down_and_nothing_more_begins() -> None:
    store = Writes()
    store.slow_s = 0.2
    replays = Replays(store, LocalBus(), ttl_s=9)
    recording = replays.begin(SESSION, ADA)
    asked = asyncio.Event()
    recording.on_attach = asked.set

    async def last_words() -> None:
        await asked.wait()
        await recording.write()

    assert replays.follow(last_words())
    await replays.close()
    assert len(store) == 1
    assert not replays.follow(recording.write())
    assert len(store.calls) == 1


async def test_the_end_does_not_wait_for_what_goes_on_without_end() -> None:
    replays = Replays(MemoryStore(), LocalBus(), ttl_s=9)
    assert replays.follow(asyncio.Event().wait())  # type: ignore[arg-type]  # whatever it is
    async with asyncio.timeout(5):
        await replays.close()


async def test_a_store_that_does_not_answer_keeps_no_result_from_its_client(
    carries: Carrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.sessions.replays.OWNER_S", 0.1)
    carries.writes.slow_s = 60.0
    client = await _begun(carries)
    carries.say("end")
    await client.done()
    assert client.messages[-1]["result"]


async def test_a_call_that_has_asked_leaves_no_ring(carries: Carrying) -> None:
    def alive() -> int:
        return sum(isinstance(each, (Execution, Recording)) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = alive()
        client = carries.call("ask")
        await until(lambda: client.messages, "the question")
        answer = {"action": "accept", "content": {"city": "Oslo"}}
        await carries.exchange(
            {"jsonrpc": "2.0", "id": client.messages[0]["id"], "result": answer}
        ).done()
        await client.done()
        assert client.messages[-1]["result"]
        client.task = None
        await until(lambda: alive() <= before, "the end of what was needed for the call")
    finally:
        gc.enable()
