"""The command line: ``mcp-tool-server`` and ``python -m app``."""

from app.cli.main import main

__all__ = ["main"]
