"""Whatever becomes of a call, and by whichever door it came: it is told once, and first."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.backing import State
from app.methods.observing import Ended
from app.state.interface import Quota, Wait
from app.state.memory import MemoryStore
from tests.observing.doors import DOORS, TIMEOUT_MS, Exchanged, House, house, opened, turns
from tests.sessions.carrying import until
from tests.support.cases import rows
from tests.support.client import modern_request
from tests.support.waiting import DEFAULT_S

each_door = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """The service."""
    async with house(tmp_path) as found:
        yield found


async def once(home: House, params: dict[str, Any], door: str, **about: Any) -> Ended:
    """Send a call, see that its answer waits for the witness, and what that was told."""
    witness = home.witness
    async with opened(home, door) as way:
        already = len(witness.seen)
        sent = await way.send(params, **about)
        await until(lambda: len(witness.seen) > already, "its end")
        await turns()
        assert await sent.answers() == []
        witness.release()
        async with asyncio.timeout(DEFAULT_S):
            while not (answers := await sent.answers()):
                await turns()
        assert len(answers) == 1
        await turns()
        (ended,) = witness.seen[already:]
        return ended


@each_door
@rows(
    "name, arguments, expected",
    ("a result", "echo", {"text": "hi"}, ("ok", "echo", "rule 3")),
    ("a sentence for the model", "complains", {}, ("tool_error", "complains", "rule 3")),
    ("an exception", "breaks", {}, ("internal_error", "breaks", "rule 3")),
    ("bad arguments", "echo", {"t": 1}, ("tool_error", "echo", "rule 3")),
    ("no such tool", "nowhere", {}, ("protocol_error", None, None)),
    ("a tool that is hidden", "hidden", {}, ("protocol_error", None, "rule 2")),
    ("a tool for others", "secret", {}, ("denied", "secret", "rule 1 (scoped)")),
    ("no name", 1, {}, ("protocol_error", None, None)),
    ("arguments that are none", "echo", 1, ("protocol_error", "echo", "rule 3")),
)
async def test_each_end_is_told_once_before_its_answer_leaves(
    home: House, door: str, name: Any, arguments: Any, expected: tuple[str, str | None, str | None]
) -> None:
    ended = await once(home, {"name": name, "arguments": arguments}, door)
    assert (ended.outcome, ended.tool and ended.tool.name, ended.rule) == expected
    assert ended.call.params.get("name") == name
    assert ended.address == (None if "stdio" in door else "192.0.2.1")
    assert (ended.result is None) == (ended.outcome in {"protocol_error", "denied"})
    assert (ended.error is None) == (ended.result is not None)
    assert ended.began > 1_700_000_000
    assert 0 < ended.duration_s < 30


@each_door
async def test_a_deadline_is_an_end(home: House, door: str) -> None:
    ended = await once(home, {"name": "sleeps"}, door, **{TIMEOUT_MS: 20})
    assert (ended.outcome, ended.tool is not None) == ("timeout", True)


@each_door
async def test_limits_and_want_of_room_are_ends(home: House, door: str) -> None:
    home.witness.holds = False
    async with opened(home, "HTTP") as way:
        await (await way.send({"name": "rare"})).client.done()  # type: ignore[attr-defined]  # over HTTP
        await way.send({"name": "narrow"})
        await turns()
    home.witness.holds = True
    limited = await once(home, {"name": "rare"}, door)
    assert (limited.outcome, limited.error and limited.error.http_status) == ("limited", 429)
    home.witness.holds = True
    full = await once(home, {"name": "narrow"}, door)
    assert (full.outcome, full.error and full.error.http_status) == ("limited", 503)
    home.module.gate.set()


@each_door
async def test_kept_results_and_further_tries_are_told_as_such(home: House, door: str) -> None:
    found = []
    for _ in range(2):
        home.witness.holds = True
        found.append(await once(home, {"name": "kept"}, door))
    assert [ended.cached for ended in found] == ["miss", "hit"]
    assert [ended.outcome for ended in found] == ["ok", "ok"]
    home.witness.holds = True
    flaky = await once(home, {"name": "flaky"}, door)
    assert (flaky.outcome, flaky.attempt) == ("tool_error", 3)


async def test_a_repeated_result_is_told_as_such(home: House) -> None:
    found = []
    for _ in range(2):
        home.witness.holds = True
        about = {"mcp-tool-server/idempotencyKey": "k"}
        params = {"name": "echo", "arguments": {"text": "a"}}
        found.append(await once(home, params, "HTTP", **about))
    assert [ended.cached for ended in found] == [None, "repeated"]
    assert found[0].result == found[1].result


@pytest.mark.parametrize("door", [door for door in DOORS if "batch" not in door])
async def test_a_client_that_wants_no_answer_ends_its_call(home: House, door: str) -> None:
    if door == "HTTP without a session":
        return  # such a client cannot say so, and one that goes does not end its call
    async with opened(home, door) as way:
        sent = await way.send({"name": "sleeps"})
        running = home.service.executor._endings
        await until(lambda: running.running, "its run")
        await turns()
        await sent.cancel()
        await until(lambda: home.witness.seen, "its end")
        (ended,) = home.witness.seen
        assert (ended.outcome, ended.result, ended.error) == ("cancelled", None, None)
        home.witness.release()
        await turns()
        assert await sent.answers() == []
        assert home.witness.seen == [ended]


@pytest.mark.parametrize("door", ["HTTP", "a session over HTTP", "stdio", "a session over stdio"])
async def test_a_client_that_goes_when_its_call_has_ended_changes_nothing(
    home: House, door: str
) -> None:
    async with opened(home, door) as way:
        sent = await way.send({"name": "echo", "arguments": {"text": "hi"}})
        await until(lambda: home.witness.seen, "its end")
        await sent.cancel()
        await turns()
        home.witness.release()
        await turns()
        (ended,) = home.witness.seen
        assert ended.outcome == "ok"
        assert await sent.answers() == []


@each_door
async def test_what_the_tool_was_given_is_told_as_the_client_sent_it(
    home: House, door: str
) -> None:
    params = {"name": "spoils", "arguments": {"things": {"b": 1, "a": [2]}}}
    ended = await once(home, params, door)
    assert ended.arguments == b'{"things":{"a":[2],"b":1}}'


@rows(
    "changes",
    ("a header that lies", {"Mcp-Name": "other"}),
    ("a header that is missing", {"Mcp-Name": None}),
)
async def test_a_call_that_is_refused_at_the_door_is_told_too(home: House, changes: Any) -> None:
    request = modern_request("tools/call", {"name": "echo"}, changes)
    sent = Exchanged(home.service, request.headers, request.body)
    await until(lambda: home.witness.seen, "its end")
    await turns()
    assert await sent.answers() == []
    home.witness.release()
    await sent.client.done()
    (ended,) = home.witness.seen
    assert (ended.outcome, ended.call.id) == ("protocol_error", 1)


async def test_other_requests_are_told_to_nobody(home: House) -> None:
    for method in ("tools/list", "server/discover", "tools/nothing"):
        request = modern_request(method)
        sent = Exchanged(home.service, request.headers, request.body)
        await sent.client.done()
        assert orjson.loads(sent.client.text)["id"] == 1
    assert home.witness.seen == []


class BrokenStore(MemoryStore):
    """Cannot even count."""

    def admit(self, quotas: Sequence[Quota]) -> Wait | None:
        """Fail."""
        raise RuntimeError(len(quotas))


@each_door
async def test_a_bug_of_the_server_is_told_once(tmp_path: Path, door: str) -> None:
    state = State()
    state.limits = BrokenStore()
    async with house(tmp_path, state=state) as home:
        ended = await once(home, {"name": "rare"}, door)
    assert (ended.outcome, ended.result, ended.error) == ("internal_error", None, None)


class Broken:
    """An observer with a bug."""

    needs_arguments = False

    def ended(self, ended: Ended) -> None:
        """Fail."""
        raise RuntimeError(ended.outcome)


async def test_an_observer_that_fails_costs_nobody_an_answer(tmp_path: Path) -> None:
    async with house(tmp_path, Broken()) as home:
        ended = await once(home, {"name": "echo", "arguments": {"text": "hi"}}, "HTTP")
    assert ended.outcome == "ok"
