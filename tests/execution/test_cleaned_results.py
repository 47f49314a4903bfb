"""What is taken out of results and questions, and what is compared letter by letter afterwards."""

from typing import Any, Final

from app.registry.guards import redact
from app.toolkit import CallResult
from tests.courses.within import within
from tests.support.cases import rows
from tests.support.toolfiles import write

MARK: Final = "\u200f"
"""The right-to-left mark, which is taken out."""

TOOLS: Final = (
    "from typing import Annotated, Literal\n"
    "from pydantic import BaseModel, Field\n"
    "from app import Context, ToolResult, tool\n\n\n"
    "class Named(BaseModel):\n"
    f"    kind: Literal['a{MARK}', 'b']\n"
    "    text: Annotated[str, Field(min_length=1)] = 'x'\n\n\n"
    "@tool\nasync def pay(kind: str, text: str = 'x') -> Named:\n"
    "    return Named(kind=kind, text=text)\n\n\n"
    "@tool\nasync def noted() -> ToolResult:\n"
    f"    return ToolResult(content=['a'], meta={{'example.com/x': 'a{MARK}b'}})\n\n\n"
    "class Form(BaseModel):\n"
    f"    kind: Literal['a{MARK}', 'b'] = Field(title='K{MARK}ind')\n\n\n"
    "@tool(asks=['elicitation'])\nasync def asks(ctx: Context) -> str:\n"
    f"    said = await ctx.elicit('kind', 'Which{MARK} one?', Form)\n"
    "    return repr(said.data.kind)\n"
)


@rows("hooks", ("without hooks", []), ("behind a hook", [{"tools": ["*"], "use": "redact"}]))
async def test_values_that_a_schema_names_stay_and_the_others_are_cleaned(
    tmp_path: Any, hooks: list[Any]
) -> None:
    write(tmp_path / "pays.py", TOOLS)
    async with within(tmp_path, hooks=hooks) as server:
        reply = await server.call("pay", {"kind": f"a{MARK}", "text": f"t{MARK}"})
        assert reply.result["structuredContent"] == {"kind": f"a{MARK}", "text": "t"}
        broken = await server.call("pay", {"kind": "b", "text": MARK})
        assert broken.outcome == "internal_error"
        assert broken.text.startswith("Characters that are not sent were taken out")


@rows("hooks", ("without hooks", []), ("behind a hook", [{"tools": ["*"], "use": "redact"}]))
async def test_meta_of_a_result_is_cleaned_too(tmp_path: Any, hooks: list[Any]) -> None:
    write(tmp_path / "pays.py", TOOLS)
    async with within(tmp_path, hooks=hooks) as server:
        assert (await server.call("noted")).result["_meta"]["example.com/x"] == "ab"


async def test_a_form_keeps_the_values_that_its_answers_are_compared_with(tmp_path: Any) -> None:
    write(tmp_path / "pays.py", TOOLS)
    async with within(tmp_path) as server:
        asked = await server.call("asks")
        params = asked.result["inputRequests"]["kind"]["params"]
        assert params["message"] == "Which one?"
        kind = params["requestedSchema"]["properties"]["kind"]
        assert kind["title"] == "Kind"
        (value, _) = kind.get("enum") or [each["const"] for each in kind["oneOf"]]
        assert value == f"a{MARK}"
        answer = {"kind": {"action": "accept", "content": {"kind": value}}}
        back = {"inputResponses": answer, "requestState": asked.result["requestState"]}
        assert (await server.call("asks", params=back)).text == repr(f"a{MARK}")


async def test_masked_names_of_a_block_do_not_come_back() -> None:
    (mask,) = redact({})[1]
    block = {"type": "text", "text": "a", "ada@example.com": 1}
    result = await mask(None, CallResult(content=[block]))
    assert result.content == [{"type": "text", "text": "a", "[email]": 1}]
