"""``tools/call`` in the vocabulary of each revision."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.content import (
    BLOCKS,
    Audio,
    ContentAnnotations,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
)
from app.legacy.notifications import TOOLS_LIST_CHANGED, notified
from app.legacy.results import Quick, called
from app.legacy.revisions import REVISIONS, Revision
from app.protocol.jsonrpc import ENCODER_DEPTH, dumps
from app.protocol.messages import ServerMessages, log_message, progress, text_content
from app.protocol.schema import META_PREFIX
from tests.legacy.modern import ALL, MESSAGES, NOTHING, load, result, results
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS, check_notification, check_result
from tests.support.schema import check_definition

each_revision = pytest.mark.parametrize("revision", ALL, ids=lambda each: each.version)
OLD, MARCH, JUNE, LATEST = (REVISIONS[version] for version in VERSIONS)
ABOUT: Final[dict[str, Any]] = {
    "annotations": ContentAnnotations(audience=["user"], priority=0.5, last_modified="2025-01-01"),
    "meta": {"example.com/k": 1},
}
SINCE_JUNE = {
    "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-01"},
    "_meta": {"example.com/k": 1},
}
BEFORE = {"annotations": {"audience": ["user"], "priority": 0.5}}
TEXT = {"type": "text", "text": "a"}
SOUND = Audio(b"12345", "audio/ogg", **ABOUT)
LINK = ResourceLink(
    "https://example.com/a",
    "a",
    title="A",
    description="About a.",
    mime_type="text/plain",
    size=12_345,
    **ABOUT,
)


def content(revision: Revision, *blocks: Any) -> list[dict[str, Any]]:
    """The content that a client reads."""
    out: list[dict[str, Any]] = load(called(result(*blocks), revision, wraps=False))["content"]
    return out


@each_revision
def test_a_result_keeps_what_it_says_and_loses_what_is_modern(revision: Revision) -> None:
    modern = result("a", is_error=True, meta={"mcp-tool-server/errorId": "e", "example.com/k": 1})

    assert load(called(modern, revision, wraps=False)) == {
        "content": [TEXT],
        "isError": True,
        "_meta": {"mcp-tool-server/errorId": "e", "example.com/k": 1},
    }
    assert load(called(result("a"), revision, wraps=False)) == {
        "content": [TEXT],
        "isError": False,
    }


@rows(
    "block, wire",
    ("text", Text("a", **ABOUT), TEXT),
    (
        "an image",
        Image(b"123", **ABOUT),
        {"type": "image", "data": "MTIz", "mimeType": "image/png"},
    ),
    (
        "an embedded text",
        EmbeddedResource("note://a", text="a", mime_type="text/plain", **ABOUT),
        {
            "type": "resource",
            "resource": {"uri": "note://a", "mimeType": "text/plain", "text": "a"},
        },
    ),
    (
        "embedded bytes",
        EmbeddedResource("note://a", blob=b"123", **ABOUT),
        {"type": "resource", "resource": {"uri": "note://a", "blob": "MTIz"}},
    ),
)
def test_blocks_of_every_revision(block: Any, wire: dict[str, Any]) -> None:
    for revision in (JUNE, LATEST):
        assert content(revision, block) == [{**wire, **SINCE_JUNE}]
    for revision in (OLD, MARCH):
        assert content(revision, block) == [{**wire, **BEFORE}]


def test_audio_came_in_march() -> None:
    wire = {"type": "audio", "data": "MTIzNDU=", "mimeType": "audio/ogg"}

    assert content(LATEST, SOUND) == content(JUNE, SOUND) == [{**wire, **SINCE_JUNE}]
    assert content(MARCH, SOUND) == [{**wire, **BEFORE}]
    assert content(OLD, SOUND) == [
        {
            "type": "text",
            "text": "(Audio, audio/ogg, 5 bytes, left out: revision 2024-11-05 of the protocol, "
            "which this client speaks, has no audio.)",
            **BEFORE,
        }
    ]


@pytest.mark.parametrize("size", range(5))
def test_the_size_of_audio_is_that_of_its_bytes(size: int) -> None:
    (block,) = content(OLD, Audio(bytes(size)))
    assert f" {size} bytes" in block["text"]


def test_links_came_in_june() -> None:
    wire = {
        "type": "resource_link",
        "uri": "https://example.com/a",
        "name": "a",
        "title": "A",
        "description": "About a.",
        "mimeType": "text/plain",
        "size": 12_345,
    }
    text = "A: https://example.com/a (text/plain, 12,345 bytes)\nAbout a."

    assert content(LATEST, LINK) == content(JUNE, LINK) == [{**wire, **SINCE_JUNE}]
    assert content(MARCH, LINK) == content(OLD, LINK) == [{"type": "text", "text": text, **BEFORE}]
    assert content(OLD, ResourceLink("note://b", "b")) == [{"type": "text", "text": "b: note://b"}]


def test_icons_of_links_came_last() -> None:
    link = {
        "type": "resource_link",
        "uri": "note://b",
        "name": "b",
        "icons": [{"src": "https://example.com/i.png"}],
    }
    assert content(LATEST, link) == [link]
    assert "icons" not in content(JUNE, link)[0]


@each_revision
def test_there_is_always_a_block(revision: Revision) -> None:
    assert content(revision) == [{"type": "text", "text": "(no content)"}]


@each_revision
@pytest.mark.parametrize("kind", BLOCKS)
def test_every_block_that_tools_have_is_known(revision: Revision, kind: Any) -> None:
    made = {
        Text: Text("a"),
        Image: Image(b""),
        Audio: Audio(b""),
        ResourceLink: LINK,
        EmbeddedResource: EmbeddedResource("note://a", text=""),
    }
    assert len(content(revision, made[kind])) == 1


@rows(
    "value, wraps, sent",
    ("an object", {"a": 1}, False, {"a": 1}),
    ("an object of a type that is not only objects", {"a": 1}, True, {"result": {"a": 1}}),
    ("an object that has a result", {"result": 1}, True, {"result": {"result": 1}}),
    ("a number", 42, True, {"result": 42}),
    ("null", None, True, {"result": None}),
    ("a list that no schema was listed for", [1], False, {"result": [1]}),
    ("a number that doubles cannot hold", {"n": 10**30}, False, {"n": 10**30}),
)
def test_structured_content_is_as_it_was_listed(value: Any, wraps: bool, sent: Any) -> None:
    modern = result("a", structured=value)

    for revision in (JUNE, LATEST):
        given = json.loads(called(modern, revision, wraps=wraps))
        assert given["structuredContent"] == sent
    for revision in (OLD, MARCH):
        given = json.loads(called(modern, revision, wraps=wraps))
        assert given == {"content": [TEXT], "isError": False}


def test_what_is_as_deep_as_the_encoder_goes_still_goes() -> None:
    value: Any = 1
    for _ in range(ENCODER_DEPTH):
        value = [value]
    modern = result("a", structured=value)

    given = json.loads(called(modern, LATEST, wraps=True))

    assert given["structuredContent"] == {"result": value}


def test_a_result_that_asks_is_none() -> None:
    with pytest.raises(ValueError, match="input_required"):
        called(MESSAGES.input_required({}, "s"), LATEST, wraps=False)


@given(modern=results(), wraps=st.booleans())
def test_whatever_is_returned_is_in_the_vocabulary_of_the_revision(
    modern: bytes, wraps: bool
) -> None:
    before = json.loads(modern)
    check_definition(before, "CallToolResult")
    for revision in ALL:
        given = json.loads(called(modern, revision, wraps=wraps))
        check_result(given, "tools/call", revision.version)
        assert len(given["content"]) == max(1, len(before["content"]))
        assert given["isError"] == before["isError"]
        meta = {k: v for k, v in before["_meta"].items() if not k.startswith(META_PREFIX)}
        assert given.get("_meta", {}) == meta
        value = given.get("structuredContent", NOTHING)
        if revision.structured and "structuredContent" in before:
            assert before["structuredContent"] in (value, value.get("result"))
        else:
            assert value is NOTHING


@each_revision
def test_notifications_of_a_call(revision: Revision) -> None:
    done = progress("t", 1, 2, "half")
    said = log_message("info", {"message": "kept"}, "tool")

    told = load(notified(done, revision))
    assert ("message" in told["params"]) is (revision.version != "2024-11-05")
    assert told["params"]["progress"] == 1
    check_notification(told, revision.version)
    assert load(notified(said, revision)) == load(said)
    check_notification(load(said), revision.version)
    check_notification(load(TOOLS_LIST_CHANGED), revision.version)


def test_nothing_is_changed_that_need_not_be() -> None:
    done = progress(1, 0.5, None, None)
    assert notified(done, LATEST) is done
    assert notified(done, OLD) == dumps(load(done))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['"', "\\", '\\"', '"}],"isError":false', '","structuredContent":{', "\x00\n", "é😀"]
)


@given(
    text=TEXTS,
    structured=st.none()
    | st.dictionaries(TEXTS, TEXTS | st.integers() | st.lists(TEXTS, max_size=2), max_size=3)
    | st.lists(TEXTS, max_size=2)
    | TEXTS,
    has_structured=st.booleans(),
    flags=st.tuples(st.booleans(), st.booleans()),
    meta=st.none() | st.just({"a/b": 1}),
)
def test_what_is_cut_out_is_what_is_translated(
    text: str, structured: Any, has_structured: bool, flags: tuple[bool, bool], meta: Any
) -> None:
    wraps, is_error = flags
    info = {"name": "n", "version": "1"}
    result = ServerMessages(info).tool_result(
        text_content(text),
        structured=dumps(structured) if has_structured else None,
        is_error=is_error,
        meta=meta,
    )
    quick = Quick(info)
    for revision in REVISIONS.values():
        found = quick(result, revision, wraps=wraps)
        if found is not None:
            assert json.loads(found) == json.loads(called(result, revision, wraps=wraps))
        usual = not is_error and meta is None
        if usual and (not has_structured or not revision.structured):
            assert found is not None
