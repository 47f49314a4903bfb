"""From Python files to an immutable catalog of tools."""
