"""mcp-tool-server: typed Python functions as MCP tools over HTTP.

This module is what tool authors import::

    from app import Context, Header, ToolError, tool
"""

from app.content import (
    NO_STRUCTURED_CONTENT,
    Audio,
    ContentAnnotations,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    ToolResult,
)
from app.toolkit import (
    CallResult,
    Context,
    ElicitResult,
    Header,
    HookCall,
    Icon,
    Root,
    SampleResult,
    SamplingTool,
    Titles,
    ToolError,
    ToolSpec,
    after_call,
    before_call,
    tool,
)

__all__ = [
    "NO_STRUCTURED_CONTENT",
    "Audio",
    "CallResult",
    "ContentAnnotations",
    "Context",
    "ElicitResult",
    "EmbeddedResource",
    "Header",
    "HookCall",
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
    "after_call",
    "before_call",
    "tool",
]
