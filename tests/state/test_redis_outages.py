"""A Redis that is gone, back, slow, full, flushed or none at all: nothing hangs or guesses."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog
from redis.asyncio.connection import AbstractConnection

import app.state.redis_line
from app.backing import State
from app.settings import StateSettings
from app.sharing import check_state, state_of
from app.state.interface import Quota, StoreFull, StoreUnavailable
from app.state.redis_link import ServerLink
from app.state.redis_target import Target, connect_to_server
from tests.state.conftest import OpenState
from tests.state.test_stores import admit
from tests.support.cases import rows
from tests.support.relay import Relay, Scripted
from tests.support.stores import NO_DISK, RedisServer, free_port
from tests.support.waiting import Deadline

QUICK: dict[str, Any] = {"timeout_s": 0.3}
BACK_S = 2.0
"""Within this time a server that is back is used again."""


async def usable(state: State, within_s: float = BACK_S) -> None:
    """Wait until a state has no problem."""
    deadline = Deadline(within_s)
    while state.problem is not None:
        assert not deadline.expired, state.problem
        await asyncio.sleep(0.005)


async def unusable(state: State, why: str) -> None:
    """Wait until a state has a problem."""
    deadline = Deadline()
    while why not in (state.problem or ""):
        assert not deadline.expired, state.problem
        await asyncio.sleep(0.005)


OPERATIONS: dict[str, Callable[[State], Awaitable[object]]] = {
    "get": lambda state: state.kept.get("a"),
    "set": lambda state: state.kept.set("a", b"1", ttl_s=60, owner="ada"),
    "replace": lambda state: state.kept.replace("a", None, b"1", ttl_s=60),
    "take": lambda state: state.outcomes.take("a", b"1", ttl_s=60),
    "delete": lambda state: state.kept.delete("a"),
    "admit": lambda state: admit(state.limits, Quota("n", 1, 60)),
    "publish": lambda state: state.bus.publish("a", b""),
}


async def all_fail(state: State, why: str | None, within_s: float) -> None:
    """Every operation fails in time, for a reason that is told."""
    for name, operation in OPERATIONS.items():
        since = time.perf_counter()
        with pytest.raises(StoreUnavailable, match=why):
            await operation(state)
        assert time.perf_counter() - since < within_s, name


async def test_a_server_that_is_gone_is_told_of_once_and_used_again_when_it_is_back(
    own_server: RedisServer, open_state: OpenState
) -> None:
    state = await open_state(own_server.url, **QUICK)
    await state.kept.set("a", b"1", ttl_s=60)
    with structlog.testing.capture_logs() as logs:
        own_server.stop()
        await unusable(state, "Connection refused")
        await all_fail(state, "Connection refused", 0.05)
        own_server.start()
        await usable(state)
        await state.kept.set("a", b"2", ttl_s=60)
        assert await state.kept.get("a") == b"2"
    told = sorted((log["event"], log["part"]) for log in logs)
    assert told == [
        *(("state_back", "bus"), ("state_back", "store")),
        *(("state_lost", "bus"), ("state_lost", "store")),
    ]


async def test_a_server_that_is_frozen_fails_each_call_in_time_and_then_at_once(
    own_server: RedisServer, open_state: OpenState
) -> None:
    state = await open_state(own_server.url, **QUICK)
    with own_server.frozen():
        since = time.perf_counter()
        done = await asyncio.gather(
            *(operation(state) for operation in OPERATIONS.values()), return_exceptions=True
        )
        assert all(isinstance(each, StoreUnavailable) for each in done)
        assert 0.25 < time.perf_counter() - since < 0.6, "all wait together, once"
        await all_fail(state, "no answer within 0.3 s", 0.05)
    await usable(state)
    assert await admit(state.limits, Quota("m", 1, 60)) is None


async def test_an_answer_that_comes_too_late_is_nobody_elses(
    own_server: RedisServer, open_state: OpenState
) -> None:
    state = await open_state(own_server.url, **QUICK)
    for number in range(20):
        await state.kept.set(f"{number}", b"%d" % number, ttl_s=60)
    for _ in range(3):
        with own_server.frozen():
            done = await asyncio.gather(
                *(state.kept.get(f"{number}") for number in range(20)), return_exceptions=True
            )
            assert all(isinstance(each, StoreUnavailable) for each in done)
        await usable(state)
        found = await asyncio.gather(*(state.kept.get(f"{number}") for number in range(20)))
        assert found == [b"%d" % number for number in range(20)]


async def test_whoever_stops_waiting_takes_nobody_elses_answer_away(
    redis_server: RedisServer, open_state: OpenState, prefix: str
) -> None:
    state = await open_state(redis_server.url, prefix=prefix)
    for number in range(50):
        await state.kept.set(f"{number}", b"%d" % number, ttl_s=60)
    reading = [asyncio.create_task(state.kept.get(f"{number}")) for number in range(50)]
    await asyncio.sleep(0)
    for task in reading[::2]:
        task.cancel()
    done = await asyncio.gather(*reading, return_exceptions=True)
    assert done[1::2] == [b"%d" % number for number in range(1, 50, 2)]


async def test_connections_that_are_closed_are_made_anew_without_a_word(
    own_server: RedisServer, open_state: OpenState
) -> None:
    """As where a server closes idle connections, or a proxy in between does."""
    state = await open_state(own_server.url, **QUICK)
    returned: list[int] = []
    state.bus.on_return(lambda: returned.append(1))
    await asyncio.sleep(1.1)  # one that breaks at once is another matter
    with structlog.testing.capture_logs() as logs:
        own_server.drop_clients()
        deadline = Deadline()
        while not returned:
            assert not deadline.expired
            await asyncio.sleep(0.005)
        await state.kept.set("a", b"1", ttl_s=60)
    assert not logs
    assert state.problem is None


async def test_a_full_server_refuses_what_needs_room_and_gives_what_it_has(
    own_server: RedisServer, open_state: OpenState
) -> None:
    state = await open_state(own_server.url)
    await state.kept.set("a", b"1", ttl_s=60)
    own_server.fill()
    for name in ("set", "take", "admit"):
        operation = OPERATIONS[name]
        with pytest.raises(StoreFull, match="full"):
            await operation(state)
    with pytest.raises(StoreFull):
        await state.kept.set("b", b"1", ttl_s=60, owner="ada")
    assert await state.kept.get("a") == b"1"
    await state.bus.publish("x", b"")
    await state.kept.delete("a")
    again = await open_state(own_server.url)
    assert again.problem is None, "it can be read"
    own_server.empty()
    await state.kept.set("b", b"1", ttl_s=60, owner="ada")
    assert await admit(state.limits, Quota("n", 1, 60)) is None


async def test_a_flushed_server_has_forgotten_everything_and_scripts_as_well(
    own_server: RedisServer, open_state: OpenState
) -> None:
    state = await open_state(own_server.url)
    for _ in range(3):
        assert await admit(state.limits, Quota("n", 1, 60)) is None
        assert await admit(state.limits, Quota("n", 1, 60)) is not None
        await state.kept.set("a", b"1", ttl_s=60, owner="ada")
        own_server.flush()
        with own_server.connection() as client:
            client.script_flush()
        assert await state.kept.get("a") is None


async def test_a_server_that_is_not_there_at_the_start_is_used_when_it_comes(
    kind: str, open_state: OpenState
) -> None:
    port = free_port()
    state = await open_state(f"redis://127.0.0.1:{port}", **QUICK)
    returned: list[int] = []
    state.bus.on_return(lambda: returned.append(1))
    await all_fail(state, "Connection refused", 0.05)
    with RedisServer(kind, port=port):
        await usable(state)
        await state.kept.set("a", b"1", ttl_s=60)
        deadline = Deadline()
        while not returned:
            assert not deadline.expired, "what was told before was missed"
            await asyncio.sleep(0.005)


async def test_a_network_that_is_cut_without_a_word_is_noticed_and_so_is_its_return(
    own_server: RedisServer, open_state: OpenState
) -> None:
    with Relay(own_server.port) as relay:
        state = await open_state(f"redis://127.0.0.1:{relay.port}", **QUICK)
        returned: list[int] = []
        state.bus.on_return(lambda: returned.append(1))
        relay.cut()
        await unusable(state, "no answer within 0.3 s")
        with pytest.raises(StoreUnavailable):
            await state.kept.get("a")
        relay.mend()
        await usable(state)
        await state.kept.set("a", b"1", ttl_s=60)
        assert returned == [1]


@rows(
    "answer, why",
    ("a page", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak"),
    ("text", b"hello\r\n", "does not speak"),
    ("other answers", b"+OK\r\n" * 3, "does not speak"),
    ("a number", b":7\r\n", "refuses"),
    ("an error", b"-WHAT hunter2 is this\r\n", "error"),
    ("a length without an end", b"$99999999999999999999\r\n", "does not speak"),
)
async def test_what_does_not_speak_as_redis_does_is_never_believed(
    answer: bytes, why: str, open_state: OpenState
) -> None:
    with Scripted(answer) as server, structlog.testing.capture_logs() as logs:
        state = await open_state(f"redis://:hunter2@127.0.0.1:{server.port}", **QUICK)
        await all_fail(state, None, 1.0)
        assert why in (state.problem or "")
        assert "hunter2" not in f"{state.problem}{logs}"


@rows(
    "url, why",
    ("no password", "redis://{}", "refuses the user or the password"),
    ("another password", "redis://:hunter2@{}", "refuses the user or the password"),
    ("an unknown user", "redis://eve:hunter2@{}", "refuses the user or the password"),
    ("a user with few rights", "redis://reader:reader@{}", "ACL does not allow"),
    ("a user of another prefix", "redis://other:other@{}", "ACL does not allow"),
)
async def test_who_may_not_use_a_server_is_told_why_and_no_secret_is_told(
    url: str, why: str, kind: str, open_state: OpenState
) -> None:
    users = ["reader on >reader ~* &* +@read +@connection", "other on >other ~other:* &* +@all"]
    with RedisServer(kind, password="right", acl=users) as server:
        with structlog.testing.capture_logs() as logs:
            state = await open_state(url.format(server.address), **QUICK)
            for _ in range(30):  # attempts go on, and are not told of
                await all_fail(state, why, 0.05)
                await asyncio.sleep(0.01)
        assert [log["event"] for log in logs if log["part"] == "store"] == ["state_lost"]
        assert len([log for log in logs if log["part"] == "bus"]) <= 1
        assert "hunter2" not in f"{state.problem}{logs}"


ACL = (
    "app on >pw ~mcp:* resetchannels &mcp:* "
    "-@all +@connection +@read +@write +@scripting +@pubsub +time"
)
"""As docs/operations.md has it."""


async def test_the_rights_that_the_documentation_names_are_enough(
    kind: str, open_state: OpenState
) -> None:
    with RedisServer(kind, password="right", acl=[ACL]) as server:
        state = await open_state(f"redis://app:pw@{server.address}")
        assert state.problem is None
        for operation in OPERATIONS.values():
            await operation(state)
        await state.kept.set("a", b"1", ttl_s=60, owner="ada")
        heard: list[bytes] = []
        state.bus.subscribe("topic", heard.append)
        deadline = Deadline()
        while not heard:
            assert not deadline.expired
            await state.bus.publish("topic", b"1")
            await asyncio.sleep(0.01)


async def test_a_password_is_read_from_its_file_for_each_connection(
    own_server: RedisServer, open_state: OpenState, tmp_path: Any
) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    with own_server.connection() as client:
        client.config_set("requirepass", "one")
    own_server.password = "one"
    state = await open_state(f"redis://{own_server.address}", password_file=file, **QUICK)
    assert state.problem is None
    with own_server.connection() as client:
        client.config_set("requirepass", "two")
    own_server.password = "two"
    file.write_text("two\n")
    own_server.drop_clients()
    await asyncio.sleep(0.05)
    await usable(state)
    await state.kept.set("a", b"1", ttl_s=60)


async def test_a_unix_socket_will_do(kind: str, open_state: OpenState, tmp_path: Any) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(kind, args=[*NO_DISK, "--unixsocket", str(path)]):
        state = await open_state(f"unix://{path}")
        for operation in OPERATIONS.values():
            await operation(state)


@rows(
    "settings, why",
    ("a password", {"password_file": "missing"}, "No such file"),
    ("an authority", {"url": "rediss://x", "tls_ca_file": "missing"}, "No such file"),
    ("a certificate", {"url": "rediss://x", "tls_certificate_file": "missing"}, "No such file"),
)
def test_a_file_that_cannot_be_read_is_told_before_anything_is_served(
    settings: dict[str, Any], why: str
) -> None:
    named = StateSettings.model_validate({"url": "redis://x", **settings})
    with pytest.raises(ValueError, match=why):
        check_state(named)
    assert state_of(named) is not None


async def test_calls_fail_in_time_also_while_a_lost_connection_is_made_anew(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.state.redis_line, "STEADY_S", 0.0)
    target = Target(kind="server", hosts=(("127.0.0.1", own_server.port),))
    may_connect = asyncio.Event()
    may_connect.set()

    async def connect() -> AbstractConnection:
        await may_connect.wait()  # as sentinels that take their time
        return await connect_to_server(target)

    link = ServerLink(connect, name="it", timeout_s=0.3, probe="probe")
    await link.start()
    try:
        may_connect.clear()
        link.distrust()
        since = time.perf_counter()
        with pytest.raises(StoreUnavailable, match="no connection within"):
            async with asyncio.timeout(5):
                await link.command("a", "GET", "a")
        assert time.perf_counter() - since < 1
        may_connect.set()
        await asyncio.sleep(0.1)
        assert await link.command("a", "GET", "a") is None
    finally:
        await link.close()


async def test_what_somebody_else_has_written_fails_who_reads_it_and_nobody_else(
    kind: str, open_state: OpenState
) -> None:
    with RedisServer(kind) as redis, structlog.testing.capture_logs() as logs:
        state = await open_state(redis.url, **QUICK)
        await state.kept.set("planted", b"1", ttl_s=60)
        with redis.connection() as client:
            (key,) = client.scan_iter("*planted*")
            client.set(key, b"garbage", ex=60)
        asked = [state.kept.get("planted"), state.kept.set("well", b"2", ttl_s=60)]
        planted, well = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(planted, StoreUnavailable)
        assert "not written by this server" in str(planted)
        assert well is None
        assert await state.kept.get("well") == b"2"
        assert not [line for line in logs if line["event"] == "state_lost"]
