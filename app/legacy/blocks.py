"""Content blocks in the vocabulary of an older revision."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.legacy.encoding import own_meta
from app.legacy.revisions import Revision

Block = Mapping[str, Any]

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("type", "text"),
    "image": ("type", "data", "mimeType"),
    "audio": ("type", "data", "mimeType"),
    "resource": ("type",),
    "resource_link": ("type", "uri", "name", "title", "description", "mimeType", "size"),
}
_CONTENTS: Final = ("uri", "mimeType", "text", "blob")


def blocks(content: Sequence[Block], revision: Revision) -> list[dict[str, Any]]:
    """Content of a result, at least one block: models are shown it, and some refuse nothing."""
    return [block(each, revision) for each in content] or [_text("(no content)")]


def block(given: Block, revision: Revision) -> dict[str, Any]:
    """One block; what the revision has no block for becomes text that says what it was."""
    kind = given["type"]
    if kind == "audio" and not revision.audio:
        out = _text(_described_audio(given, revision))
    elif kind == "resource_link" and not revision.resource_links:
        out = _text(_described_link(given))
    else:
        out = {name: given[name] for name in _MEMBERS[kind] if name in given}
        if kind == "resource":
            out["resource"] = _contents(given["resource"], revision)
        if kind == "resource_link" and revision.icons and "icons" in given:
            out["icons"] = given["icons"]
    if annotations := _annotations(given.get("annotations", {}), revision):
        out["annotations"] = annotations
    return _with_meta(out, given, revision)


def _contents(resource: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    out = {name: resource[name] for name in _CONTENTS if name in resource}
    return _with_meta(out, resource, revision)


def _annotations(given: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    known = ("audience", "priority", "lastModified")[: 3 if revision.last_modified else 2]
    return {name: given[name] for name in known if name in given}


def _with_meta(out: dict[str, Any], given: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    if revision.block_meta and (meta := own_meta(given.get("_meta", {}))):
        out["_meta"] = meta
    return out


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _described_audio(given: Block, revision: Revision) -> str:
    data = given["data"]
    size = len(data) * 3 // 4 - data[-2:].count("=")  # Base64 has four characters for three bytes
    return (
        f"(Audio, {given['mimeType']}, {size:,} bytes, left out: revision {revision.version} of "
        "the protocol, which this client speaks, has no audio.)"
    )


def _described_link(given: Block) -> str:
    facts = [given["mimeType"]] if "mimeType" in given else []
    if "size" in given:
        facts.append(f"{given['size']:,} bytes")
    name = given.get("title", given["name"])
    lines = [f"{name}: {given['uri']}" + (f" ({', '.join(facts)})" if facts else "")]
    if "description" in given:
        lines.append(given["description"])
    return "\n".join(lines)
