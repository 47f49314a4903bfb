"""Exit codes: one per kind of failure, so that scripts and supervisors can tell them apart."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    PROBLEMS = 1
    """``check`` found an error, a ``call`` failed, a ``replay`` differs, ``health`` is not
    healthy, ``admin`` was refused or not done by all, or the client of ``stdio`` stopped reading.
    """
    USAGE = 2
    """The command line is wrong (Typer's own code)."""
    STARTUP = 3
    """The server could not start; the log says why. (The number is uvicorn's.)"""
    CONFIGURATION = 4
    """The configuration cannot be used."""
    TOOLS = 5
    """The tools folder cannot be read."""
    BIND = 6
    """The address cannot be bound."""
    CREDENTIAL = 7
    """The credential in the environment of ``stdio``, or the key of ``admin``, is missing,
    malformed or refused."""
    WORKERS = 8
    """``serve --workers``: they crash again and again, or one did when it was to end."""
    STUCK = 9
    """The server did not end in time, and was ended without leaving what its tools had opened."""
    RECORDING = 10
    """A recording cannot be read, opened or written."""
