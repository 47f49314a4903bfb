"""mcp-tool-server: typed Python functions as MCP tools over HTTP.

This module is what tool authors import::

    from app import Context, Header, ToolError, tool
"""

from app.content import (
    Audio,
    ContentAnnotations,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    ToolResult,
)
from app.toolkit import (
    Context,
    ElicitResult,
    Header,
    Icon,
    Root,
    SampleResult,
    SamplingTool,
    Titles,
    ToolError,
    ToolSpec,
    tool,
)

__all__ = [
    "Audio",
    "ContentAnnotations",
    "Context",
    "ElicitResult",
    "EmbeddedResource",
    "Header",
    "Icon",
    "Image",
    "ResourceLink",
    "Root",
    "SampleResult",
    "SamplingTool",
    "Text",
    "Titles",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "tool",
]
