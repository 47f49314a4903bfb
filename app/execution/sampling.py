"""``ctx.sample``: the client's model answers, and uses the tools it was given on the way."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from app.execution.questions import sampling_question
from app.protocol.jsonrpc import dumps
from app.registry.explain import explain
from app.registry.schemas import check_schema, compile_explainer
from app.toolkit import SampleResult, SamplingTool, ToolError

if TYPE_CHECKING:
    from app.execution.asking import Asking

Json = Mapping[str, Any]


async def sample(
    asking: "Asking",
    key: str,
    messages: list[Json],
    *,
    max_tokens: int,
    options: Json,
    tools: Sequence[SamplingTool],
    max_rounds: int,
) -> SampleResult:
    """Ask until the model answers without using a tool.

    Each round is a question with a key of its own (``key``, ``key.1``, ...). What tools did is
    remembered, so that running the asking tool again repeats nothing.

    Raises:
        ToolError: The model uses tools although it was told that its rounds are over.
        ValueError: A tool or a message is not as the schema has it.
    """
    by_name = {each.name: each for each in tools}
    if len(by_name) != len(tools):
        raise ValueError("two of the tools have the same name")
    for each in tools:
        check_schema(each.input_schema, what=f"input_schema of {each.name}", root_object=True)
    messages = list(messages)
    for number in range(max_rounds + 1 if tools else 1):
        name = f"{key}.{number}" if number else key
        question = sampling_question(
            name,
            messages,
            max_tokens=max_tokens,
            options=options,
            tools=tools,
            may_use_tools=number < max_rounds,
        )
        answer = await asking.ask(question)
        uses = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not uses:
            return SampleResult(tuple(answer["content"]), answer["model"], answer["stopReason"])
        results: list[dict[str, Any]] = []
        for number_of_use, use in enumerate(uses):
            run = partial(_use, by_name.get(use["name"]), use)
            results.append(await asking.once(f"{name}:{number_of_use}", run))
        messages += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": results},
        ]
    raise ToolError(f"The client's model still uses tools after {max_rounds} rounds.")


async def _use(tool: SamplingTool | None, use: Json) -> dict[str, Any]:
    """A ``ToolResultContent`` for a use of a tool, an error where it could not be used."""
    if tool is None:
        return _result(use, f"There is no tool {use['name']!r}.", is_error=True)
    explainer = compile_explainer(tool.input_schema, what=f"input_schema of {tool.name}")
    if reasons := explain(explainer, use["input"]):
        return _result(use, f"Invalid input: {'; '.join(reasons)}", is_error=True)
    try:
        value = tool.function(use["input"])
        if inspect.isawaitable(value):
            value = await value
    except ToolError as error:
        return _result(use, str(error), is_error=True)
    return _result(use, value if isinstance(value, str) else dumps(value).decode())


def _result(use: Json, text: str, *, is_error: bool = False) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    out = {"type": "tool_result", "toolUseId": use["id"], "content": content}
    return {**out, "isError": True} if is_error else out
