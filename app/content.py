"""What a tool may return besides plain data: content blocks and the full result.

Source: Tools, "Tool Result"; ``ContentBlock`` and ``Annotations`` of the schema.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from app.protocol.schema import is_reserved_meta_key

NO_STRUCTURED_CONTENT: Final = object()
"""Tells a result without structured content from one whose structured content is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentAnnotations:
    """Hints about a block for the client.

    Attributes:
        audience: Who it is meant for.
        priority: 0 (optional) to 1 (required).
        last_modified: An instant, or its ISO 8601 text.
    """

    audience: Sequence[Literal["user", "assistant"]] = ()
    priority: float | None = None
    last_modified: datetime | str | None = None

    def __post_init__(self) -> None:
        if not set(self.audience) <= {"user", "assistant"}:
            raise ValueError("audience holds 'user', 'assistant' or both")
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError("priority is a number from 0 to 1")

    def as_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.audience:
            out["audience"] = list(self.audience)
        if self.priority is not None:
            out["priority"] = self.priority
        if isinstance(self.last_modified, datetime):
            out["lastModified"] = self.last_modified.isoformat()
        elif self.last_modified is not None:
            out["lastModified"] = self.last_modified
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    annotations: ContentAnnotations | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def _finish(self, out: dict[str, Any]) -> dict[str, Any]:
        if self.annotations is not None and (annotations := self.annotations.as_json()):
            out["annotations"] = annotations
        if self.meta:
            check_meta(self.meta)
            out["_meta"] = dict(self.meta)
        return out


@dataclass(frozen=True, slots=True)
class Text(_Block):
    """A text block. A plain ``str`` in a list of blocks means the same."""

    text: str

    def as_json(self) -> dict[str, Any]:
        return self._finish({"type": "text", "text": self.text})


@dataclass(frozen=True, slots=True)
class Image(_Block):
    """An image as raw bytes; it is sent as Base64."""

    data: bytes
    mime_type: str = "image/png"

    def as_json(self) -> dict[str, Any]:
        return self._finish(
            {"type": "image", "data": _base64(self.data), "mimeType": self.mime_type}
        )


@dataclass(frozen=True, slots=True)
class Audio(_Block):
    """Sound as raw bytes; it is sent as Base64."""

    data: bytes
    mime_type: str = "audio/wav"

    def as_json(self) -> dict[str, Any]:
        return self._finish(
            {"type": "audio", "data": _base64(self.data), "mimeType": self.mime_type}
        )


@dataclass(frozen=True, slots=True)
class ResourceLink(_Block):
    """A pointer to something that the client can fetch.

    Attributes:
        size: Bytes before any encoding, if known.
    """

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None

    def as_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        optional = {
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
        }
        out |= {key: value for key, value in optional.items() if value is not None}
        return self._finish(out)


@dataclass(frozen=True, slots=True)
class EmbeddedResource(_Block):
    """The contents of a resource, text or bytes, inside the result."""

    uri: str
    text: str | None = None
    blob: bytes | None = None
    mime_type: str | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise ValueError("an EmbeddedResource has either text or blob")

    def as_json(self) -> dict[str, Any]:
        resource: dict[str, Any] = {"uri": self.uri}
        if self.mime_type is not None:
            resource["mimeType"] = self.mime_type
        if self.text is not None:
            resource["text"] = self.text
        else:
            resource["blob"] = _base64(self.blob or b"")
        return self._finish({"type": "resource", "resource": resource})


Block = Text | Image | Audio | ResourceLink | EmbeddedResource
BLOCKS: Final = (Text, Image, Audio, ResourceLink, EmbeddedResource)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The whole result, for tools that decide about each part of it.

    Attributes:
        content: Blocks and strings. Derived from ``structured_content`` where left empty.
        structured_content: Any value with a JSON form; checked against the output schema.
        is_error: The call failed in a way that the model can act on.
        meta: ``_meta`` of the result; keys that MCP reserves are refused.
    """

    content: Sequence[Block | str] = ()
    structured_content: Any = NO_STRUCTURED_CONTENT
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, block in enumerate(self.content):
            if not isinstance(block, (str, *BLOCKS)):
                raise TypeError(
                    f"content[{index}] is {type(block).__name__}; it must be a str or one of "
                    + ", ".join(kind.__name__ for kind in BLOCKS)
                )
        check_meta(self.meta)


def check_meta(meta: Mapping[str, Any]) -> None:
    """Refuse ``_meta`` keys that MCP reserves (Overview, "``_meta``").

    Raises:
        ValueError: A key is reserved.
    """
    for key in meta:
        if is_reserved_meta_key(key):
            raise ValueError(f"the _meta key {key!r} is reserved by MCP; use a prefix of your own")


def blocks_json(blocks: Sequence[Block | str]) -> list[dict[str, Any]]:
    """The wire form of content blocks."""
    return [
        {"type": "text", "text": block} if isinstance(block, str) else block.as_json()
        for block in blocks
    ]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
