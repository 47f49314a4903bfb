"""Calls that have ended, as their recordings are made of them."""

import json
from typing import Any, Final

from app.guards.redaction import KINDS
from app.principal import Principal
from app.protocol.schema import Implementation, RequestMeta
from app.recording.gathering import Finished, Gatherer
from app.recording.recording import Recording, decode

AT: Final = 1_785_240_000.25
ID: Final = "feedfacefeedface"
ADA: Final = Principal(
    issuer="https://login.example.com",
    subject="ada",
    scopes=frozenset({"notes:read"}),
    tenant="acme",
)
META: Final = RequestMeta(
    "2026-07-28", {"elicitation": {}}, Implementation("inspector", "1"), None, None, None, {}
)


def finished(tool: str = "divide", **changed: Any) -> Finished:
    """A call of a tool that has failed, with these changes; data is encoded here."""
    for name in ("arguments", "answers", "capabilities", "result"):
        if name in changed and not isinstance(changed[name], bytes):
            changed[name] = json.dumps(changed[name]).encode()
    call = Finished(
        request_id=7,
        tool=tool,
        tool_version=b"\x01" * 32,
        fingerprint="f" * 64,
        principal=ADA,
        address="192.0.2.7",
        began=AT,
        duration_s=0.0125,
        outcome="tool_error",
        meta=META,
        arguments=b'{"a":1,"b":0}',
        capabilities=b'{"elicitation":{}}',
        result=json.dumps(failure("b must not be 0")).encode(),
    )
    return call._replace(**changed)


def failure(text: str) -> dict[str, Any]:
    """A result object that says what went wrong."""
    content = [{"type": "text", "text": text}]
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}}
    return {"resultType": "complete", "content": content, "isError": True, "_meta": meta}


def gatherer(max_bytes: int = 128 * 1024, locales: tuple[str, ...] = ()) -> Gatherer:
    """As a server with these settings has it."""
    return Gatherer(KINDS, locales=locales, max_bytes=max_bytes, release="1.2.3")


def recorded(call: Finished | None = None, **how: Any) -> Recording:
    """The recording of a call."""
    return decode(gatherer(**how).gather(call or finished(), ID))
