"""Secrets that callers send, through every tool of the tests and every door: no output has them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from app.auth.api_keys import hash_key, make_key
from app.configuration import load_settings
from app.recording.recording import Recording, encode
from app.recording.wiring import library_of
from tests.conftest import FIXTURE_TOOLS
from tests.guards.planted import PLANTED
from tests.sessions.conversation import Conversation
from tests.support.client import meta
from tests.support.collector import Collector
from tests.support.server import ServerProcess
from tests.support.stdio import StdioServer
from tests.support.waiting import eventually

CALLER_KEY: Final = make_key("ada")
ADMIN_KEY: Final = make_key("root")
TEXT, GONE = PLANTED["secret"][3]  # a token of GitHub, and what of it must not be found
PASSWORD: Final = "correct-horse-battery"  # known by its name alone
FORBIDDEN: Final = (GONE, PASSWORD, CALLER_KEY)
FILES: Final = {"path", "release"}
SHORT: Final = "mcp-tool-server/timeoutMs"
KEYED: Final = "mcp-tool-server/idempotencyKey"


def _config(folder: Path) -> dict[str, Any]:
    return {
        "auth": {"api_keys": [{"id": "ada", "hash": hash_key(CALLER_KEY)}]},
        "policies": [{"tools": ["*"]}],
        "tools": {"reload": False},
        "secrets": {"keys": ["a-key-of-the-tests-with-32-letters"]},
        "logging": {"level": "debug"},
        "audit": {"directory": str(folder / "audit")},
        "recording": {"directory": str(folder / "recordings"), "record": "all"},
        "tracing": {"enabled": True},
        "admin": {"port": 0, "keys": [{"id": "root", "hash": hash_key(ADMIN_KEY)}]},
    }


def _planted(schema: Mapping[str, Any]) -> Any:
    """A value with secrets where the schema has room for any."""
    kinds = {"integer": 1, "number": 1.5, "boolean": True, "null": None}
    match schema.get("type"):
        case "array":
            return [TEXT, {"password": PASSWORD}]
        case "object":
            return {"password": PASSWORD, "note": TEXT}
        case str(kind) if kind in kinds:
            return kinds[kind]
        case _:
            return TEXT


def _calls(
    tools: Mapping[str, Mapping[str, Any]], folder: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    file = str(folder / TEXT)  # some tools write to it, and wait until it is there
    for name, tool in tools.items():
        properties = tool["inputSchema"].get("properties", {})
        planted = {key: _planted(schema) for key, schema in properties.items()}
        yield name, planted | dict.fromkeys(FILES & planted.keys(), file)
        yield name, {"password": PASSWORD, "text": TEXT, "unknown": [TEXT]}
    yield "nobody", {"password": PASSWORD, "text": TEXT}


def _traffic(server: ServerProcess, folder: Path) -> int:
    """Each call over HTTP, and some in a session of an older revision. How many they were."""
    headers = {"X-API-Key": CALLER_KEY, "Cookie": TEXT, "User-Agent": TEXT, "Referer": TEXT}
    calls = list(_calls(server.client.tools(headers={"X-API-Key": CALLER_KEY}), folder))
    for number, (tool, arguments) in enumerate(calls):
        about = meta(**{SHORT: 300, KEYED: f"{TEXT} {number}", "baggage": f"password={TEXT}"})
        server.client.call(tool, arguments, headers, meta_=about)
    server.client.ask("tools/list", headers={"Authorization": f"Bearer {TEXT}"})
    with Conversation([server], who={"X-API-Key": CALLER_KEY}) as older:
        older.open()
        for tool, arguments in calls[:20]:
            older.ask("tools/call", {"name": tool, "arguments": arguments})
    return len(calls)


@pytest.mark.timeout(180)
def test_secrets_of_callers_are_in_no_output(tmp_path: Path) -> None:
    with Collector() as collector:
        environment = collector.environment
        with ServerProcess(FIXTURE_TOOLS, _config(tmp_path), env=environment) as server:
            calls = _traffic(server, tmp_path)
            (line,) = server.logs("administration_listening")
            metrics = httpx2.get(f"{line['url']}/metrics", trust_env=False).text
            library = library_of(load_settings(server.config_path, environ={}))
            eventually(lambda: len(list(library.opened())) > calls / 4, "calls are recorded", 30)
        opened = [found for _, found in library.opened()]
        recorded = [encode(each) for each in opened if isinstance(each, Recording)]

        with StdioServer(
            FIXTURE_TOOLS,
            _config(tmp_path / "piped"),
            env={**environment, "MCP_API_KEY": CALLER_KEY},
        ) as piped:
            for tool in ("echo", "take_tags", "nobody"):
                id = piped.ask(
                    "tools/call",
                    {"name": tool, "arguments": {"password": PASSWORD, "text": TEXT}},
                )
                piped.response(id)
        eventually(lambda: len(collector.spans()) > calls, "spans of all calls", 30)
        spans = bytes(collector.received).decode("utf-8", "replace")

    audited = [path.read_text("utf-8") for path in sorted(tmp_path.rglob("audit/*"))]
    outputs = {
        "log": server.log_text() + piped.log_text(),
        "metrics": metrics,
        "audit record": "\n".join(audited),
        "recordings": "\n".join(map(str, recorded)),
        "spans": spans,
    }
    # Each of them has something to say, and none has this.
    assert outputs["log"].count('"event":"request"') > calls
    assert "mcp_tool_calls_total" in metrics
    assert sum(text.count("\n") for text in audited) > calls
    assert len(recorded) == len(opened) > calls / 4
    for name, text in outputs.items():
        for secret in (*FORBIDDEN, json.dumps(TEXT)[1:-1]):
            assert secret not in text, f"{secret!r} is in the {name}"
