"""What opens a session, and what it is told."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.legacy.initialize import Opening, initialize_result, parse_initialize
from app.legacy.revisions import LATEST_LEGACY, REVISIONS, Revision
from app.protocol.errors import InvalidParams
from app.protocol.schema import Implementation
from tests.legacy.modern import ALL, JSON, load
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS, check_result

CLIENT = {"name": "c", "version": "1"}
GOOD = {"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": CLIENT}
SERVER = {
    "name": "s",
    "version": "2",
    "title": "S",
    "description": "Serves.",
    "websiteUrl": "https://example.com/",
    "icons": [{"src": "https://example.com/i.png"}],
}
each_revision = pytest.mark.parametrize("revision", ALL, ids=lambda each: each.version)


def test_an_opening_settles_revision_capabilities_and_name() -> None:
    assert parse_initialize(GOOD) == Opening(
        REVISIONS["2025-06-18"], {"sampling": {}}, Implementation("c", "1")
    )


def test_who_asks_for_what_is_not_served_gets_the_latest() -> None:
    for version in ("2026-07-28", "1999-01-01", ""):
        opening = parse_initialize({**GOOD, "protocolVersion": version})
        assert opening.revision is LATEST_LEGACY


@rows(
    "params, word",
    ("none", None, "protocolVersion"),
    ("empty", {}, "protocolVersion"),
    ("a version that is a number", {**GOOD, "protocolVersion": 1}, "protocolVersion"),
    ("no capabilities", {**GOOD, "capabilities": None}, "capabilities"),
    ("capabilities that are a list", {**GOOD, "capabilities": []}, "capabilities"),
    ("no client", {**GOOD, "clientInfo": None}, "clientInfo"),
    ("a client without a version", {**GOOD, "clientInfo": {"name": "c"}}, "clientInfo"),
    ("a name that is none", {**GOOD, "clientInfo": {**CLIENT, "name": 1}}, "clientInfo"),
)
def test_a_mistake_is_named(params: Any, word: str) -> None:
    with pytest.raises(InvalidParams, match=word):
        parse_initialize(params)


@given(
    params=st.none()
    | st.dictionaries(st.sampled_from([*GOOD, "other"]), JSON | st.just(CLIENT), max_size=4)
)
def test_anything_opens_or_is_refused(params: Any) -> None:
    with suppress(InvalidParams):
        parse_initialize(params)


@rows(
    "version, info",
    ("2024-11-05", "2024-11-05", {"name": "s", "version": "2"}),
    ("2025-03-26", "2025-03-26", {"name": "s", "version": "2"}),
    ("2025-06-18", "2025-06-18", {"name": "s", "version": "2", "title": "S"}),
    ("2025-11-25", "2025-11-25", SERVER),
)
def test_the_server_says_who_it_is_as_the_revision_can(version: str, info: dict[str, Any]) -> None:
    result = load(
        initialize_result(REVISIONS[version], server_info=SERVER, tools_change=False, logging=False)
    )
    assert result == {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": info,
    }


@each_revision
@pytest.mark.parametrize("logging", [True, False])
@pytest.mark.parametrize("tools_change", [True, False])
def test_it_declares_what_it_was_told(
    revision: Revision, logging: bool, tools_change: bool
) -> None:
    result = load(
        initialize_result(
            revision,
            server_info=SERVER,
            tools_change=tools_change,
            logging=logging,
            instructions="Use them.",
        )
    )
    check_result(result, "initialize", revision.version)
    assert result["capabilities"]["tools"] == {"listChanged": tools_change}
    assert ("logging" in result["capabilities"]) is logging
    assert result["instructions"] == "Use them."


def test_the_versions_are_told_as_they_were_asked_for() -> None:
    for version in VERSIONS:
        revision = parse_initialize({**GOOD, "protocolVersion": version}).revision
        result = load(
            initialize_result(revision, server_info=SERVER, tools_change=True, logging=True)
        )
        assert result["protocolVersion"] == version
