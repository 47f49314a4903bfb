"""What counts once: answers of users, effects before a question, a place for a call."""

from typing import Any, Final

import pytest

from app.execution.execution import Execution
from app.protocol.errors import InvalidParams, ProtocolError, TooManyRequests, Unavailable
from tests.courses.within import ADA, Ended, Within, ended, hook, until, within
from tests.support.cases import rows

SURE: Final = {"sure": {"action": "accept", "content": {"sure": True}}}
FULL: Final = {"concurrent_calls": 1}


def back(asked: Ended) -> dict[str, Any]:
    """The parameters that bring an answer back."""
    assert asked.outcome == "input_required", asked
    return {"inputResponses": SURE, "requestState": asked.result["requestState"]}


async def filled(server: Within) -> Execution:
    """All room is taken until `hold` is opened."""
    holding = await server.begin("hold")
    assert isinstance(holding, Execution)
    await until(lambda: server.seen["hold"], "it holds")
    return holding


async def refused(server: Within, *given: Any, **more: Any) -> ProtocolError:
    """Why a call is refused, at once or later."""
    try:
        reply = await server.call(*given, **more)
    except ProtocolError as error:
        return error
    assert reply.refusal is not None, reply
    return reply.refusal


@rows("first, second", ("two keys", "a", "b"), ("no key", None, None), ("one key", None, "b"))
async def test_an_answer_counts_once_whatever_the_key(
    first: str | None, second: str | None
) -> None:
    async with within() as server:
        asked = await server.call("ask_once", who=ADA)
        keys = [{} if key is None else {"key": key} for key in (first, second)]
        done = await server.call("ask_once", who=ADA, params=back(asked), **keys[0])
        assert done.outcome == "ok"
        error = await refused(server, "ask_once", who=ADA, params=back(asked), **keys[1])
        assert isinstance(error, InvalidParams) and "requestState" in error.message
        assert server.seen["asked"] == 1


@rows("key", ("with a key", {"key": "k"}), ("without", {}))
async def test_an_answer_is_not_used_up_by_a_call_for_which_there_is_no_room(
    key: dict[str, str],
) -> None:
    async with within(limits=FULL) as server:
        asked = await server.call("ask_once", who=ADA)
        holding = await filled(server)
        error = await refused(server, "ask_once", who=ADA, params=back(asked), **key)
        assert isinstance(error, Unavailable)
        server.open("hold")
        await ended(holding)
        done = await server.call("ask_once", who=ADA, params=back(asked), **key)
        assert done.outcome == "ok" and server.seen["asked"] == 1


async def test_an_answer_is_given_back_where_the_tool_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with within() as server:
        asked = await server.call("ask_once", who=ADA)
        tasks = server.service.executor._carriers["loop"]

        def full(*_: Any) -> None:
            raise Unavailable("The queue is full.", retry_after_s=1)

        with monkeypatch.context() as patch:
            patch.setattr(tasks, "start", full)
            error = await refused(server, "ask_once", who=ADA, params=back(asked))
            assert isinstance(error, Unavailable)
        done = await server.call("ask_once", who=ADA, params=back(asked))
        assert done.outcome == "ok" and server.seen["asked"] == 1


async def test_an_answer_is_not_used_up_by_a_hook_that_refuses() -> None:
    async with within(hooks=[hook("refuse", "ask_once")]) as server:
        asked = await server.call("ask_once", who=ADA)
        assert (await server.call("ask_once", who=ADA, params=back(asked))).text == "Not now."
        done = await server.call("ask_once", who=ADA, params=back(asked))
        assert done.outcome == "ok" and server.seen["asked"] == 1


async def test_a_question_that_was_lost_on_its_way_is_given_again_with_its_state() -> None:
    async with within() as server:
        first = await server.call("book", who=ADA, key="k")
        again = await server.call("book", who=ADA, key="k")
        assert again.outcome == "input_required" and again.result == first.result
        done = await server.call("book", who=ADA, params=back(again), key="k")
        assert done.text == "1"
        for params in (None, back(first)):
            assert (await server.call("book", who=ADA, params=params, key="k")).text == "1"
        assert server.seen["reserved"] == 1


async def test_a_question_stays_where_the_round_after_it_is_refused() -> None:
    async with within(limits=FULL) as server:
        first = await server.call("book", who=ADA, key="k")
        holding = await filled(server)
        error = await refused(server, "book", who=ADA, params=back(first), key="k")
        assert isinstance(error, Unavailable)
        server.open("hold")
        await ended(holding)
        assert (await server.call("book", who=ADA, key="k")).result == first.result
        assert (await server.call("book", who=ADA, params=back(first), key="k")).text == "1"


@rows(
    "tool, hooks, meta",
    ("plain", "pay", [], {}),
    ("a hook", "pay", ["then"], {}),
    ("retries", "flaky", [], {}),
    ("a key", "pay", [], {"key": "k"}),
    ("kept", "kept_blindly", [], {}),
    ("kept, and a hook", "kept_blindly", ["then"], {}),
)
async def test_no_call_runs_beyond_the_room_there_is(
    tool: str, hooks: list[str], meta: dict[str, Any]
) -> None:
    async with within(limits=FULL, hooks=[hook(use, tool) for use in hooks]) as server:
        holding = await filled(server)
        error = await refused(server, tool, **meta)
        assert isinstance(error, Unavailable)
        counted = [server.seen[each] for each in ("paid", "tried", "kept_blindly")]
        assert counted == [0, 0, 0]
        server.open("hold")
        await ended(holding)
        again = await server.call(tool, {"failures": 0} if tool == "flaky" else {}, **meta)
        assert again.outcome == "ok"


@rows("meta", ("no key", {}), ("a key", {"key": "k"}))
async def test_calls_that_wait_in_their_hooks_take_room_too(meta: dict[str, str]) -> None:
    async with within(limits=FULL, hooks=[hook("stand_before", "pay")]) as server:
        first = await server.begin("pay")
        await until(lambda: server.seen["before"], "it waits")
        assert isinstance(await refused(server, "pay", **meta), Unavailable)
        server.open("before")
        assert (await ended(first)).outcome == "ok"
        assert (await server.call("pay", **meta)).outcome == "ok"


@rows("tool, hooks", ("plain", "pay", []), ("a hook", "pay", ["then"]), ("retries", "flaky", []))
async def test_what_is_refused_for_want_of_room_costs_no_call(tool: str, hooks: list[str]) -> None:
    rate = {"bucket": "user", "tools": [tool], "capacity": 1, "period_s": 60}
    limits = {"concurrent_calls": 1, "rates": [rate]}
    arguments = {"failures": 0} if tool == "flaky" else {}
    async with within(limits=limits, hooks=[hook(use, tool) for use in hooks]) as server:
        holding = await filled(server)
        assert isinstance(await refused(server, tool, arguments), Unavailable)
        server.open("hold")
        await ended(holding)
        assert (await server.call(tool, arguments)).outcome == "ok"
        assert isinstance(await refused(server, tool, arguments), TooManyRequests)


async def test_a_repeated_call_repeats_the_mirrored_headers_too() -> None:
    async with within() as server:
        replies = [await server.call("pay_where", {"region": "us"}, key="k") for _ in range(2)]
        assert replies[0].headers and replies[0].headers == replies[1].headers
        assert b"us" in dict(replies[1].headers).values()
        assert server.seen["paid"] == 1
