"""Business rules of a tool's author: ``@tool(validate=...)``."""

from typing import Any

from tests.support.cases import rows
from tests.support.client import McpClient


@rows(
    "tool, arguments, text",
    ("in a thread", "book_room", {"begin": 1, "end": 2}, "booked from 1 to 2"),
    ("in the loop", "book_seat", {"seat": 12}, "booked 12"),
    ("with a default", "book_table", {"begin": 1}, "booked from 1 to 3"),
)
def test_arguments_that_pass_reach_the_tool(
    client: McpClient, tool: str, arguments: dict[str, Any], text: str
) -> None:
    reply = client.call(tool, arguments)

    assert (reply.text, reply.is_error) == (text, False)


@rows(
    "tool, arguments, text",
    ("in a thread", "book_room", {"begin": 2, "end": 1}, "end must be after begin, and 1 is not"),
    ("in the loop", "book_seat", {"seat": 13}, "Seat 13 is taken."),
    ("with a default", "book_table", {"begin": 5}, "end must be after begin, and 3 is not"),
    ("the schema comes first", "book_seat", {"seat": 0}, "seat"),
)
def test_arguments_that_do_not_pass_are_explained_to_the_model(
    client: McpClient, tool: str, arguments: dict[str, Any], text: str
) -> None:
    reply = client.call(tool, arguments)

    assert reply.is_error
    assert text in reply.text


def test_a_validator_that_fails_tells_the_caller_nothing(client: McpClient) -> None:
    reply = client.call("book_seat", {"seat": 99})

    assert reply.is_error
    assert "error id" in reply.text
    assert "secret" not in reply.text
