"""Keeps the channel to the client out of the hands of tools.

What a tool, a library or a child process prints would otherwise stand between MCP messages, and
one that reads standard input would take messages away.
"""

import io
import os
import sys
from typing import NamedTuple


class Streams(NamedTuple):
    """File descriptors of the client, which no child inherits."""

    source: int
    sink: int


def take_standard_streams() -> Streams:
    """Take standard input and output for the client alone.

    From here on descriptor 0 is empty, and descriptor 1 is standard error. To be called before
    any tool is loaded.

    Raises:
        OSError: One of the three standard streams is closed.
    """
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        raise OSError("standard input, output and error must be open")
    sys.stdout.flush()
    streams = Streams(os.dup(0), os.dup(1))
    for descriptor in streams:
        os.set_blocking(descriptor, True)  # whoever started us may have left it otherwise
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error does it: lines come when they are printed, and every text can be.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    return streams
