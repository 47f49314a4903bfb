"""Whatever a client of an older revision sends, it gets an answer that is no accident."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.sessions.dialogue import TOPIC as ANSWER_TOPIC
from app.sessions.methods import CANCEL_TOPIC, END_TOPIC
from app.sessions.replays import ATTACH_TOPIC
from tests.sessions.carrying import carrying
from tests.sessions.conftest import Open
from tests.support.legacy_schema import VERSIONS
from tests.support.server import ServerProcess

METHODS = (
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "",
    "x" * 300,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PARAMS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["add", "words", "book", "nothing"]) | JSON,
        "arguments": st.just({"a": 1}) | JSON,
        "cursor": JSON,
        "level": st.sampled_from(["info", "loud"]) | JSON,
        "protocolVersion": st.sampled_from(VERSIONS) | JSON,
        "capabilities": st.just({}) | JSON,
        "clientInfo": st.just({"name": "c", "version": "1"}) | JSON,
        "requestId": JSON,
        "_meta": JSON | st.fixed_dictionaries({}, optional={"progressToken": JSON}),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | JSON},
    optional={
        "id": st.integers() | st.text(max_size=5) | JSON,
        "method": st.sampled_from(METHODS) | JSON,
        "params": PARAMS,
        "result": JSON,
        "error": JSON,
    },
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    body=MESSAGES | st.lists(MESSAGES, max_size=3) | JSON,
    version=st.sampled_from([*VERSIONS, None, "", "1999-01-01", "\xe9"]),
    in_session=st.booleans(),
)
def test_nothing_that_is_sent_is_an_accident(
    talk: Open, old: ServerProcess, body: Any, version: str | None, in_session: bool
) -> None:
    conversation = talk(opened=in_session)
    headers: dict[bytes, bytes] = {
        name.encode(): value.encode() for name, value in conversation.headers().items()
    }
    headers.pop(b"MCP-Protocol-Version", None)
    if version is not None:
        headers[b"MCP-Protocol-Version"] = version.encode("latin-1")
    content = json.dumps(body).encode()
    response = conversation._http.post(
        conversation.url, content=content, headers=list(headers.items())
    )
    assert response.status_code in (200, 202, 400, 404), response.text
    assert b"-32603" not in response.content
    assert not old.logs("request_failed") and not old.logs("tool_failed")
    conversation.__exit__()


SHOUTED = (
    b"",
    b"\xff\xfe",
    b"nothing",
    b"[" * 100_000,
    b"1",
    b"null",
    b"{}",
    b"[1]",
    b"[[],[]]",
    b'[{"a":1},{"b":1}]',
    b'[[],"session",{}]',
    b'["id","session",null]',
    b'["id","session",' + b"9" * 5000 + b"]",
)
"""Whoever may write to the bus of replicas may have said this."""


async def test_nothing_that_is_shouted_on_the_bus_is_an_accident(tmp_path: Path) -> None:
    async with carrying(tmp_path) as carries:
        for topic in (ANSWER_TOPIC, CANCEL_TOPIC, END_TOPIC, ATTACH_TOPIC):
            for message in SHOUTED:
                await carries.state.bus.publish(topic, message)  # raises what a hearer raises
