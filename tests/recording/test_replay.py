"""Recorded calls against the same tools, other tools and other rules: what is said of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.principal import Principal
from app.recording.replay import MASKED_INPUT, Verdict
from tests.recording.making import AT
from tests.recording.replaying import Bench, bench
from tests.support.cases import rows

HOUR = 3600.0
ALICE = Principal(issuer="i", subject="alice", scopes=frozenset({"read"}), tenant="acme")
BOB = Principal(issuer="i", subject="bob")

TOOLS = '''
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field
from app import Context, ToolError, tool

READS = {"read_only": True}


class Sure(BaseModel):
    sure: bool


@tool(annotations=READS)
async def divide(a: int, b: int) -> dict[str, float]:
    """Divide."""
    return {"quotient": a / b}


@tool(annotations=READS, rate_limit={"bucket": "tool", "capacity": 1, "period_s": 3600})
async def rate(currency: str) -> dict[str, float]:
    """Rate of a currency."""
    if currency == "XXX":
        raise ToolError("There is no such currency.")
    return {"rate": 1.5}


@tool(annotations=READS)
async def who(ctx: Context) -> str:
    """Who calls."""
    principal = ctx.principal
    return f"{principal.subject} of {principal.tenant}, {principal.claims.get('department')}"


@tool(annotations=READS, asks=[Sure], single_use=True)
async def confirm(ctx: Context) -> str:
    """Ask."""
    answer = await ctx.elicit("sure", "Are you sure?", Sure)
    return f"{answer.action}: {answer.data.sure if answer.data else None}"


@tool
async def note(path: str) -> str:
    """Write a file."""
    Path(path).write_text("written")
    return "written"


@tool(annotations=READS)
async def greet(name: Annotated[str, Field(max_length=20)] = "you") -> str:
    """Greet."""
    return f"Hello, {name}!"
'''
RULE = {"tools": ["*"]}


async def _across(
    folder: Path,
    tool: str,
    arguments: dict[str, Any],
    *,
    other: str = TOOLS,
    then: Sequence[dict[str, Any]] = (),
    now: Sequence[dict[str, Any]] = (),
    who: Principal = ALICE,
    address: str | None = None,
    at: float | None = None,
    answers: dict[str, Any] | None = None,
    **how: Any,
) -> Any:
    """Record a call with some tools and rules, and replay it with others."""
    async with bench(folder, TOOLS, policies=then) as before:
        recording = await before.call(tool, arguments, who, address=address, answers=answers)
    async with bench(folder, other, policies=now) as after:
        return await after.replay(recording, at=at, **how)


@rows(
    "tool, arguments",
    ("a result", "divide", {"a": 1, "b": 2}),
    ("an error of the tool", "rate", {"currency": "XXX"}),
    ("an internal error", "divide", {"a": 1, "b": 0}),
    ("arguments against the schema", "divide", {"a": "x", "b": 0}),
    ("a tool that is not there", "nobody", {}),
    ("who called, with the claims", "who", {}),
)
async def test_what_happens_again_is_the_same(
    tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    replayed = await _across(tmp_path, tool, arguments)

    assert replayed.verdict is Verdict.SAME, replayed
    assert replayed.diff == ""


async def test_the_caller_is_who_called(tmp_path: Path) -> None:
    who = Principal(issuer="i", subject="carol", tenant="acme", claims={"department": "loans"})

    async with bench(tmp_path, TOOLS) as one:
        recording = await one.call("who", {}, who)
        replayed = await one.replay(recording)

    assert replayed.verdict is Verdict.SAME
    assert replayed.now is not None
    assert replayed.now.result is not None
    assert replayed.now.result["content"][0]["text"] == "carol of acme, loans"


async def test_a_mended_tool_shows_what_it_gives_now(tmp_path: Path) -> None:
    mended = TOOLS.replace('"quotient": a / b', '"quotient": a / b if b else 0.0')

    replayed = await _across(tmp_path, "divide", {"a": 1, "b": 0}, other=mended)

    assert replayed.verdict is Verdict.CHANGED
    assert replayed.recording.outcome == "internal_error"
    assert replayed.now.outcome == "ok"
    assert '+    "quotient": 0.0' in replayed.diff
    assert '-      "text": "The tool failed because of an internal error. (error id)"' in (
        replayed.diff
    )
    assert "another version of the tool" in replayed.notes


async def test_another_result_is_shown_beside_the_recorded_one(tmp_path: Path) -> None:
    other = TOOLS.replace('"rate": 1.5', '"rate": 1.6')

    replayed = await _across(tmp_path, "rate", {"currency": "EUR"}, other=other)

    assert replayed.verdict is Verdict.CHANGED
    assert [line for line in replayed.diff.splitlines() if line[:1] in "+-"][2:] == [
        '-    "rate": 1.5',
        '+    "rate": 1.6',
    ]


async def test_a_member_that_may_differ_is_left_out(tmp_path: Path) -> None:
    other = TOOLS.replace('"rate": 1.5', '"rate": 1.6')

    replayed = await _across(tmp_path, "rate", {"currency": "EUR"}, other=other, ignored=["rate"])

    assert replayed.verdict is Verdict.SAME


async def test_a_tool_that_breaks_is_an_error(tmp_path: Path) -> None:
    broken = TOOLS.replace('return {"rate": 1.5}', 'return {}["rate"]')

    replayed = await _across(tmp_path, "rate", {"currency": "EUR"}, other=broken)

    assert replayed.verdict is Verdict.ERROR
    assert replayed.now.error_id is not None


MONEY = {"tools": ["rate"], "requires": {"scopes": ["money"]}}
READ = {"tools": ["rate"], "requires": {"scopes": ["read"]}}
HIDDEN = {"tools": ["divide"]}
NIGHT = {"tools": ["rate"], "conditions": {"time": "22:00-06:00", "timezone": "UTC"}}
OFFICE = {"tools": ["rate"], "conditions": {"networks": ["10.0.0.0/8"]}}
EUROS = {"tools": ["rate"], "arguments": {"currency": {"enum": ["EUR"]}}}


@rows(
    "then, now, verdict, said",
    ("more scopes", [READ], [MONEY], Verdict.REFUSED, "scope"),
    ("fewer scopes", [MONEY], [READ], Verdict.ALLOWED, None),
    ("hidden now", [READ], [HIDDEN], Verdict.REFUSED, "Unknown tool: rate"),
    ("hidden then", [HIDDEN], [READ], Verdict.ALLOWED, None),
    ("refused then and now", [MONEY], [MONEY], Verdict.SAME, None),
    ("refused otherwise", [MONEY], [HIDDEN], Verdict.CHANGED, None),
    ("from elsewhere", [RULE], [OFFICE], Verdict.REFUSED, "network address"),
    ("with other arguments", [RULE], [EUROS], Verdict.REFUSED, "currency"),
    ("arguments allowed now", [EUROS], [RULE], Verdict.ALLOWED, None),
    ("not at this hour", [RULE], [NIGHT], Verdict.REFUSED, "Unknown tool: rate"),
    ("at last at this hour", [NIGHT], [RULE], Verdict.ALLOWED, None),
)
async def test_other_rules_are_decided_without_running_anything(
    then: list[Any], now: list[Any], verdict: Verdict, said: str | None, tmp_path: Path
) -> None:
    crashing = TOOLS.replace('if currency == "XXX":', "raise SystemExit(1)\n    if False:")

    replayed = await _across(
        tmp_path,
        "rate",
        {"currency": "USD"},
        then=then,
        now=now,
        other=crashing,
        address="192.0.2.7",
    )

    assert replayed.verdict is verdict, replayed
    assert said is None or said in replayed.notes[-1]


@rows(
    "at, verdict",
    ("at the hour of the call", AT, Verdict.SAME),
    ("ten hours later", AT + 11 * HOUR, Verdict.REFUSED),
)
async def test_hours_are_those_of_the_call_unless_said_otherwise(
    at: float, verdict: Verdict, tmp_path: Path
) -> None:
    day = {"tools": ["rate"], "conditions": {"time": "09:00-17:00", "timezone": "UTC"}}

    replayed = await _across(tmp_path, "rate", {"currency": "EUR"}, then=[day], now=[day], at=at)

    assert replayed.verdict is verdict


async def test_a_tool_with_effects_does_not_run(tmp_path: Path) -> None:
    target = tmp_path / "file"
    async with bench(tmp_path, TOOLS) as one:
        recording = await one.call("note", {"path": str(target)})
        target.unlink()

        skipped = await one.replay(recording)
        existed = target.exists()
        done = await one.replay(recording, allow_effects=True)

    assert (skipped.verdict, existed) == (Verdict.SKIPPED, False)
    assert "--allow-effects" in skipped.notes[-1]
    assert (done.verdict, target.exists()) == (Verdict.SAME, True)


async def test_whether_a_tool_may_run_is_said_by_the_code_that_would_run(tmp_path: Path) -> None:
    writes = TOOLS.replace("@tool(annotations=READS)\nasync def divide", "@tool\nasync def divide")

    replayed = await _across(tmp_path, "divide", {"a": 1, "b": 2}, other=writes)

    assert replayed.verdict is Verdict.SKIPPED


async def test_hooks_of_the_folder_are_effects_too(tmp_path: Path) -> None:
    hooked = TOOLS + (
        "\nfrom app import HookCall, before_call\n\n"
        "@before_call\ndef watch(call: HookCall) -> None:\n    raise SystemExit(1)\n"
    )
    async with bench(tmp_path, TOOLS) as before:
        recording = await before.call("divide", {"a": 1, "b": 2})
    async with bench(tmp_path, hooked, hooks=[{"tools": ["*"], "use": "watch"}]) as after:
        replayed = await after.replay(recording)

    assert replayed.verdict is Verdict.SKIPPED
    assert "hooks" in replayed.notes[-1]


async def test_limits_do_not_count_replays(tmp_path: Path) -> None:
    rates = [{"tools": ["*"], "bucket": "user", "capacity": 1, "period_s": 3600}]
    async with bench(tmp_path, TOOLS, limits={"rates": rates}) as one:
        recording = await one.call("rate", {"currency": "EUR"}, ALICE)

        verdicts = [(await one.replay(recording)).verdict for _ in range(5)]

    assert verdicts == [Verdict.SAME] * 5


async def test_answers_are_given_again(tmp_path: Path) -> None:
    answers = {"sure": {"action": "accept", "content": {"sure": True}}}

    replayed = await _across(tmp_path, "confirm", {}, answers=answers)

    assert replayed.verdict is Verdict.SAME
    assert replayed.now.result["content"][0]["text"] == "accept: True"


async def test_a_question_without_a_recorded_answer_is_a_change(tmp_path: Path) -> None:
    answers = {"sure": {"action": "accept", "content": {"sure": True}}}
    other = TOOLS.replace('elicit("sure"', 'elicit("really"')

    replayed = await _across(tmp_path, "confirm", {}, answers=answers, other=other)

    assert replayed.verdict is Verdict.CHANGED
    assert replayed.now.outcome == "input_required"
    assert '"really"' in replayed.diff
    assert "requestState" not in replayed.diff


async def test_masked_arguments_are_said_to_be_so(tmp_path: Path) -> None:
    replayed = await _across(tmp_path, "greet", {"name": "joe@example.com"})

    assert MASKED_INPUT in replayed.notes
    assert "joe" not in replayed.diff


async def test_a_result_is_masked_before_it_is_compared(tmp_path: Path) -> None:
    leaking = TOOLS.replace('f"Hello, {name}!"', '"Hello, joe@example.com!"')
    async with bench(tmp_path, leaking) as one:
        recording = await one.call("greet", {})
        replayed = await one.replay(recording)

    assert replayed.verdict is Verdict.SAME
    assert recording.redaction.masked == ("result",)


async def test_a_large_result_is_compared_by_its_digest(tmp_path: Path) -> None:
    long = TOOLS.replace('f"Hello, {name}!"', '"word " * 60_000')
    longer = TOOLS.replace('f"Hello, {name}!"', '"word " * 60_001')
    async with bench(tmp_path, long) as one:
        recording = await one.call("greet", {})
        same = await one.replay(recording)
    async with bench(tmp_path, longer) as other:
        changed = await other.replay(recording)

    assert recording.result is None
    assert same.verdict is Verdict.SAME
    assert changed.verdict is Verdict.CHANGED


@rows(
    "changed, said",
    ("arguments that were not kept", {"arguments": b"x" * 200_000}, "too large to be kept"),
    ("answers that were not kept", {"answers": b"x" * 200_000}, "too large to be kept"),
    ("what was entered on a page", {"needs_page": True}, "on a page"),
    ("a caller who had gone", {"outcome": "cancelled", "result": None}, "nothing to compare"),
)
async def test_what_cannot_be_run_again_is_skipped(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    async with bench(tmp_path, TOOLS) as one:
        recording = await one.call("divide", {"a": 1, "b": 2}, changed=changed)
        replayed = await one.replay(recording)

    assert replayed.verdict is Verdict.SKIPPED
    assert said in replayed.notes[-1]


@pytest.mark.parametrize("tool", ["divide", "confirm"])
async def test_an_edited_recording_breaks_nothing(tool: str, tmp_path: Path) -> None:
    async with bench(tmp_path, TOOLS) as one:
        recording = await one.call(tool, {"a": 1, "b": 2})
        for result in ({}, {"content": "x"}, {"content": [1], "isError": True}, {"isError": 7}):
            edited = recording.model_copy(update={"result": result})
            assert isinstance(one, Bench)
            assert (await one.replay(edited)).verdict in set(Verdict)
