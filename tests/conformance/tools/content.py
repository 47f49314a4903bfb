"""One tool for each kind of content, and one that fails."""

from app import Audio, EmbeddedResource, Image, Text, ToolError, tool

from ._samples import red_pixel, silence


@tool
def test_simple_text() -> str:
    """Answer with one line of text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Image:
    """Answer with a picture of one pixel."""
    return Image(red_pixel(), mime_type="image/png")


@tool
def test_audio_content() -> Audio:
    """Answer with a moment of silence."""
    return Audio(silence(), mime_type="audio/wav")


@tool
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a text resource that is carried in the result."""
    return EmbeddedResource(
        "test://embedded-resource",
        text="This is an embedded resource content.",
        mime_type="text/plain",
    )


@tool
def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Answer with text, a picture and a resource together."""
    return [
        Text("Multiple content types test:"),
        Image(red_pixel(), mime_type="image/png"),
        EmbeddedResource(
            "test://mixed-content-resource",
            text='{"test":"data","value":123}',
            mime_type="application/json",
        ),
    ]


@tool
def test_error_handling() -> str:
    """Fail in a way that the model can read."""
    raise ToolError("This tool intentionally returns an error for testing")
