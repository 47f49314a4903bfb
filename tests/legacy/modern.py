"""What the server says to modern clients: the material that is translated."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from hypothesis import strategies as st

from app.content import (
    Audio,
    Block,
    ContentAnnotations,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    blocks_json,
)
from app.legacy.revisions import REVISIONS
from app.protocol.jsonrpc import dumps
from app.protocol.messages import ServerMessages

ALL: Final = tuple(REVISIONS.values())
MESSAGES: Final = ServerMessages({"name": "test", "version": "1", "title": "Test"})
NOTHING: Final = object()


def page(*tools: Mapping[str, Any], cursor: str | None = None) -> bytes:
    """A `ListToolsResult`."""
    head, tail = MESSAGES.tools_page(
        [dumps(each) for each in tools], next_cursor=cursor, cache_scope="private"
    )
    return head + b"60000" + tail


def result(
    *content: Block | str | Mapping[str, Any],
    structured: Any = NOTHING,
    is_error: bool = False,
    meta: Mapping[str, Any] | None = None,
) -> bytes:
    """A `CallToolResult`."""
    wire = [each if isinstance(each, Mapping) else blocks_json([each])[0] for each in content]
    return MESSAGES.tool_result(
        dumps(wire),
        structured=None if structured is NOTHING else dumps(structured),
        is_error=is_error,
        meta=meta,
    )


# -- a large variety -------------------------------------------------------------------------

TEXTS: Final = st.text(max_size=8)
NAMES: Final = st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True)
URIS: Final = st.sampled_from(["https://example.com/a", "file:///tmp/a", "note://b", "urn:x:y"])
JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
METAS: Final = st.dictionaries(
    st.sampled_from(["example.com/k", "mcp-tool-server/timeoutMs", "plain"]), JSON, max_size=2
)
ANNOTATIONS: Final = st.none() | st.builds(
    ContentAnnotations,
    audience=st.lists(st.sampled_from(["user", "assistant"]), max_size=2, unique=True),
    priority=st.none() | st.floats(0, 1),
    last_modified=st.none() | st.datetimes(),
)
_ABOUT: Final = {"annotations": ANNOTATIONS, "meta": METAS}
_MIME: Final = st.none() | st.just("text/plain")
BLOCKS: Final = st.one_of(
    TEXTS,
    st.builds(Text, TEXTS, **_ABOUT),
    st.builds(Image, st.binary(max_size=20), **_ABOUT),
    st.builds(Audio, st.binary(max_size=20), **_ABOUT),
    st.builds(
        ResourceLink,
        URIS,
        TEXTS,
        title=st.none() | TEXTS,
        description=st.none() | TEXTS,
        mime_type=_MIME,
        size=st.none() | st.integers(0, 2**40),
        **_ABOUT,
    ),
    st.builds(EmbeddedResource, URIS, text=TEXTS, mime_type=_MIME, **_ABOUT),
    st.builds(EmbeddedResource, URIS, blob=st.binary(max_size=20), mime_type=_MIME, **_ABOUT),
)


def results() -> st.SearchStrategy[bytes]:
    """Results of every kind."""

    def build(content: Sequence[Any], structured: Any, is_error: bool, meta: Any) -> bytes:
        return result(*content, structured=structured, is_error=is_error, meta=meta)

    return st.builds(
        build, st.lists(BLOCKS, max_size=4), st.just(NOTHING) | JSON, st.booleans(), METAS
    )


_SCHEMAS: Final = st.recursive(
    st.booleans()
    | st.sampled_from([{"type": "string"}, {"$ref": "#/$defs/d"}, {"$ref": "#"}, {"const": {}}]),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=2)}
        )
    ),
    max_leaves=6,
)


def _some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


def _object_schemas() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "$defs": st.fixed_dictionaries({"d": _SCHEMAS}),
            "properties": st.dictionaries(NAMES, _SCHEMAS, max_size=3),
        },
        optional={"$schema": st.just("https://json-schema.org/draft/2020-12/schema")},
    )


def _output_schemas() -> st.SearchStrategy[dict[str, Any]]:
    return _object_schemas() | st.builds(
        lambda root, d: {**root, "$defs": {"d": d}},
        _SCHEMAS.filter(lambda schema: isinstance(schema, dict)),
        _SCHEMAS,
    )


def tools() -> st.SearchStrategy[dict[str, Any]]:
    """Definitions of every kind."""
    annotations = _some(
        title=TEXTS,
        readOnlyHint=st.booleans(),
        destructiveHint=st.booleans(),
        idempotentHint=st.booleans(),
        openWorldHint=st.booleans(),
        somebodysHint=st.booleans(),
    )
    icons = st.lists(
        st.fixed_dictionaries(
            {"src": st.just("https://example.com/i.png")},
            optional={"mimeType": st.just("image/png"), "sizes": st.just(["48x48"])},
        ),
        min_size=1,
        max_size=2,
    )
    return st.fixed_dictionaries(
        {"name": NAMES, "inputSchema": _object_schemas()},
        optional={
            "title": TEXTS,
            "description": TEXTS,
            "icons": icons,
            "outputSchema": _output_schemas(),
            "annotations": annotations,
            "_meta": METAS,
        },
    )


def load(encoded: bytes) -> Any:
    """What a client reads."""
    return orjson.loads(encoded)
