"""Conversations as text: what a client of each revision sends, and what it gets, to the byte.

`python -m tests.sessions.transcript` writes the files anew; a test compares.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import httpx2

from app.version import server_version
from tests.support.legacy_schema import VERSIONS
from tests.support.server import ServerProcess

FOLDER: Final = Path(__file__).parent / "golden"
TOOLS: Final = Path(__file__).parent / "tools"
CONFIG: Final[dict[str, Any]] = {
    "server": {"name": "old-friend", "title": "Old friend"},
    "tools": {"reload": False, "page_size": 2},
    "secrets": {"keys": ["golden golden golden golden golden"]},
}
_CHANGES: Final = re.compile(r"^(date|content-length|transfer-encoding|connection):", re.IGNORECASE)


def _message(id: int, method: str, params: Any = None) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": id, "method": method}
    return body if params is None else {**body, "params": params}


def _call(id: int, tool: str, arguments: Any, meta: Any = None) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return _message(id, "tools/call", params if meta is None else {**params, "_meta": meta})


def steps(version: str) -> list[Any]:
    """What a client of a revision sends, in its order."""
    opening = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "golden", "version": "1"},
    }
    return [
        _message(1, "initialize", opening),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _message(2, "ping"),
        _message(3, "tools/list"),
        _call(4, "add", {"a": 2, "b": 3}),
        _call(5, "words", {"text": "a b"}),
        _call(6, "blocks", {}),
        _call(7, "add", {"a": "two"}),
        _call(8, "refuse", {}),
        _call(9, "no_such_tool", {}),
        _call(10, "count", {"to": 1}, {"progressToken": "p"}),
        _call(11, "book", {"who": "me"}),
        _message(12, "no/such/method"),
        {"jsonrpc": "2.0", "id": 13, "result": {}},
        [_message(14, "ping"), _message(15, "ping")],
    ]


def record(server: ServerProcess, version: str) -> str:
    """One conversation, as text."""
    session = ""
    lines = []
    with httpx2.Client(timeout=10, trust_env=False) as client:
        for number, step in enumerate(steps(version)):
            headers = {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            }
            if number and version >= "2025-06-18":
                headers["MCP-Protocol-Version"] = version
            if session:
                headers["Mcp-Session-Id"] = session
            body = json.dumps(step, separators=(",", ":"))
            response = client.post(server.url, content=body, headers=headers)
            session = response.headers.get("mcp-session-id", session)
            lines += ["> POST /mcp"]
            lines += [f"> {name}: {value}" for name, value in headers.items()]
            lines += ["> ", f"> {body}", f"< {response.status_code}"]
            head = sorted(f"{name}: {value}" for name, value in response.headers.items())
            lines += [f"< {line}" for line in head if not _CHANGES.match(line)]
            lines += ["< ", *(f"< {line}" for line in response.text.splitlines()), ""]
        ended = client.delete(server.url, headers={"Mcp-Session-Id": session})
        lines += ["> DELETE /mcp", "> Mcp-Session-Id: SESSION", f"< {ended.status_code}", ""]
    text = "\n".join(lines).replace(session, "SESSION").replace(server_version(), "VERSION")
    return re.sub(r"\b[0-9a-f]{32}\b", "STREAM", text)


def main() -> None:
    """Write all of them."""
    with ServerProcess(TOOLS, CONFIG) as server:
        for version in VERSIONS:
            (FOLDER / f"{version}.txt").write_text(record(server, version), "utf-8")


if __name__ == "__main__":
    main()
