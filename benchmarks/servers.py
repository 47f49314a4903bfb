"""The servers under test: how each is started, and the answers that prove that it does the work."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import guard, processes, toolset, wire
from benchmarks.load import ask, session_of
from benchmarks.processes import Server

OURS = "this server"
GUARDED = "with JWT, 20 rules"
AUDITED = "on record"
OLDER = f"in a session of {wire.OLDER}"
FLOOR = "raw ASGI"
SDK = "official SDK"
FASTMCP = "FastMCP"

_PEERS = {
    SDK: ("mcp.server.mcpserver", "benchmarks.peer_sdk"),
    FASTMCP: ("fastmcp", "benchmarks.peer_fastmcp"),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of request."""

    name: str
    key: str

    def request(self, server: Server) -> bytes:
        """The bytes that ask `server` for it."""
        path = f"/{self.key}" if server.label == FLOOR else server.path
        if self.key == "list":
            if server.session is not None:
                return wire.in_session(path, server.port, "tools/list", {}, server.session)
            return wire.listing(path, server.port, server.token)
        arguments = toolset.VALID_ARGUMENTS if self.key == "call" else toolset.BAD_ARGUMENTS
        if server.session is not None:
            params = {"name": toolset.CALLED, "arguments": arguments}
            return wire.in_session(path, server.port, "tools/call", params, server.session)
        return wire.call(path, server.port, toolset.CALLED, arguments, server.token)

    def check(self, server: Server, tools: int) -> wire.Answer:
        """Ask once and insist on a right answer: a fast wrong one is worth nothing.

        Raises:
            RuntimeError: the answer is not what the request calls for.
        """
        answer = ask(server.port, self.request(server))
        if server.label != FLOOR and not self._right(answer, tools):
            raise RuntimeError(f"{server.label} answers {self.name} wrongly: {str(answer)[:800]}")
        return answer

    def _right(self, answer: wire.Answer, tools: int) -> bool:
        result = answer.body.get("result", {})
        match self.key:
            case "call":
                expected = {"value": 43.0, "unit": "metre"}
                right = not result.get("isError") and result.get("structuredContent") == expected
            case "list":
                right = len(result.get("tools", ())) == tools and "nextCursor" not in result
            case _:
                right = result.get("isError") is True and "structuredContent" not in result
        return answer.status == 200 and bool(right)


CALL = Workload("tools/call", "call")
LIST = Workload("tools/list", "list")
BAD = Workload("bad arguments", "bad")
WORKLOADS = (CALL, LIST, BAD)


def have_ours() -> bool:
    """Whether the program under test can be imported."""
    return (processes.ROOT / "app" / "__main__.py").exists()


# Calls and lists are counted as in a server that ships, against a limit that no load reaches.
LIMITS = """
[limits]
rates = [{ tools = ["*"], bucket = "user", capacity = 1_000_000, period_s = 1 }]
list_rates = [{ bucket = "user", capacity = 1_000_000, period_s = 1 }]
"""


@contextlib.contextmanager
def ours(folder: Path, *, files: int, label: str = OURS, settings: str = "") -> Iterator[Server]:
    """This server as `serve` runs it: generated tools, JSON log, reload on."""
    with _serve(folder, processes.free_port(), files, label, settings) as server:
        yield server


@contextlib.contextmanager
def guarded(folder: Path, *, files: int) -> Iterator[Server]:
    """The same for callers with a token of an issuer, under twenty rules of which the last fits."""
    folder = folder / "guarded"
    folder.mkdir()
    port = processes.free_port()
    access = guard.write(folder, resource=f"http://127.0.0.1:{port}/mcp")
    with _serve(folder, port, files, GUARDED, access.config) as server:
        server.token = access.token
        yield server


@contextlib.contextmanager
def audited(folder: Path, *, files: int) -> Iterator[Server]:
    """The same with an audit record of each call, in a chain with a key."""
    folder = folder / "audited"
    folder.mkdir()
    settings = f"""
[secrets]
keys = ["{secrets.token_hex(32)}"]

[audit]
directory = {json.dumps(str(folder / "record"))}
"""
    with _serve(folder, processes.free_port(), files, AUDITED, settings) as server:
        yield server


@contextlib.contextmanager
def older(folder: Path, *, files: int) -> Iterator[Server]:
    """The same for clients of an older revision, in a session."""
    folder = folder / "older"
    folder.mkdir()
    opening = {
        "protocolVersion": wire.OLDER,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "benchmark", "version": "1.0.0"},
    }
    with _serve(folder, processes.free_port(), files, OLDER, "") as server:
        request = wire.in_session(server.path, server.port, "initialize", opening, None)
        server.session = session_of(server.port, request)
        yield server


@contextlib.contextmanager
def _serve(folder: Path, port: int, files: int, label: str, settings: str) -> Iterator[Server]:
    tools = folder / "tools"
    toolset.write(tools, files)
    # In a folder of its own, as the folder of the configuration is watched for changes.
    config = folder / "settings" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(settings + LIMITS)
    command = [
        *("-m", "app", "serve", "--config", str(config), "--tools", str(tools)),
        *("--host", "127.0.0.1", "--port", str(port), "--reload", "--log-format", "json"),
    ]
    with processes.serving(label, command, port=port, log=folder / "server.log") as server:
        yield server


@contextlib.contextmanager
def floor(folder: Path, sizes: dict[str, int], *, pinned: bool = True) -> Iterator[Server]:
    """The floor, with a fixed answer of that many bytes for each path."""
    file = folder / "answers.json"
    file.write_text(
        json.dumps({path: json.dumps("x" * (size - 2)) for path, size in sizes.items()})
    )
    port = processes.free_port()
    command = ["-m", "benchmarks.floor", str(port), str(file)]
    log = folder / "floor.log"
    with processes.serving(FLOOR, command, port=port, log=log, pinned=pinned) as server:
        yield server


def peers() -> list[str]:
    """The alternatives that are installed."""
    found = []
    for label, (needed, _) in _PEERS.items():
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(needed) is not None:
                found.append(label)
    return found


@contextlib.contextmanager
def peer(folder: Path, label: str, tools: int) -> Iterator[Server]:
    """One of the alternatives, with the same tools."""
    port = processes.free_port()
    command = ["-m", _PEERS[label][1], str(port), str(tools)]
    with processes.serving(label, command, port=port, log=folder / f"{port}.log") as server:
        yield server
