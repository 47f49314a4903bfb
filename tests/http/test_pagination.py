"""tools/list: pages, order, cursors, and what clients may keep."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import McpClient
from tests.support.http1 import strict_json
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write_tool

COUNT = 7
NAMES = [f"tool_{number:02}" for number in range(COUNT)]
KEY = "test-key-0123456789-0123456789-abcdef"
OLD_KEY = "older-key-0123456789-0123456789-abcde"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven tools."""
    folder = tmp_path_factory.mktemp("tools")
    for name in reversed(NAMES):
        write_tool(folder, name)
    return folder


def config(page_size: int, keys: tuple[str, ...] = (KEY,), **tools: Any) -> dict[str, Any]:
    """Configuration of a server with small pages."""
    return {
        "tools": {"page_size": page_size, "reload": False, **tools},
        "secrets": {"keys": list(keys)},
    }


@pytest.fixture(scope="module")
def paged(module_server_factory: ServerFactory, folder: Path) -> ServerProcess:
    """A server with pages of two."""
    return module_server_factory(folder, config(2, list_ttl_ms=5000))


def pages(client: McpClient) -> list[dict[str, Any]]:
    """All pages; more than fifty are a loop."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(found) < 50:
        found.append(client.ask("tools/list", {"cursor": cursor} if found else {}).result)
        cursor = found[-1].get("nextCursor")
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


def names(page: dict[str, Any]) -> list[str]:
    """The names on a page."""
    return [tool["name"] for tool in page["tools"]]


@pytest.mark.parametrize("size", [1, 3, COUNT, COUNT + 1])
def test_every_tool_is_on_exactly_one_page(
    server_factory: ServerFactory, folder: Path, size: int
) -> None:
    """PG-01, PG-02."""
    found = pages(server_factory(folder, config(size)).client)
    assert [name for page in found for name in names(page)] == NAMES
    assert all(len(page["tools"]) == size for page in found[:-1])
    assert len(found) == -(-COUNT // size)
    assert "nextCursor" not in found[-1]


def test_pages_of_two_end_after_the_odd_one(paged: ServerProcess) -> None:
    """PG-01."""
    found = pages(paged.client)
    assert [names(page) for page in found] == [NAMES[0:2], NAMES[2:4], NAMES[4:6], NAMES[6:]]


def test_one_page_has_no_cursor(client: McpClient) -> None:
    """PG-02."""
    assert "nextCursor" not in client.ask("tools/list").result


def test_no_tools_are_one_empty_page(server_factory: ServerFactory, tmp_path: Path) -> None:
    """PG-02."""
    client = server_factory(tmp_path, config(2)).client
    result = client.ask("tools/list").result
    assert result["tools"] == []
    assert "nextCursor" not in result
    assert client.call("anything").outcome == (400, -32602)


def test_a_null_cursor_is_no_cursor(paged: ServerProcess) -> None:
    """PG-04, wire §0.9 null cursor."""
    assert names(paged.client.ask("tools/list", {"cursor": None}).result) == NAMES[:2]


def tampered(cursor: str) -> list[str]:
    """A cursor with each character changed, cut off, or doubled in length."""
    changed = [
        cursor[:at] + ("A" if character != "A" else "B") + cursor[at + 1 :]
        for at, character in enumerate(cursor)
    ]
    return [
        *changed,
        cursor[:-1],
        cursor[1:],
        cursor + "A",
        cursor * 2,
        cursor + "=",
        cursor + "\n",
    ]


def test_a_cursor_that_was_altered_is_refused(paged: ServerProcess) -> None:
    """PG-04, wire §5 invalid cursor."""
    cursor = paged.client.ask("tools/list").result["nextCursor"]
    with paged.client.connect() as connection:
        for bad in tampered(cursor):
            reply = paged.client.ask("tools/list", {"cursor": bad}, connection=connection)
            assert reply.outcome == (400, -32602), bad


@pytest.mark.parametrize(
    "cursor", ["", "zzz", "tool_01", "2", "é", "\u0000", "' OR 1=1", "=" * 10, "x" * 1_000_000]
)
def test_a_cursor_of_somebody_else_is_refused(paged: ServerProcess, cursor: str) -> None:
    """PG-04: without a word about how cursors are made."""
    reply = paged.client.ask("tools/list", {"cursor": cursor})
    assert reply.outcome == (400, -32602)
    assert "base64" not in reply.error["message"].lower()
    assert len(reply.response.body) < 1000


@pytest.mark.parametrize("cursor", [7, True, [], {}, 1.5])
def test_a_cursor_that_is_no_text_is_refused(paged: ServerProcess, cursor: Any) -> None:
    """wire §5 cursor non-string."""
    assert paged.client.ask("tools/list", {"cursor": cursor}).outcome == (400, -32602)


def test_a_cursor_is_the_same_on_every_replica(
    paged: ServerProcess, server_factory: ServerFactory, folder: Path
) -> None:
    """PG-04, PG-06, wire §0.13: deterministic, and valid elsewhere and after a restart."""
    other = server_factory(folder, config(2, (KEY, OLD_KEY)), env={"PYTHONHASHSEED": "7"})
    assert pages(paged.client)[0]["nextCursor"] == pages(other.client)[0]["nextCursor"]
    cursor = paged.client.ask("tools/list").result["nextCursor"]
    assert names(other.client.ask("tools/list", {"cursor": cursor}).result) == NAMES[2:4]


def test_a_cursor_of_a_key_that_was_retired_is_still_read(
    paged: ServerProcess, server_factory: ServerFactory, folder: Path
) -> None:
    """wire §0.13: keys, newest first."""
    rotated = server_factory(folder, config(2, (OLD_KEY, KEY)))
    cursor = paged.client.ask("tools/list").result["nextCursor"]
    assert names(rotated.client.ask("tools/list", {"cursor": cursor}).result) == NAMES[2:4]
    foreign = server_factory(folder, config(2, (OLD_KEY,)))
    assert foreign.client.ask("tools/list", {"cursor": cursor}).outcome == (400, -32602)


def test_the_list_is_the_same_byte_for_byte(
    client: McpClient, server_factory: ServerFactory
) -> None:
    """PG-06: in every process, whatever the order of hashing."""
    lists = {client.ask("tools/list").response.body for _ in range(5)}
    assert len(lists) == 1
    other = server_factory(env={"PYTHONHASHSEED": "12345"}, config={"tools": {"reload": False}})
    ours, theirs = (
        json.dumps(strict_json(each.ask("tools/list").response.body)["result"]["tools"])
        for each in (client, other.client)
    )
    assert ours == theirs


def test_tools_are_in_the_order_of_their_names(client: McpClient) -> None:
    """PG-06, wire §5 deterministic order."""
    found = names(client.ask("tools/list").result)
    assert found == sorted(found)


def test_a_list_says_how_long_it_may_be_kept(client: McpClient, paged: ServerProcess) -> None:
    """PG-07, wire §5 tools/list cache fields: the same scope on all pages, never a lie."""
    assert client.ask("tools/list").result["ttlMs"] == 0
    found = pages(paged.client)
    assert {page["cacheScope"] for page in found} <= {"public", "private"}
    assert len({page["cacheScope"] for page in found}) == 1
    assert {page["ttlMs"] for page in found} == {5000}
    for page in found:
        assert type(page["ttlMs"]) is int
        assert page["resultType"] == "complete"


def test_a_cursor_survives_changes_of_other_tools(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """PG-01: a tool that stays is neither skipped nor repeated while others come and go."""
    for name in NAMES:
        write_tool(tmp_path, name)
    server = server_factory(tmp_path, {"tools": {"page_size": 2}})
    with server.client.listening() as stream:
        first = server.client.ask("tools/list").result
        (tmp_path / "tool_01.py").unlink()  # the last of the page that was read
        write_tool(tmp_path, "aaa_before")
        write_tool(tmp_path, "tool_02b")
        changed = {"aaa_before", "tool_02b"}
        while not changed <= set(server.client.tools()) or "tool_01" in server.client.tools():
            stream.next()
    rest: list[str] = []
    cursor = first["nextCursor"]
    while cursor is not None:
        page = server.client.ask("tools/list", {"cursor": cursor}).result
        rest += names(page)
        cursor = page.get("nextCursor")
    assert rest == ["tool_02", "tool_02b", "tool_03", "tool_04", "tool_05", "tool_06"]
