"""`subscriptions/listen` over one channel that everything shares."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURE_TOOLS
from tests.support.client import body_of
from tests.support.stdio import StdioFactory, StdioServer

TOOL = '''
from app import tool


@tool
def newcomer() -> str:
    """{text}"""
    return "hello"
'''
WANTED = {"notifications": {"toolsListChanged": True}}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tools/list_changed"
CANCELLED = "notifications/cancelled"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "tools"
    target.mkdir()
    shutil.copy(FIXTURE_TOOLS / "echo.py", target)
    return target


@pytest.fixture
def server(start: StdioFactory, folder: Path) -> StdioServer:
    return start(folder, {})


def write(folder: Path, text: str) -> None:
    draft = folder / "newcomer.draft"
    draft.write_text(TOOL.format(text=text), "utf-8")
    draft.replace(folder / "newcomer.py")


def listen(server: StdioServer, id: Any) -> None:
    server.send(body_of("subscriptions/listen", WANTED, id=id))
    server.wait_for(lambda message: message.get("method") == ACKNOWLEDGED and _is_of(message, id))


def _is_of(message: dict[str, Any], id: Any) -> bool:
    found = message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    return type(found) is type(id) and found == id


def heard(server: StdioServer, id: Any) -> list[str]:
    """What a subscription was told: methods of notifications, and `result` at its end."""
    return [str(message.get("method", "result")) for message in server.about(id)]


def wait_for_change(server: StdioServer, id: Any, after: int = 0) -> None:
    server.wait_for(
        lambda message: message.get("method") == CHANGED and _is_of(message, id), after=after
    )


def test_subscriptions_share_the_channel_and_are_told_apart_by_id(
    server: StdioServer, folder: Path
) -> None:
    for id in (1, "1", "other"):
        listen(server, id)
    write(folder, "First.")
    for id in (1, "1", "other"):
        wait_for_change(server, id)
    server.call("newcomer")

    for id in (1, "1", "other"):
        assert heard(server, id) == [ACKNOWLEDGED, CHANGED]


def test_a_cancelled_subscription_is_told_nothing_more(server: StdioServer, folder: Path) -> None:
    listen(server, "mine")
    listen(server, "other")
    server.cancel("mine")
    server.settled()
    write(folder, "First.")
    wait_for_change(server, "other")

    server.settled()
    assert heard(server, "mine") == [ACKNOWLEDGED]


def test_a_subscription_and_its_cancellation_may_come_together(server: StdioServer) -> None:
    for number in range(20):
        cancel = {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": f"s{number}"}}
        server.send(body_of("subscriptions/listen", WANTED, id=f"s{number}"), cancel)
    server.settled()

    assert [each for number in range(20) for each in heard(server, f"s{number}")] == []


@pytest.mark.parametrize("notifications", [{}, {"promptsListChanged": True}])
def test_a_subscription_to_nothing_that_is_served_ends_at_once(
    server: StdioServer, notifications: dict[str, Any]
) -> None:
    id = server.ask("subscriptions/listen", {"notifications": notifications})
    server.wait_for(lambda message: message.get("method") == CANCELLED)

    assert heard(server, id) == [ACKNOWLEDGED, "result", CANCELLED]


@pytest.mark.parametrize("end", ["end of input", "signal"])
def test_a_server_that_ends_says_so_to_every_subscription(server: StdioServer, end: str) -> None:
    for id in (1, "two"):
        listen(server, id)
    if end == "signal":
        server.interrupt()
        server.wait()
    else:
        assert server.end() == 0
    server.wait_for_silence()

    for id in (1, "two"):
        assert heard(server, id) == [ACKNOWLEDGED, "result", CANCELLED]


def test_a_wish_of_the_wrong_shape_is_refused(server: StdioServer) -> None:
    id = server.ask("subscriptions/listen", {"notifications": {"toolsListChanged": "yes"}})

    assert server.response(id)["error"]["code"] == -32602


def test_there_are_as_many_places_as_configured(start: StdioFactory, folder: Path) -> None:
    server = start(folder, {"limits": {"listen_streams": 1}})
    listen(server, "first")
    id = server.ask("subscriptions/listen", WANTED)
    assert server.response(id)["error"]["code"] == -31503
    server.cancel("first")
    server.settled()

    listen(server, "second")
