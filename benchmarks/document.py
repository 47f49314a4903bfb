"""The measured part of `docs/performance.md`: written between two markers, the rest left alone."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks import processes
from benchmarks.plan import Plan
from benchmarks.report import Section, for_document

BEGIN = "<!-- measured: written by `make bench`, not by hand -->"
END = "<!-- measured: end -->"

_LIBRARIES = (
    "uvicorn",
    "uvloop",
    "httptools",
    "starlette",
    "pydantic",
    "orjson",
    "jsonschema-rs",
    "mcp",
    "fastmcp",
)


def machine() -> str:
    """What kind of machine this is: nothing that names it."""
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    found = [f"{name} {version}" for name in _LIBRARIES if (version := _version(name))]
    pinned = "pinned to one core each" if _two_cores() else "not pinned: fewer than two cores"
    return (
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores, {implementation}; "
        f"servers and load {pinned}. " + ", ".join(found) + "."
    )


def _two_cores() -> bool:
    pair = processes.cores()
    return pair is not None and pair[0] != pair[1]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def sizes(plan: Plan) -> str:
    """The sizes of the run in one sentence."""
    return (
        f"{plan.tools} tools, {plan.connections} connections, {plan.rounds} rounds of about "
        f"{plan.round_s * 1e3:.0f} ms a server and request; {plan.streams:,} streams, idle for "
        f"{plan.idle_s:.0f} s; {plan.reload_files} tool files, {plan.reload_repeats} times."
    )


def write(path: Path, plan: Plan, sections: Sequence[Section]) -> None:
    """Replace what stands between the markers in `path`.

    Raises:
        ValueError: the file lacks the markers.
    """
    text = path.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no measured part: it needs the lines\n{BEGIN}\n{END}")
    measured = "\n\n".join(
        [machine(), sizes(plan), *(for_document(section) for section in sections)]
    )
    path.write_text(f"{head}{BEGIN}\n\n{measured}\n\n{END}{tail}")
