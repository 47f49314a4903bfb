"""How a tool says that the model can do better."""


class ToolError(Exception):
    """A failure that the model can act on: its text reaches the model as ``isError``.

    Any other exception reaches the caller as a generic text with an error id; only the log has
    the details (Tools, "Error Handling").
    """
