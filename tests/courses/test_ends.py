"""Ends of calls with something around them: deadlines, clients that go, hooks that do not."""

import asyncio
from typing import Any

import pytest
import structlog

from app.execution import course as course_module
from app.execution.execution import Execution
from app.execution.idempotency import UNKNOWN
from app.state.memory import MemoryStore
from tests.courses.within import Within, ended, hook, until, within
from tests.support.cases import rows

ORDER = {"amount": 5}


async def started(server: Within, *given: Any, **more: Any) -> Execution:
    """A call that is under way."""
    answer = await server.begin(*given, **more)
    assert isinstance(answer, Execution)
    return answer


async def quiet(server: Within) -> None:
    """Until no call is under way."""
    await until(lambda: not server.service._courses._tasks, "the end of all courses")


@rows(
    "use",
    ("goes", "stand_before"),
    ("swallows it", "swallow_before"),
    ("waits by wait_for", "wait_for_before"),
)
@rows("how", ("the deadline", "deadline"), ("the client goes", "cancel"))
async def test_after_the_end_of_a_call_no_hook_lets_its_tool_run(use: str, how: str) -> None:
    async with within(hooks=[hook(use, "pay")]) as server:
        asked = {"timeout_ms": 60} if how == "deadline" else {}
        execution = await started(server, "pay", ORDER, key="k", **asked)
        await until(lambda: server.seen["before"], "the hook")
        if how == "cancel":
            execution.cancel()
        outcome = (await ended(execution)).outcome
        assert outcome == ("timeout" if how == "deadline" else "cancelled")
        await quiet(server)
        assert server.seen["before cancelled"] == 1
        assert server.seen["paid"] == 0
        server.open("before")
        again = await server.call("pay", ORDER, key="k", timeout_ms=2000)
        # Nothing came of the call that went away; a deadline is an outcome.
        assert again.outcome == ("timeout" if how == "deadline" else "ok")
        assert server.seen["paid"] == (0 if how == "deadline" else 1)


@rows("use", ("goes", "stand_after"), ("swallows it", "swallow_after"))
@rows("how", ("the deadline", "deadline"), ("the client goes", "cancel"))
async def test_after_the_end_of_a_call_no_further_hook_sees_its_result(use: str, how: str) -> None:
    async with within(hooks=[hook(use, "pay"), hook("then", "pay")]) as server:
        asked = {"timeout_ms": 60} if how == "deadline" else {}
        execution = await started(server, "pay", ORDER, key="k", **asked)
        await until(lambda: server.seen["after"], "the hook")
        if how == "cancel":
            execution.cancel()
        await ended(execution)
        await quiet(server)
        assert (server.seen["after cancelled"], server.seen["then"]) == (1, 0)
        again = await server.call("pay", ORDER, key="k")
        if how == "deadline":
            assert again.outcome == "timeout"
        else:
            assert again.text == UNKNOWN
        assert server.seen["paid"] == 1


async def test_a_hook_that_will_not_end_is_told_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(course_module, "STRAGGLER_GRACE_S", 0.01)
    async with within(hooks=[hook("never_leave", "pay")]) as server:
        courses = server.service._courses
        with structlog.testing.capture_logs() as logs:
            assert (await server.call("pay", timeout_ms=60)).outcome == "timeout"
            await until(lambda: courses.stragglers, "it is counted")
        (line,) = [each for each in logs if each["event"] == "hook_ignores_cancellation"]
        assert (line["hook"], line["tool"], line["stragglers"]) == ("never_leave", "pay", 1)
        server.open("stubborn")
        await until(lambda: not courses.stragglers, "it has ended")
        assert server.seen["paid"] == 0


async def test_a_hook_that_cancels_its_own_task_fails_the_call_at_once() -> None:
    async with within(hooks=[hook("cancels_itself", "pay")]) as server:
        reply = await asyncio.wait_for(server.call("pay"), 5)
        assert reply.outcome == "internal_error" and server.seen["paid"] == 0


@rows("how", ("the deadline", "deadline"), ("the client goes", "cancel"))
async def test_between_two_tries_a_call_ends_at_once(how: str) -> None:
    async with within() as server:
        asked = {"timeout_ms": 400} if how == "deadline" else {}
        execution = await started(server, "flaky", {"after_s": 0.2}, key="k", **asked)
        await until(lambda: server.seen["tried"], "the first try")
        if how == "cancel":
            execution.cancel()
            await quiet(server)
            assert server.seen["tried"] == 1
            assert (await server.call("flaky", {"after_s": 0.2}, key="k")).text == UNKNOWN
        else:
            await ended(execution)
            await quiet(server)
        assert server.seen["tried"] < 3


async def test_whoever_only_waits_for_an_equal_call_may_go_without_harm() -> None:
    async with within() as server:
        first = await started(server, "kept", {"text": "a"})
        await until(lambda: server.seen["kept"], "it runs")
        waiting = await started(server, "kept", {"text": "a"})
        impatient = await started(server, "kept", {"text": "a"}, timeout_ms=60)
        waiting.cancel()
        assert (await ended(impatient)).outcome == "timeout"
        assert server.seen["kept cancelled"] == 0
        server.open("kept")
        assert (await ended(first)).word == "miss"
        assert (await server.call("kept", {"text": "a"})).word == "hit"
        assert server.seen["kept"] == 1


async def test_when_the_one_that_runs_goes_away_another_takes_its_place() -> None:
    async with within() as server:
        first = await started(server, "kept", {"text": "a"})
        await until(lambda: server.seen["kept"], "it runs")
        waiting = [await started(server, "kept", {"text": "a"}) for _ in range(4)]
        first.cancel()
        await until(lambda: server.seen["kept"] == 2, "another one runs")
        assert server.seen["kept cancelled"] == 1
        server.open("kept")
        replies = [await ended(each) for each in waiting]
        assert sorted(str(each.word) for each in replies) == ["hit"] * 3 + ["miss"]
        assert server.seen["kept"] == 2
        assert first.course is None and first.run_ended is None, "a ring for the collector"


async def test_where_there_is_no_room_for_one_another_takes_its_place() -> None:
    kept = {"text": "a"}
    async with within(
        hooks=[hook("stand_before", "kept")], limits={"concurrent_calls": 2}
    ) as server:
        holding = [await started(server, "hold") for _ in range(2)]
        await until(lambda: server.seen["hold"] == 2, "all room is taken")
        waiting = [await started(server, "kept", kept) for _ in range(2)]
        server.open("before", "kept")
        refused = [await ended(each) for each in waiting]
        assert {str(each.refusal) for each in refused} == {
            "Too many calls run at once. Try again in 1 s."
        }
        assert not server.service._courses.cache.flights
        server.open("hold")
        for each in holding:
            await ended(each)
        assert (await server.call("kept", kept)).word == "miss"


async def test_an_error_that_is_shared_has_one_id_and_no_word_of_a_cache() -> None:
    async with within() as server:
        arguments = {"text": "a", "fails": True}
        first = await started(server, "kept", arguments)
        second = await started(server, "kept", arguments)
        await until(lambda: server.seen["kept"], "it runs")
        server.open("kept")
        one, other = await ended(first), await ended(second)
        assert one.error_id and one.error_id == other.error_id
        assert one.error_id in one.text
        assert one.word is None and other.word is None


class SlowToSettle(MemoryStore):
    """A store that takes claims at once, and takes its time with what came of them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def replace(self, name: str, before: bytes | None, after: bytes, **more: Any) -> bool:
        if b'"running"' not in after:
            self.asked.set()
            await self.answers.wait()
        return await super().replace(name, before, after, **more)


@rows("how", ("the deadline", "deadline"), ("the client goes", "cancel"))
async def test_what_came_of_a_call_is_kept_although_it_ends_while_the_store_is_slow(
    how: str,
) -> None:
    async with within() as server:
        store = server.service._courses.claims._store = SlowToSettle()
        asked = {"timeout_ms": 60} if how == "deadline" else {}
        execution = await started(server, "pay", ORDER, key="k", **asked)
        await asyncio.wait_for(store.asked.wait(), 10)
        if how == "cancel":
            execution.cancel()
        outcome = (await ended(execution)).outcome
        assert outcome == ("timeout" if how == "deadline" else "cancelled")
        store.answers.set()
        again = await server.call("pay", ORDER, key="k")
        assert again.result["structuredContent"] == {"amount": 5, "times": 1}
        assert server.seen["paid"] == 1


async def test_a_repeated_call_has_the_error_id_of_the_first() -> None:
    async with within() as server:
        replies = [
            await server.call("flaky", {"how": "breaks", "failures": 9}, key="k") for _ in range(2)
        ]
        assert replies[0].error_id and replies[0].error_id == replies[1].error_id
        assert replies[0].result == replies[1].result


async def test_a_try_that_succeeds_has_no_error_id_of_the_one_before() -> None:
    async with within() as server:
        reply = await server.call("flaky", {"failures": 1, "how": "breaks"})
        assert reply.outcome == "ok" and reply.error_id is None
    async with within() as server:
        reply = await server.call("flaky", {"failures": 9, "how": "breaks"})
        assert reply.error_id and reply.error_id in reply.text


async def test_without_room_for_another_try_the_last_ending_stands() -> None:
    async with within(limits={"concurrent_calls": 1}) as server:
        arguments = {"after_s": 0.05}
        execution = await started(server, "flaky", arguments, key="k")
        await until(lambda: server.seen["tried"], "the first try")
        holding = await started(server, "hold")
        reply = await ended(execution)
        assert reply.refusal is None and "The shop is closed." in reply.text
        server.open("hold")
        await ended(holding)
        assert (await server.call("flaky", arguments, key="k")).text == reply.text
        assert server.seen["tried"] == 1


@rows("levels", ("as deep as clients may send", 190), ("deeper", 240))
async def test_a_result_is_as_deep_behind_hooks_as_without(levels: int) -> None:
    async with within(hooks=[hook("then", "deep", "exact")]) as server:
        replies = [await server.call("deep", {"levels": levels}, key="k") for _ in range(2)]
        assert [reply.outcome for reply in replies] == ["ok"] * 2
        assert replies[0].result == replies[1].result
        assert server.seen["deep"] == 1
        assert "9" * 30 in (await server.call("exact", {"digits": 30})).text


async def test_what_no_encoder_takes_fails_with_an_id_and_is_an_outcome() -> None:
    async with within(hooks=[hook("then", "deep")]) as server:
        replies = [await server.call("deep", {"levels": 300}, key="k") for _ in range(2)]
        assert [reply.outcome for reply in replies] == ["internal_error"] * 2
        assert server.seen["deep"] == 1


async def test_hooks_of_a_file_that_is_replaced_are_not_closed_under_a_call(
    tmp_path: Any,
) -> None:
    tools = "from app import tool\n\n\n@tool\nasync def pay() -> int:\n    return 1\n"
    hooks = (
        "import asyncio\nfrom collections import Counter\n"
        "from contextlib import asynccontextmanager\n"
        "from app import before_call\n\nseen = Counter()\ngate = asyncio.Event()\nVERSION = 1\n\n\n"
        "@asynccontextmanager\nasync def lifespan():\n"
        "    seen['entered'] += 1\n    yield\n    seen['closed'] += 1\n\n\n"
        "@before_call\nasync def wait(call):\n"
        "    seen['before'] += 1\n    await gate.wait()\n    seen['open'] += not seen['closed']\n"
    )
    (tmp_path / "pays.py").write_text(tools, "utf-8")
    (tmp_path / "waits.py").write_text(hooks, "utf-8")
    async with within(tmp_path, hooks=[hook("wait", "pay")]) as server:
        old = server.service.registry._files["waits.py"].module
        assert old.seen["entered"] == 1
        execution = await started(server, "pay")
        await until(lambda: old.seen["before"], "the hook")
        (tmp_path / "waits.py").write_text(hooks.replace("VERSION = 1", "VERSION = 2"), "utf-8")
        await server.service.registry.reload()
        for _ in range(50):
            await asyncio.sleep(0)
        assert old.seen["closed"] == 0
        old.gate.set()
        assert (await ended(execution)).outcome == "ok"
        assert old.seen["open"] == 1
        await until(lambda: old.seen["closed"], "the old version is closed")
