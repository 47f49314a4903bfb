"""`python -m benchmarks`: measure, show, and if asked record in the document."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import cost, document, listeners, reload, report, servers
from benchmarks.plan import DEFAULT, QUICK
from benchmarks.report import Section

_ROOM_BYTES = 512 * 1024 * 1024
PARTS = ("cost", "listeners", "reload")


def main(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller and shorter: under 40 seconds.")
    ] = False,
    streams: Annotated[int | None, typer.Option(min=1, help="Idle listeners to open.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Interleaved rounds per request.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help=f"Measure only this: {', '.join(PARTS)}. May be repeated."),
    ] = None,
    peers: Annotated[bool, typer.Option(help="Measure the installed alternatives too.")] = True,
    write: Annotated[
        Path | None, typer.Option(help="Rewrite the measured part of this Markdown file.")
    ] = None,
) -> None:
    """Measure what a request, an idle listener and a reload cost on this machine."""
    wanted = set(part or PARTS)
    if unknown := wanted.difference(PARTS):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(PARTS)}")
    if write is not None and wanted != set(PARTS):
        raise typer.BadParameter("--write needs every part: leave out --part")
    plan = QUICK if quick else DEFAULT
    plan = replace(plan, streams=streams or plan.streams, rounds=rounds or plan.rounds)
    # The load runs in this process: its garbage collection must not show as a slow answer.
    gc.disable()
    console = Console()
    console.width = max(console.width, 108)
    began = time.perf_counter()
    sections: list[Section] = []

    def show(section: Section) -> None:
        sections.append(section)
        console.print(report.for_terminal(section))
        for note in section.notes:
            console.print(note, style="dim")
        console.print()

    console.print(document.machine(), document.sizes(plan), "", sep="\n")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_memory()) as name:
        folders = {each: Path(name) / each for each in PARTS}
        for folder in folders.values():
            folder.mkdir()
        if "cost" in wanted:
            show(report.cost(cost.measure(plan, folders["cost"], with_peers=peers)))
        if "listeners" in wanted:
            show(report.listening(listeners.measure(plan, folders["listeners"])))
        if "reload" in wanted and servers.have_ours():
            show(report.reloading(*reload.measure(plan, folders["reload"])))
    console.print(f"Took {time.perf_counter() - began:.0f} s.", style="dim")
    if write is not None:
        document.write(write, plan, sections)
        console.print(f"Wrote {write}.")


def _memory() -> str | None:
    """A file system in memory, if there is one with room.

    Log and tool files go there: a server that waits for a busy disk says nothing about the server.
    """
    place = Path("/dev/shm")  # noqa: S108 - only a folder with a name of its own is made in it
    if place.is_dir() and shutil.disk_usage(place).free > _ROOM_BYTES:
        return str(place)
    return None


if __name__ == "__main__":
    typer.run(main)
