"""Calls that are asked back, round by round."""

from typing import Any

from tests.support.client import McpClient, Reply, meta

ALL: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


def ask(
    client: McpClient,
    tool: str,
    arguments: dict[str, Any] | None = None,
    answers: Any = None,
    state: Any = None,
    *,
    capabilities: dict[str, Any] | None = None,
    **how: Any,
) -> Reply:
    """Call a tool, with answers and state where they are given."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
    if answers is not None:
        params["inputResponses"] = answers
    if state is not None:
        params["requestState"] = state
    declared = ALL if capabilities is None else capabilities
    how.setdefault("meta_", meta(clientCapabilities=declared))
    return client.ask("tools/call", params, **how)


def questions(reply: Reply) -> dict[str, Any]:
    """`inputRequests` of a result that asks."""
    assert reply.result["resultType"] == "input_required", reply.last
    assert reply.status == 200
    found: dict[str, Any] = reply.result["inputRequests"]
    return found


def state_of(reply: Reply) -> str:
    """`requestState` of a result that asks."""
    questions(reply)
    state = reply.result["requestState"]
    assert isinstance(state, str)
    return state


def accept(**content: Any) -> dict[str, Any]:
    """The answer of a user who fills in a form."""
    return {"action": "accept", "content": content}


def message(*blocks: dict[str, Any], text: str = "") -> dict[str, Any]:
    """What a client's model says."""
    content = [*blocks, {"type": "text", "text": text}] if text else list(blocks)
    return {"role": "assistant", "content": content, "model": "test-model"}


def use(id: str, **values: Any) -> dict[str, Any]:
    """A use of the tool `add`."""
    return {"type": "tool_use", "id": id, "name": "add", "input": values}
