"""Further tries of calls that failed for a passing reason."""

import uuid
from pathlib import Path

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, meta


@pytest.fixture
def name() -> str:
    return str(uuid.uuid4())


@rows("tool", ("in the loop", "flaky"), ("in a thread", "flaky_in_thread"))
@rows("failures, tried", ("none", 0, 1), ("as many as may be", 2, 3), ("one too many", 3, 3))
def test_a_passing_failure_is_tried_again(
    client: McpClient, name: str, tool: str, failures: int, tried: int
) -> None:
    reply = client.call(tool, {"name": name, "failures": failures})
    assert client.call("tried", {"name": name}).value == tried
    if failures < tried:
        assert reply.value == tried
    else:
        assert reply.is_error


@rows("failures, succeeds", ("two", 2, True), ("three", 3, False))
def test_a_process_tool_is_tried_again_too(
    client: McpClient, tmp_path: Path, failures: int, succeeds: bool
) -> None:
    path = tmp_path / "tries"
    reply = client.call("flaky_apart", {"path": str(path), "failures": failures})
    assert reply.is_error != succeeds
    assert len(path.read_text().splitlines()) == 3


@rows(
    "kind, tried",
    ("a connection", "connection", 4),
    ("a timeout", "timeout", 4),
    ("any other exception", "value", 1),
    ("a tool error for good", "for good", 1),
    ("one that passes after the deadline", "long", 1),
)
def test_only_what_may_pass_in_time_is_tried_again(
    client: McpClient, name: str, kind: str, tried: int
) -> None:
    assert client.call("broken", {"name": name, "kind": kind}).is_error
    assert client.call("tried", {"name": name}).value == tried


def test_all_tries_together_have_one_deadline(client: McpClient, name: str) -> None:
    own = meta(**{"mcp-tool-server/timeoutMs": 120})
    reply = client.call("broken", {"name": name, "kind": "connection"}, meta_=own)
    assert reply.is_error
    assert client.call("tried", {"name": name}).value < 4


def test_the_model_is_told_when_to_try_again(client: McpClient) -> None:
    reply = client.call("busy")
    assert reply.text == "The shop is closed. The same call may succeed in 3 s."
    retry = reply.result["_meta"]["mcp-tool-server/retry"]
    assert retry == {"retryable": True, "retryAfterMs": 3000}
