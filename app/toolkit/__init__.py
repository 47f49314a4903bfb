"""What tool authors use: ``@tool``, ``Context``, ``Header``, ``ToolError``.

``@tool`` describes; it registers nothing outside the module that uses it. The registry finds the
specifications in the modules that it loads.
"""

from app.toolkit.asking import ElicitResult, Root, SampleResult, SamplingTool
from app.toolkit.context import CallChannel, Context
from app.toolkit.errors import ToolError
from app.toolkit.hooks import (
    DECLARED_HOOKS,
    CallResult,
    HookCall,
    HookSpec,
    after_call,
    before_call,
)
from app.toolkit.marks import Header, Icon, Titles
from app.toolkit.spec import DECLARED, ToolSpec, tool

__all__ = [
    "DECLARED",
    "DECLARED_HOOKS",
    "CallChannel",
    "CallResult",
    "Context",
    "ElicitResult",
    "Header",
    "HookCall",
    "HookSpec",
    "Icon",
    "Root",
    "SampleResult",
    "SamplingTool",
    "Titles",
    "ToolError",
    "ToolSpec",
    "after_call",
    "before_call",
    "tool",
]
