"""After much traffic the server is as it was: no thread, socket or memory more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.http1 import Connection, Request
from tests.support.server import ServerProcess
from tests.support.waiting import eventually

KIB = 1024


def resident_bytes(server: ServerProcess) -> int:
    """Memory that the process has in use."""
    for line in Path(f"/proc/{server.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB
    raise AssertionError("no VmRSS")


def counted(server: ServerProcess, what: str) -> int:
    """Entries of a folder in /proc: `fd` or `task`."""
    return len(list(Path(f"/proc/{server.pid}/{what}").iterdir()))


def traffic(client: McpClient, request: Request, times: int) -> None:
    """The same request many times on one connection, in batches that wait for their answers."""
    data = request.encode()

    def batch(connection: Connection, size: int) -> None:
        for _ in range(size):
            connection.send(data)
            connection.read_response(to=request.method)

    with client.connect(30) as connection:
        batch(connection, times)


@rows(
    "build, bytes_each",
    ("SN-04 not acceptable", lambda c: c.request("tools/list", {}, {"Accept": "text/html"}), 512),
    ("SN-04 bare GET", lambda c: c.request("tools/list", http="GET", body=b""), 512),
    ("SN-04 DELETE", lambda c: c.request("tools/list", http="DELETE", body=b""), 512),
    ("SN-04 not JSON", lambda c: c.request("tools/list", body=b"{"), 512),
    ("SN-04 an unknown tool", lambda c: c.request("tools/call", {"name": "nobody"}), 512),
    ("SN-06 calls", lambda c: c.request("tools/call", {"name": "no_arguments"}), 512),
    ("SN-06 bad arguments", lambda c: c.request("tools/call", {"name": "echo"}), 512),
    (
        "SN-06 streamed calls",
        lambda c: c.request("tools/call", {"name": "count_in_thread"}, meta_=meta(progressToken=1)),
        1024,
    ),
)
def test_the_same_request_over_and_over_leaves_nothing_behind(
    client: McpClient,
    server: ServerProcess,
    build: Callable[[McpClient], Request],
    bytes_each: int,
) -> None:
    """A leak of one session or task per request costs 20 KiB and more."""
    request = build(client)
    traffic(client, request, 300)  # caches and pools have their size now
    before = resident_bytes(server), counted(server, "fd"), counted(server, "task")
    traffic(client, request, 1500)
    growth = resident_bytes(server) - before[0]
    assert growth < 1500 * bytes_each + 1024 * KIB, f"{growth / 1500:.0f} bytes per request"
    eventually(lambda: counted(server, "fd") <= before[1] + 1, "as many sockets as before")
    assert counted(server, "task") <= before[2] + 1


@rows(
    "build",
    ("a list", lambda c: c.request("tools/list")),
    ("a call", lambda c: c.request("tools/call", {"name": "no_arguments"})),
    ("a call in a thread", lambda c: c.request("tools/call", {"name": "quick_sync"})),
    ("an unknown tool", lambda c: c.request("tools/call", {"name": "nobody"})),
    ("bad arguments", lambda c: c.request("tools/call", {"name": "echo"})),
    ("not JSON", lambda c: c.request("tools/list", body=b"{")),
    (
        "a streamed call",
        lambda c: c.request("tools/call", {"name": "count_in_thread"}, meta_=meta(progressToken=1)),
    ),
)
def test_a_request_is_freed_without_the_garbage_collector(
    client: McpClient, build: Callable[[McpClient], Request]
) -> None:
    """A collection costs more than the requests between two of them save by leaving rings."""
    traffic(client, build(client), 10)
    client.call("collect_garbage")
    traffic(client, build(client), 100)
    assert client.call("collect_garbage").value < 100


@pytest.mark.parametrize("tool", ["quick_sync", "no_arguments"])
def test_threads_do_not_grow_with_calls(
    client: McpClient, server: ServerProcess, tool: str
) -> None:
    """CX-04, SN-06."""
    for _ in range(10):
        connections = [client.connect() for _ in range(20)]
        for connection in connections:
            connection.send(client.request("tools/call", {"name": tool}).encode())
        for connection in connections:
            assert connection.read_response().status == 200
            connection.close()
    assert counted(server, "task") < 80
