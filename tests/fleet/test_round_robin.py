"""Conversations whose every request reaches another server, while keys are rotated, and although
the clock of one server is a minute ahead."""

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.asking.rounds import accept, ask, questions, state_of
from tests.courses.test_idempotency import keyed
from tests.fleet.conftest import ADA, EVE, Fleet
from tests.sessions.conversation import Conversation
from tests.support.cases import rows
from tests.support.client import Reply

ROUNDS = 3
"""Of each conversation, so that each begins at another server."""


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_list_is_read_page_by_page(fleet: Fleet, number: int) -> None:
    found, cursor = list[str](), None
    while True:
        result = fleet.client.ask("tools/list", {"cursor": cursor} if cursor else {}).result
        found += [tool["name"] for tool in result["tools"]]
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 25 + 8


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_tool_that_asks_twice_is_answered_wherever_the_client_comes(
    fleet: Fleet, number: int
) -> None:
    first = ask(fleet.client, "travel")
    assert questions(first).keys() == {"from"}
    second = ask(
        fleet.client, "travel", answers={"from": accept(city="Oslo")}, state=state_of(first)
    )
    assert questions(second).keys() == {"to"}
    done = ask(fleet.client, "travel", answers={"to": accept(city="Rome")}, state=state_of(second))
    assert done.text == "Oslo to Rome"


@pytest.mark.parametrize("number", range(ROUNDS))
def test_an_answer_that_counts_once_counts_on_one_server(fleet: Fleet, number: int) -> None:
    state = state_of(ask(fleet.client, "redeem"))
    answers = {"city": accept(city="Oslo")}
    with ThreadPoolExecutor(6) as pool:
        clients = [fleet.client for _ in range(6)]
        replies = list(
            pool.map(lambda each: ask(each, "redeem", answers=answers, state=state), clients)
        )
    assert sum(reply.outcome == (200, None) for reply in replies) == 1
    assert Counter(reply.outcome for reply in replies)[400, -32602] == 5


@rows("who", ("a known caller", ADA), ("nobody", {}))
def test_a_handle_works_everywhere_and_for_its_owner_alone(
    fleet: Fleet, who: dict[str, str]
) -> None:
    handle = fleet.client.call("begin", {}, who).text
    for number in range(2 * ROUNDS):
        said = fleet.client.call("put", {"handle": handle, "item": f"{number}"}, who)
        assert not said.is_error
    stranger = fleet.client.call("put", {"handle": handle, "item": "mine"}, EVE)
    assert stranger.is_error and "no such list" in stranger.text
    with ThreadPoolExecutor(12) as pool:
        clients = [fleet.client for _ in range(12)]
        arguments = {"handle": handle, "item": "x"}
        list(pool.map(lambda each: each.call("put", arguments, who), clients))
    last = fleet.client.call("put", {"handle": handle, "item": "last"}, who)
    assert last.text.count("x") == 12, "none of those at once has undone another"
    assert fleet.client.call("drop", {"handle": handle}, who).text == "dropped"
    assert fleet.client.call("put", {"handle": handle, "item": "late"}, who).is_error


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
def test_clients_of_earlier_revisions_are_answered_as_well(fleet: Fleet, version: str) -> None:
    form = accept(city="Oslo")
    with Conversation(fleet.servers, version) as conversation:
        conversation.open()
        assert conversation.ask("tools/list").result["tools"]
        for _ in range(ROUNDS):
            answers = {"elicitation/create": form}
            assert conversation.call("travel", answers=answers).text == "Oslo to Oslo"
        assert conversation.end().status_code == 204
        for _ in fleet.servers:
            assert conversation.ask("ping").status == 404


def test_a_limit_holds_for_all_servers_together(fleet: Fleet) -> None:
    begin = threading.Barrier(30)

    def work(_: int) -> list[Reply]:
        begin.wait(10)
        return [fleet.client.call("limited", {}, ADA) for _ in range(5)]

    with ThreadPoolExecutor(30) as pool:
        replies = [reply for some in pool.map(work, range(30)) for reply in some]
    counted = Counter(reply.status for reply in replies)
    assert counted == {200: 100, 429: 50}
    waits = [int(reply.header("retry-after") or 0) for reply in replies if reply.status == 429]
    assert all(50 <= wait <= 61 for wait in waits)
    assert fleet.client.call("limited", {}, EVE).status == 200, "another caller has their own"
    key = str(uuid.uuid4())
    for _ in range(3):
        refused = keyed(fleet.client, key, "limited", {}, ADA, timeout_s=5)
        assert refused.status == 429, "its key is free again, and nobody waits for it"


def test_duplicates_on_all_servers_are_one_execution(fleet: Fleet, tmp_path: Path) -> None:
    key, callers = str(uuid.uuid4()), 64
    arguments = {"folder": str(tmp_path), "order": "one", "wait_s": 0.3}
    begin = threading.Barrier(callers)

    def work(_: int) -> Reply:
        client = fleet.client
        begin.wait(20)
        return keyed(client, key, "pay", arguments, ADA)

    with ThreadPoolExecutor(callers) as pool:
        replies = list(pool.map(work, range(callers)))
    assert Counter(reply.value["runs"] for reply in replies) == {1: callers}
    assert (tmp_path / "one").read_text().splitlines() == ["paid"]
    other = keyed(fleet.client, key, "pay", {**arguments, "order": "two"}, ADA)
    assert other.outcome == (400, -32602)


def test_nothing_is_left_without_an_end(fleet: Fleet) -> None:
    assert fleet.redis.keys()
    assert not fleet.redis.keys_without_end()
