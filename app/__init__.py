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
from app.toolkit import Context, Header, Icon, ToolError, ToolSpec, tool

__all__ = [
    "Audio",
    "ContentAnnotations",
    "Context",
    "EmbeddedResource",
    "Header",
    "Icon",
    "Image",
    "ResourceLink",
    "Text",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "tool",
]
