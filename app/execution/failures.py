"""What a tool has raised: what its caller is told, and whether trying again may help."""

import math
from collections.abc import Mapping
from typing import Any, Final

from app.execution.results import ResultEncoder, message_of
from app.toolkit import ToolError

RETRY_KEY: Final = "mcp-tool-server/retry"
"""``_meta`` of a result: the call may succeed later."""


def tool_error(encoder: ResultEncoder, error: ToolError, *, is_draft: bool) -> bytes:
    """The result of a call whose tool has raised this."""
    text = message_of(error) or "The tool failed without saying why."
    meta: Mapping[str, Any] | None = None
    if error.retryable:
        # For the model in words, for programs in `_meta`.
        retry: dict[str, Any] = {"retryable": True}
        if error.retry_after_s is None:
            text = f"{text} The same call may succeed if it is made again."
        else:
            text = f"{text} The same call may succeed in {error.retry_after_s:g} s."
            retry["retryAfterMs"] = math.ceil(error.retry_after_s * 1000)
        meta = {RETRY_KEY: retry}
    encode = encoder.error_draft if is_draft else encoder.error
    return encode(text, meta=meta)


def passing_s(error: BaseException) -> float | None:
    """After how many seconds the reason may have passed; None: there is no hope of that."""
    if isinstance(error, ToolError):
        return (error.retry_after_s or 0.0) if error.retryable else None
    return 0.0 if isinstance(error, (ConnectionError, TimeoutError)) else None
