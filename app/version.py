"""The version of this server."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "mcp-tool-server"


def server_version() -> str:
    """Version of the installed distribution; 0 in a copy that was not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"
