"""A server whose tools change while somebody listens."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.client import McpClient, Stream
from tests.support.server import ServerProcess
from tests.support.sse import Comment, Event
from tests.support.toolfiles import write_tool
from tests.support.waiting import eventually

CHANGED = "notifications/tools/list_changed"
SOON_S = 5.0
SETTINGS: dict[str, Any] = {"execution": {"keep_alive_s": 0.2}}


class Workshop:
    """A folder of tools, the server that watches it, and a client that listens."""

    def __init__(self, server: ServerProcess, stream: Stream) -> None:
        self.server, self.folder, self.stream = server, server.tools, stream

    @property
    def client(self) -> McpClient:
        """A client of the server."""
        return self.server.client

    def says(self, tool: str) -> str:
        """What a tool answers."""
        return self.client.call(tool).text

    def hears_change(self) -> None:
        """The next message is a change."""
        message = self.stream.next(SOON_S)
        assert message["method"] == CHANGED, message

    def hears_one_change(self) -> None:
        """A change is heard, and then there is quiet for two signs of life."""
        self.hears_change()
        items = [self.stream.reader.next(SOON_S)]
        items.append(self.stream.reader.next(SOON_S))
        assert not [item for item in items if isinstance(item, Event)], items
        assert all(isinstance(item, Comment) for item in items)

    def logged(self, *words: str, after: int = 0) -> dict[str, Any]:
        """Wait for a log line with all the words."""
        return self.server.wait_for_log(
            lambda log: all(word in str(log) for word in words), after=after
        )


@contextmanager
def workshop(server: ServerProcess) -> Iterator[Workshop]:
    """A server with somebody who listens."""
    with server.client.listening() as stream:
        yield Workshop(server, stream)


def restore(server: ServerProcess) -> None:
    """Bring folder and configuration back to one tool, `old`, that says `one`."""
    server.write_config(SETTINGS)
    for path in server.tools.iterdir():
        if path.name == "old.py":
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_tool(server.tools, "old", "one")

    def restored() -> bool:
        tools = server.client.tools()
        if set(tools) != {"old"}:
            return False
        return tools["old"]["description"] == "Answer." and "title" not in tools["old"]

    eventually(restored, "the first state of the tools", SOON_S)
    eventually(lambda: server.client.call("old").text == "one", "the first code", SOON_S)
