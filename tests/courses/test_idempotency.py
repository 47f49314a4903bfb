"""Idempotency keys over HTTP: one execution, whatever is repeated."""

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.asking.rounds import accept, ask, questions, state_of
from tests.auth.office import Headers
from tests.courses.conftest import ADA, BOB
from tests.support.cases import rows
from tests.support.client import McpClient, Reply, meta
from tests.support.server import ServerProcess
from tests.support.waiting import eventually

KEY: Final = "mcp-tool-server/idempotencyKey"
CALLERS: Final = 64


def keyed(
    client: McpClient,
    key: Any,
    tool: str,
    arguments: dict[str, Any],
    who: Headers | None = None,
    **how: Any,
) -> Reply:
    """A call with a key."""
    return client.call(tool, arguments, who, meta_=meta(**{KEY: key}), **how)


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def order() -> str:
    return str(uuid.uuid4())


@rows("tool", ("in the loop", "pay"), ("in a thread", "pay_in_thread"))
def test_a_repeated_call_gets_the_first_result_and_is_not_run(
    client: McpClient, key: str, order: str, tool: str
) -> None:
    arguments = {"order": order, "amount": 5} if tool == "pay" else {"order": order}
    first = keyed(client, key, tool, arguments)
    again = [keyed(client, key, tool, arguments) for _ in range(3)]
    assert [each.result for each in again] == [first.result] * 3
    assert client.call("times", {"order": order}).value == 1


def test_a_repeated_call_of_a_tool_in_a_process_is_not_run(
    client: McpClient, key: str, order: str, tmp_path: Path
) -> None:
    path = tmp_path / "paid"
    arguments = {"order": order, "path": str(path)}
    for _ in range(2):
        assert keyed(client, key, "pay_apart", arguments).value == {"order": order}
    assert path.read_text().splitlines() == [order]


def test_what_a_process_died_of_is_the_result_of_its_repetition_too(
    client: McpClient, key: str, order: str, tmp_path: Path
) -> None:
    path = tmp_path / "paid"
    arguments = {"order": order, "path": str(path), "exit_code": 3}
    first = keyed(client, key, "pay_apart", arguments)
    assert first.is_error
    assert keyed(client, key, "pay_apart", arguments).result == first.result
    assert path.read_text().splitlines() == [order]


def test_many_duplicates_at_once_are_one_execution(client: McpClient, key: str, order: str) -> None:
    begin = threading.Barrier(CALLERS)

    def work(_: int) -> Reply:
        begin.wait(10)
        return keyed(client, key, "pay", {"order": order, "amount": 1, "wait_s": 0.3})

    with ThreadPoolExecutor(CALLERS) as pool:
        replies = list(pool.map(work, range(CALLERS)))
    assert Counter(reply.value["times"] for reply in replies) == {1: CALLERS}
    assert client.call("times", {"order": order}).value == 1


@rows(
    "tool, arguments",
    ("another amount", "pay", {"amount": 6}),
    ("another tool", "pay_in_thread", {}),
    ("an argument more", "pay", {"amount": 5, "wait_s": 0}),
)
def test_a_key_that_was_used_for_another_call_is_refused(
    client: McpClient, key: str, order: str, tool: str, arguments: dict[str, Any]
) -> None:
    keyed(client, key, "pay", {"order": order, "amount": 5})
    refused = keyed(client, key, tool, {"order": order, **arguments})
    assert refused.outcome == (400, -32602)
    assert "used for another call" in refused.error["message"]
    assert client.call("times", {"order": order}).value == 1


def test_keys_of_different_callers_have_nothing_to_do_with_each_other(
    client: McpClient, key: str, order: str
) -> None:
    arguments = {"order": order, "amount": 5}
    times = [keyed(client, key, "pay", arguments, who).value["times"] for who in (ADA, BOB, {})]
    assert times == [1, 2, 3]
    assert keyed(client, key, "pay", {"order": "x", "amount": 1}, BOB).code == -32602


def test_an_error_is_an_outcome_too(client: McpClient, key: str, order: str) -> None:
    for _ in range(2):
        reply = keyed(client, key, "pay", {"order": order})
        assert reply.is_error and "amount" in reply.text
    assert keyed(client, key, "pay", {"order": order, "amount": 1}).code == -32602


def test_a_deadline_is_an_outcome(client: McpClient, key: str, order: str) -> None:
    arguments = {"order": order, "amount": 1, "wait_s": 20}
    own = meta(**{KEY: key, "mcp-tool-server/timeoutMs": 200})
    first = client.call("pay", arguments, meta_=own)
    assert first.is_error and "deadline" in first.text
    assert keyed(client, key, "pay", arguments).text == first.text
    assert client.call("times", {"order": order}).value == 1


def test_a_repetition_that_cannot_wait_longer_says_so_and_runs_nothing(
    client: McpClient, key: str, order: str
) -> None:
    arguments = {"order": order, "amount": 1, "wait_s": 1}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(keyed, client, key, "pay", arguments)
        eventually(lambda: client.call("times", {"order": order}).value == 1, "it runs")
        own = meta(**{KEY: key, "mcp-tool-server/timeoutMs": 100})
        impatient = client.call("pay", arguments, meta_=own)
        assert impatient.is_error and "deadline" in impatient.text
        assert first.result(10).value["times"] == 1
    assert keyed(client, key, "pay", arguments).value["times"] == 1


def test_after_a_caller_went_away_nobody_knows_and_nothing_runs_again(
    client: McpClient, key: str, order: str
) -> None:
    arguments = {"order": order, "amount": 1, "wait_s": 20}
    with client.connect() as connection:
        request = client.request(
            "tools/call", {"name": "pay", "arguments": arguments}, meta_=meta(**{KEY: key})
        )
        connection.send(request.encode())
        eventually(lambda: client.call("times", {"order": order}).value == 1, "it runs")
    for _ in range(2):
        reply = keyed(client, key, "pay", arguments)
        assert reply.is_error and "not known" in reply.text
    assert client.call("times", {"order": order}).value == 1


@rows("tool", ("any time", "pay_if_sure"), ("once", "pay_if_sure_once"))
def test_an_answer_continues_under_the_key_of_the_question(
    client: McpClient, key: str, order: str, tool: str
) -> None:
    def sent(answers: Any = None, state: str | None = None) -> Reply:
        return ask(client, tool, {"order": order}, answers, state, meta_=both)

    both = meta(**{KEY: key, "clientCapabilities": {"elicitation": {}}})
    first = sent()
    assert questions(first)
    second = sent()  # a question is no outcome
    assert questions(second)
    state = state_of(first)
    done = sent({"sure": accept(sure=True)}, state)
    assert done.value["times"] == 1
    assert sent({"sure": accept(sure=True)}, state).result == done.result
    assert sent().result == done.result
    assert client.call("times", {"order": order}).value == 1


def test_a_question_and_its_answer_need_no_key_of_the_question(
    client: McpClient, key: str, order: str
) -> None:
    declared: dict[str, Any] = {"clientCapabilities": {"elicitation": {}}}
    first = ask(client, "pay_if_sure", {"order": order}, meta_=meta(**declared))
    both = meta(**{KEY: key, **declared})
    answers = {"sure": accept(sure=True)}
    for _ in range(2):
        done = ask(client, "pay_if_sure", {"order": order}, answers, state_of(first), meta_=both)
        assert done.value["times"] == 1


@rows(
    "key",
    ("empty", ""),
    ("too long", "k" * 256),
    ("a number", 7),
    ("null", None),
    ("a list", ["k"]),
)
def test_a_key_that_is_none_is_refused_before_anything_runs(
    client: McpClient, order: str, key: Any
) -> None:
    own = {**meta(), KEY: key}
    reply = client.call("pay", {"order": order, "amount": 1}, meta_=own)
    assert reply.outcome == (400, -32602)
    assert KEY in reply.error["message"]
    assert client.call("times", {"order": order}).value == 0


@rows(
    "key",
    ("the longest", "k" * 255),
    ("any characters", "日本 \n \u202e \x00 {}"),
)
def test_any_text_can_be_a_key(client: McpClient, order: str, key: str) -> None:
    arguments = {"order": order, "amount": 1}
    for _ in range(2):
        assert keyed(client, f"{order[:8]}{key}"[:255], "pay", arguments).value["times"] == 1


def test_the_key_is_in_no_log(courses: ServerProcess, key: str, order: str) -> None:
    keyed(courses.client, key, "pay", {"order": order, "amount": 1})
    assert key not in courses.log_text()
