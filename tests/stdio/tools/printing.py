"""Tools that write where the client listens, and read where it speaks."""

import ctypes
import os
import subprocess
import sys

from app import tool


@tool
def prints(text: str) -> str:
    """Print as Python does."""
    print(text)  # noqa: T201  # this is what the tool is for
    return "printed"


@tool
def prints_odd() -> str:
    """Print what UTF-8 cannot encode."""
    print("\udcff")  # noqa: T201  # likewise
    return "printed"


@tool
def writes(text: str) -> str:
    """Write to both descriptors that stand for standard output."""
    os.write(1, text.encode() + b"\n")
    sys.__stdout__.buffer.write(text.encode() + b"\n")  # type: ignore[union-attr]  # it is open
    sys.__stdout__.flush()  # type: ignore[union-attr]  # likewise
    return "written"


@tool
def puts(text: str) -> str:
    """Print as C libraries do."""
    libc = ctypes.CDLL(None)
    libc.puts(text.encode())
    libc.fflush(None)
    return "put"


@tool
def spawns(text: str) -> str:
    """Let a child print."""
    subprocess.run(["echo", text], check=True)
    return "spawned"


@tool
def forks(text: str) -> str:
    """Let a child without a program of its own print."""
    pid = os.fork()
    if pid == 0:
        os.write(1, text.encode() + b"\n")
        os._exit(0)
    os.waitpid(pid, 0)
    return "forked"


@tool(isolation="process")
def prints_apart(text: str) -> str:
    """Print in a process of its own."""
    print(text)  # noqa: T201  # likewise
    os.write(1, text.encode() + b"\n")
    return "printed"


@tool
def reads() -> dict[str, str]:
    """Read standard input to its end, in every way."""
    child = subprocess.run(["cat"], check=True, capture_output=True)
    return {
        "python": sys.stdin.read(),
        "descriptor": os.read(0, 100).decode(),
        "child": child.stdout.decode(),
    }


@tool
def environment() -> dict[str, str]:
    """What tools find in their environment."""
    return {name: value for name, value in os.environ.items() if name.startswith("MCP")}


@tool(isolation="process")
def environment_apart() -> dict[str, str]:
    """The same in a process of its own."""
    return {name: value for name, value in os.environ.items() if name.startswith("MCP")}


print("loaded")  # noqa: T201  # what modules print while they load must not be a message either
