"""Requests that are refused leave no session and no task behind, whoever sends them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.http.test_leaks import KIB, counted, resident_bytes, traffic
from tests.sessions.conftest import ADA
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.http1 import Request
from tests.support.server import ServerProcess
from tests.support.waiting import eventually

TIMES: Final = 1500
HTML: Final = {"Accept": "text/html"}
INITIALIZE: Final = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
UNKNOWN: Final = {"Mcp-Session-Id": "00000000-dead", "MCP-Protocol-Version": "2025-11-25"}
Build = Callable[[McpClient], Request]


def _request(headers: Mapping[str, Any], **how: Any) -> Build:
    return lambda client: client.request("tools/list", {}, headers, **how)


@rows(
    "build, status",
    ("SN-04 not acceptable, with a key", _request({**HTML, **ADA}), 406),
    ("SN-04 not acceptable, initialize", _request(HTML, body=INITIALIZE), 406),
    ("SN-04 bare GET, with a key", _request(ADA, http="GET", body=b""), 405),
    ("SN-04 DELETE without id, with a key", _request(ADA, http="DELETE", body=b""), 405),
    ("SN-04 GET, unknown session", _request(UNKNOWN, http="GET", body=b""), 404),
    ("SN-04 POST, unknown session", _request({**UNKNOWN, **ADA}, body=INITIALIZE), 404),
    ("SN-04 a key that does not count", _request({"X-API-Key": "nobody's"}), 401),
)
def test_refusals_leave_nothing_behind(old: ServerProcess, build: Build, status: int) -> None:
    """A session kept for each would cost 20 KiB and more."""
    client = old.client
    request = build(client)
    with client.connect() as connection:
        connection.send(request.encode())
        assert connection.read_response(to=request.method).status == status
    traffic(client, request, 300)
    before = resident_bytes(old), counted(old, "fd"), counted(old, "task")
    traffic(client, request, TIMES)
    growth = resident_bytes(old) - before[0]
    assert growth < TIMES * 512 + 1024 * KIB, f"{growth / TIMES:.0f} bytes per request"
    eventually(lambda: counted(old, "fd") <= before[1] + 1, "as many sockets as before")
    assert counted(old, "task") <= before[2] + 1
