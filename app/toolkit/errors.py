"""How a tool says that the model can do better."""

import math


class ToolError(Exception):
    """A failure that the model can act on: its text reaches the model as ``isError``.

    Any other exception reaches the caller as a generic text with an error id; only the log has
    the details (Tools, "Error Handling").

    Args:
        message: What went wrong and what would be right, for the model.
        retryable: Whether the same call may succeed later. The model is told; and the server
            itself tries again, where the tool has ``retries``.
        retry_after_s: How long to wait before that, in seconds.

    Raises:
        ValueError: A wait that is no finite number of 0 or more, or one without ``retryable``.
    """

    def __init__(
        self, message: str = "", *, retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        if retry_after_s is not None:
            if not retryable:
                raise ValueError("retry_after_s says when to try again: it needs retryable=True")
            if not (math.isfinite(retry_after_s) and retry_after_s >= 0):
                raise ValueError("retry_after_s must be a finite number of 0 or more")
        self.retryable = retryable
        self.retry_after_s = retry_after_s
