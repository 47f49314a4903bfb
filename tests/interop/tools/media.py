"""Content that is more than text."""

from datetime import UTC, datetime

from app import (
    Audio,
    ContentAnnotations,
    Context,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    ToolResult,
    tool,
)


@tool
def picture() -> Image:
    """Return a picture."""
    return Image(b"\x89PNG\r\n\x1a\n", mime_type="image/png")


@tool
def sound() -> Audio:
    """Return a sound."""
    return Audio(b"RIFF", mime_type="audio/wav")


@tool
def report() -> ToolResult:
    """Return text for the user, a link and two embedded resources."""
    for_user = ContentAnnotations(
        audience=("user",), priority=0.5, last_modified=datetime(2026, 7, 28, tzinfo=UTC)
    )
    return ToolResult(
        content=[
            Text("Grüße, 世界 🌍", annotations=for_user),
            ResourceLink("https://example.com/report", "report", title="The report", size=1234),
            EmbeddedResource("report://summary", text="All is well.", mime_type="text/plain"),
            EmbeddedResource("report://raw", blob=b"\x00\xff", mime_type="application/x-raw"),
        ],
        structured_content={"pages": 3},
        meta={"example.com/edition": 7},
    )


@tool(structured=False)
def long_text(characters: int, ctx: Context, stream: bool = False) -> str:
    """Return a long text, at once or as the end of a stream."""
    if stream:
        ctx.progress(1)
    return "x" * characters
