"""The official `mcp` client answers what tools ask, round by round."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext

from tests.interop.support import connect, only_text
from tests.support.server import ServerProcess

TOOLS = Path(__file__).parents[1] / "asking" / "tools"
Asked = types.ElicitRequestParams


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(TOOLS, {"tools": {"reload": False}}) as process:
        yield process


class User:
    """Answers questions, and remembers them."""

    def __init__(self, answer: Callable[[Asked], types.ElicitResult]) -> None:
        self._answer = answer
        self.asked: list[Asked] = []

    async def elicit(self, _: ClientRequestContext, asked: Asked) -> types.ElicitResult:
        self.asked.append(asked)
        return self._answer(asked)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


async def sample(
    context: ClientRequestContext, asked: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
    """A model that adds with the tool it is given, and otherwise writes a poem."""
    if not asked.tools:
        text = types.TextContent(type="text", text="Roses are red.")
        return types.CreateMessageResult(role="assistant", content=text, model="poet")
    last = asked.messages[-1].content
    blocks = last if isinstance(last, list) else [last]
    results = [block for block in blocks if isinstance(block, types.ToolResultContent)]
    answer: types.SamplingMessageContentBlock = types.ToolUseContent(
        type="tool_use", id="u1", name="add", input={"a": 2, "b": 3}
    )
    if results:
        (found,) = results[0].content
        assert isinstance(found, types.TextContent)
        answer = types.TextContent(type="text", text=f"It is {found.text}.")
    return types.CreateMessageResultWithTools(role="assistant", content=answer, model="adder")


async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])  # type: ignore[arg-type]


def open_client(server: ServerProcess, user: User, **options: Any) -> Client:
    return connect(server.url, elicitation_callback=user.elicit, **options)


async def test_a_user_fills_in_a_form(server: ServerProcess) -> None:
    user = User(lambda _: accept(name="octocat"))
    async with open_client(server, user) as client:
        result = await client.call_tool("login", {"greeting": "Welcome"})
    assert only_text(result) == "Welcome, octocat!"
    (asked,) = user.asked
    assert isinstance(asked, types.ElicitRequestFormParams)
    assert asked.message == "Please provide your GitHub username"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_declines_or_cancels(server: ServerProcess, action: Any) -> None:
    user = User(lambda _: types.ElicitResult(action=action))
    async with open_client(server, user) as client:
        result = await client.call_tool("login", {})
    assert only_text(result) == f"{action}: nobody is greeted"


async def test_a_user_who_answers_badly_is_asked_again(server: ServerProcess) -> None:
    answers = iter([accept(name="x"), accept(), accept(name="octocat")])
    user = User(lambda _: next(answers))
    async with open_client(server, user) as client:
        result = await client.call_tool("login", {})
    assert only_text(result) == "Hello, octocat!"
    assert [asked.message.partition("not fit: ")[2] for asked in user.asked] == [
        "",
        "name: must have at least 2 characters",
        "missing required name",
    ]


async def test_questions_that_depend_on_each_other_take_a_round_each(server: ServerProcess) -> None:
    def answer(asked: Asked) -> types.ElicitResult:
        if "travels" in asked.message:
            return accept(name="Ada")
        assert asked.message == "Where does Ada go?"
        return accept(to="Rome", nights=3, email="ada@example.com")

    user = User(answer)
    async with open_client(server, user) as client:
        result = await client.call_tool("book", {})
    assert result.structured_content is not None
    assert result.structured_content["trip"] == {
        "to": "Rome",
        "nights": 3,
        "email": "ada@example.com",
    }
    assert len(user.asked) == 2


async def test_several_questions_of_all_kinds_take_one_round(server: ServerProcess) -> None:
    user = User(lambda _: accept(name="Ada"))
    async with open_client(
        server, user, sampling_callback=sample, list_roots_callback=list_roots
    ) as client:
        first = await client.session.call_tool("everything", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert set(first.input_requests or {}) == {"one", "two", "poem", "roots"}
        result = await client.call_tool("everything", {})
    said: Any = result.structured_content  # a list, which the client's type does not foresee
    assert said == ["accept accept", "Roses are red.", "file:///home/ada"]
    assert len(user.asked) == 2


async def test_the_client_s_model_uses_a_tool(server: ServerProcess) -> None:
    capabilities = types.SamplingCapability(tools=types.SamplingToolsCapability())
    async with connect(
        server.url, sampling_callback=sample, sampling_capabilities=capabilities
    ) as client:
        result = await client.call_tool("research", {})
    assert only_text(result) == "It is 5."


async def test_a_user_is_sent_to_a_page(server: ServerProcess) -> None:
    user = User(lambda _: types.ElicitResult(action="accept"))
    async with open_client(server, user) as client:
        result = await client.call_tool("connect", {})
    assert only_text(result) == "accept"
    assert isinstance(user.asked[0], types.ElicitRequestURLParams)


async def test_a_client_without_callbacks_is_told_what_is_missing(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("login", {})
    assert caught.value.error.code == -32021
    assert caught.value.error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_a_single_use_answer_counts_once(server: ServerProcess) -> None:
    user = User(lambda _: accept(name="Ada"))
    async with open_client(server, user) as client:
        first = await client.session.call_tool("redeem", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        answers: dict[str, Any] = {"who": accept(name="Ada")}
        how: dict[str, Any] = {"input_responses": answers, "request_state": first.request_state}
        assert only_text(await client.call_tool("redeem", {}, **how)) == "redeemed by Ada"
        with pytest.raises(MCPError) as caught:
            await client.call_tool("redeem", {}, **how)
    assert caught.value.error.code == -32602
