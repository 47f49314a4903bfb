"""`python -m tests.interop.families`: drive every client, and if asked record what was found."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from tests.interop.families import table
from tests.interop.families.families import FAMILIES, RUNS, Run
from tests.interop.families.running import Outcome, run

_AT_ONCE = 2


def main(
    *,
    family: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this: {', '.join(each.id for each in FAMILIES)}. Repeatable."),
    ] = None,
    era: Annotated[str | None, typer.Option(help="Only this: modern or legacy.")] = None,
    transport: Annotated[str | None, typer.Option(help="Only this: http or stdio.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Rewrite the table in this Markdown file.")
    ] = None,
) -> None:
    """Put clients that others wrote through what users do with tools."""
    chosen = [
        each
        for each in RUNS
        if (not family or each.family.id in family)
        and era in (None, each.era)
        and transport in (None, each.transport)
    ]
    if not chosen:
        raise typer.BadParameter("nothing is left to run")
    if write is not None and len(chosen) < len(RUNS):
        raise typer.BadParameter("--write needs all of it: leave out the other options")
    for each in dict.fromkeys(each.family for each in chosen):
        each.command()  # makes its environment where that is missing
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(chosen, pool.map(_run, chosen), strict=True))
    if write is not None:
        page = table.written(write.read_text("utf-8"), table.rendered(found))
        write.write_text(page, "utf-8")
        typer.echo(f"Wrote {write}.")
    if problems := list(table.problems(found)):
        typer.echo("\n".join(["", "Not as it should be:", *problems]), err=True)
        raise typer.Exit(1)


def _run(chosen: Run) -> dict[str, Outcome]:
    outcomes = run(chosen)
    line = "  ".join(f"{table.SIGNS[outcome.ok]} {name}" for name, outcome in outcomes.items())
    typer.echo(f"{chosen.family.title}, {chosen.speech}, {chosen.transport}:\n  {line}")
    return outcomes


if __name__ == "__main__":
    typer.run(main)
