"""Exit codes: one per kind of failure, so that scripts and supervisors can tell them apart."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    PROBLEMS = 1
    """``check`` found an error, a ``call`` failed, ``health`` is not healthy."""
    USAGE = 2
    """The command line is wrong (Typer's own code)."""
    CONFIGURATION = 3
    """The configuration cannot be used."""
    TOOLS = 4
    """The tools folder cannot be read."""
    BIND = 5
    """The address cannot be bound."""
