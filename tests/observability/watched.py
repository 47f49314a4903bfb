"""A server that is watched, and a load that ends in every way."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.auth.office import Headers, api_key, key_table
from tests.sessions.conversation import Conversation
from tests.support.client import McpClient, meta
from tests.support.http1 import Response
from tests.support.scraped import Scrape, scraped
from tests.support.server import ServerProcess
from tests.support.stores import RedisServer

TOOLS: Final = Path(__file__).with_name("tools")
KEYS: Final = {name: api_key(name)[0] for name in ("ada", "old", "gone", "admin")}
ADA: Final[Headers] = {"X-API-Key": KEYS["ada"]}
ADMIN: Final[Headers] = {"X-API-Key": KEYS["admin"]}
FORM: Final[dict[str, Any]] = {"elicitation": {"form": {}}}
IDEMPOTENT: Final = "mcp-tool-server/idempotencyKey"
SEALED_WITH: Final = "k" * 32


def config(redis: RedisServer, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Of a server whose metrics can be read on loopback."""
    return {
        "auth": {
            "api_keys": [
                key_table("ada", KEYS["ada"]),
                {**key_table("old", KEYS["old"]), "expires_at": "2020-01-01T00:00:00Z"},
                key_table("gone", KEYS["gone"]),
            ],
            "default": "allow",
        },
        "admin": {"port": 0, "keys": [key_table("admin", KEYS["admin"])]},
        "execution": {"processes": 1, "threads": 2},
        "state": {"url": redis.url},
        "secrets": {"keys": [SEALED_WITH]},
        **sections,
    }


class Watched:
    """A server, and its metrics."""

    def __init__(self, server: ServerProcess, tools: Path) -> None:
        self.server = server
        self.tools = tools
        self.client = server.client
        said = server.wait_for_log(lambda log: log.get("event") == "administration_listening")
        self.admin = McpClient(server.host, int(said["url"].rpartition(":")[2]))

    def get(self, path: str = "/metrics", headers: Headers | None = None, **how: Any) -> Response:
        """The answer of the administrative listener."""
        return self.admin.get(path, headers, **how)

    def scrape(self) -> Scrape:
        """What Prometheus would read now."""
        response = self.get()
        assert response.status == 200, response.body
        return scraped(response.body.decode())


@contextmanager
def watched(folder: Path, redis: RedisServer, **how: Any) -> Iterator[Watched]:
    """A server whose tools can be changed."""
    tools = folder / "tools"
    shutil.copytree(TOOLS, tools)
    sections = how.pop("sections", {})
    with ServerProcess(tools, config(redis, **sections), **how) as server:
        yield Watched(server, tools)


def call_in_every_way(client: McpClient) -> None:
    """Calls of a modern client that end in each of the ways, several times."""
    asks = meta(clientCapabilities=FORM, progressToken=1)
    for number in range(3):
        client.call("add", {"a": number}, ADA)
        client.call("kept", {"text": "t"}, ADA)
    client.call("picture", {}, ADA)
    client.call("talk", {}, ADA, meta_=asks)
    client.call("flaky", {}, ADA)
    client.call("refuse", {}, ADA)
    client.call("fail", {}, ADA)
    client.call("hang", {}, ADA)
    client.call("hang_in_thread", {"seconds": 0.6}, ADA)
    client.call("crash", {}, ADA)
    client.call("ask", {}, ADA, meta_=asks)
    client.call("secret", {}, ADA)
    client.call("seldom", {}, ADA)
    client.call("seldom", {}, ADA)
    client.call("nobody", {}, ADA)
    client.call("add", {"a": 1}, ADA, meta_=meta(**{IDEMPOTENT: "k"}))
    client.call("add", {"a": 1}, ADA, meta_=meta(**{IDEMPOTENT: "k"}))
    client.call("add", {"a": 1}, {"X-API-Key": KEYS["old"]})
    client.call("add", {"a": 1}, {"Authorization": "Bearer wrong"})
    client.call("add", {"a": 1}, {"Authorization": "Bearer"})
    client.call("add", {"a": 1})
    client.ask("tools/list", {}, ADA)
    client.ask("foo/bar", {}, ADA)
    client.ask("tools/list", {}, ADA, body=b"{")


def call_as_older_client(server: ServerProcess) -> None:
    """Calls in a session, one by one and in a batch."""
    with Conversation([server], "2025-03-26", ADA) as session:
        session.open()
        session.call("add", {"a": 1})
        calls = [{"name": "add", "arguments": {"a": 1}}, {"name": "refuse"}, {"name": "nobody"}]
        session.post([session.message("tools/call", each) for each in calls])
