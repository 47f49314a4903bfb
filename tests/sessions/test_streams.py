"""Streams of sessions: what has changed, and coming back for the rest of a call."""

from pathlib import Path
from typing import Any

import pytest

from tests.sessions.conftest import ADA, CONFIG, EVE, TOOLS, Open
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write_tool
from tests.support.waiting import Deadline, eventually, eventually_lines


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_hears_when_its_tools_change(
    server_factory: ServerFactory, talk: Open, tmp_path: Path, version: str
) -> None:
    write_tool(tmp_path, "old", "one")
    server = server_factory(tmp_path, {"execution": {"keep_alive_s": 0.2}})
    conversation = talk(version, server=server)
    assert conversation.ask("tools/list").result["tools"]
    with conversation.get() as (response, found):
        assert response.headers["content-type"].startswith("text/event-stream")
        write_tool(tmp_path, "new", "two")
        event = next(found)
    assert event.message == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    names = [tool["name"] for tool in conversation.ask("tools/list").result["tools"]]
    assert names == ["new", "old"]


def test_a_session_hears_of_its_own_list_alone(
    server_factory: ServerFactory, talk: Open, tmp_path: Path
) -> None:
    write_tool(tmp_path, "old", "one")
    rules = [{"tools": ["secret"], "requires": {"tenants": ["nobody"]}}, {"tools": ["*"]}]
    config = {**CONFIG, "tools": {"reload": True}, "policies": rules}
    server = server_factory(tmp_path, config)
    conversation = talk(server=server, who=ADA)
    with conversation.get() as (_, found):
        write_tool(tmp_path, "secret", "two")
        server.wait_for_log(lambda log: log["event"] in ("tools_changed", "tools_reloaded"))
        write_tool(tmp_path, "open", "three")
        assert next(found).message
    assert len([each for each in conversation.said if "list_changed" in str(each)]) == 1


@rows("accept", ("JSON alone", "application/json"), ("text", "text/html"))
def test_a_stream_is_for_who_takes_one(talk: Open, accept: str) -> None:
    with talk().get(Accept=accept) as (response, _):
        assert response.status_code == 406


def test_a_second_stream_of_a_session_opens_at_once(talk: Open) -> None:
    conversation = talk()
    with conversation.get() as (one, _), conversation.get() as (other, _):
        assert (one.status_code, other.status_code) == (200, 200)


def test_streams_end_when_the_server_does(server_factory: ServerFactory, talk: Open) -> None:
    server = server_factory(TOOLS, CONFIG)
    with talk(server=server).get() as (_, found):
        server.terminate()
        assert list(found) == []
    assert server.wait() == 0


def test_who_ends_a_session_ends_its_streams_alone(talk: Open) -> None:
    ended, other = talk(), talk()
    with ended.get() as (_, found), other.get():
        assert ended.end().status_code == 204
        assert list(found) == []
    assert other.ask("ping").result == {}


@pytest.fixture(scope="module")
def polled(module_server_factory: ServerFactory) -> ServerProcess:
    """A server that sends clients away from streams that stay open."""
    legacy = {"poll_after_s": 0.2, "replay_ttl_s": 5}
    return module_server_factory(TOOLS, {**CONFIG, "legacy": legacy})


def _begin(conversation: Any, arguments: dict[str, Any], tool: str = "count") -> list[Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
    with conversation.stream("tools/call", params) as (_, found):
        return list(found)


def test_a_client_that_is_sent_away_comes_back_for_the_rest(
    talk: Open, polled: ServerProcess
) -> None:
    conversation = talk(server=polled)
    events = _begin(conversation, {"to": 4, "wait_s": 0.2})
    assert events[0].message is None and events[0].id and events[0].retry
    assert all(event.id for event in events)
    assert not any("result" in (event.message or {}) for event in events)
    with conversation.get(**{"Last-Event-ID": events[-1].id}) as (_, found):
        primed, *rest = found
    assert (primed.message, primed.id) == (None, events[-1].id) and primed.retry
    assert "4 steps" in str(rest[-1].message)
    progress = [
        event.message["params"]["progress"]
        for event in [*events, *rest]
        if event.message and event.message.get("method") == "notifications/progress"
    ]
    assert progress == [1, 2, 3, 4]
    # And once more, from the start: nothing is lost, however often it is asked for.
    with conversation.get(**{"Last-Event-ID": events[0].id}) as (_, found):
        again = [event.id for event in found]
    assert again == [event.id for event in [*events, *rest]]


def test_who_lost_the_connection_comes_back_too(talk: Open) -> None:
    conversation = talk()
    params = {"name": "count", "arguments": {"to": 4, "wait_s": 0.2}, "_meta": {"progressToken": 1}}
    with conversation.stream("tools/call", params) as (_, found):
        first, second = next(found), next(found)
    assert first.message is None and second.message is not None
    with conversation.get(**{"Last-Event-ID": second.id}) as (_, found):
        rest = [event.message for event in found if event.message]
    assert "4 steps" in str(rest[-1])
    assert "step 4" in str(rest) and str(second.message) not in str(rest)


def test_another_session_has_no_part_in_a_stream(talk: Open, polled: ServerProcess) -> None:
    conversation = talk(server=polled, who=ADA)
    events = _begin(conversation, {"to": 2, "wait_s": 0.3})
    for stranger in (talk(server=polled, who=ADA), talk(server=polled, who=EVE)):
        with stranger.get(**{"Last-Event-ID": events[0].id}) as (response, _):
            # A stream of its own: comments alone come, where the other one would be there at once.
            lines, until = response.iter_lines(), Deadline(1.0)
            while not until.expired:
                assert not next(lines).startswith("data: {")
    with conversation.get(**{"Last-Event-ID": events[-1].id}) as (_, found):
        assert "2 steps" in str(list(found)[-1].message)


@rows(
    "last",
    ("garbage", "x"),
    ("nothing", ""),
    ("unknown", "0" * 32 + ".1"),
    ("long", "9" * 2000),
)
def test_a_place_that_there_is_not_opens_a_stream_of_what_changes(talk: Open, last: str) -> None:
    with talk().get(**{"Last-Event-ID": last}) as (response, _):
        assert response.status_code == 200


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_before_the_latest_streams_have_no_ids(
    talk: Open, polled: ServerProcess, version: str
) -> None:
    events = _begin(talk(version, server=polled), {"to": 3, "wait_s": 0.2})
    assert not any(event.id or event.retry for event in events)
    assert "3 steps" in str(events[-1].message)


def test_a_question_waits_for_who_was_sent_away(talk: Open, polled: ServerProcess) -> None:
    conversation = talk(server=polled)
    events = _begin(conversation, {"who": "Ada"}, "book")
    last = events[-1].id
    answer = {"action": "accept", "content": {"city": "Oslo"}}
    asked = [event.message for event in events if event.message]
    conversation.answer(asked[0], answer)

    def result() -> Any:
        with conversation.get(**{"Last-Event-ID": last}) as (_, found):
            return [event.message for event in found if event.message]

    assert "Oslo" in str(eventually(result, "the result"))


@rows("end", ("it ended", "ok"), ("it was cancelled", "cancelled"))
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_the_log_tells_how_a_call_ended_whose_client_had_left(
    talk: Open, old: ServerProcess, tmp_path: Path, version: str, end: str
) -> None:
    conversation, notes, id = talk(version), tmp_path / "notes", f"left {version} {end}"
    for_s = 0.8 if end == "ok" else 30
    params = {"name": "wait", "arguments": {"path": str(notes), "for_s": for_s}}
    with conversation.stream("tools/call", params, id=id):
        eventually_lines(notes, "began")
    if end == "cancelled":
        conversation.notify("notifications/cancelled", {"requestId": id})
    line = old.wait_for_log(lambda log: log.get("request_id") == id)
    assert line["outcome"] == end
    assert end == "cancelled" or line["duration_ms"] >= for_s * 1000
    assert len([log for log in old.logs() if log.get("request_id") == id]) == 1
