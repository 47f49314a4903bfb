"""``python -m tests.chaos``: the full run, whose figures stand in docs/operations.md."""

import platform
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from tests.chaos.crowd import Figures
from tests.chaos.scenarios import SCENARIOS, run
from tests.chaos.soak import MIB, soak, system_for_soak
from tests.chaos.system import System

BEGIN: Final = "<!-- measured: written by `make chaos`, not by hand -->"
END: Final = "<!-- measured: end -->"
COLUMNS: Final = (
    "What happens",
    "Calls",
    "Failed",
    "With a key: came again",
    "Outcome unknown",
    "Lost",
    "Ran twice",
    "Longest, s",
)

app = typer.Typer(no_args_is_help=True, add_completion=False)
console = Console()


def row(title: str, figures: Figures) -> tuple[str, ...]:
    """One line of the table."""
    failed = figures.failed
    kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(failed.items()))
    late = sum(figures.failed_keyed.values())
    return (
        title,
        str(figures.sent),
        kinds or "0",
        f"{figures.tried_again}" + (f", {late} in vain" if late else ""),
        str(figures.unknown),
        str(figures.lost),
        str(figures.duplicated + figures.duplicated_plain),
        f"{figures.worst_s:.1f}",
    )


@app.command()
def chaos(
    rate: Annotated[float, typer.Option(help="Calls a second.")] = 100.0,
    write: Annotated[Path | None, typer.Option(help="Markdown file with the table.")] = None,
) -> None:
    """Let everything happen to a system under load, and count what became of each call."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, System(Path(folder)) as system:
        for name, scenario in SCENARIOS.items():
            console.print(f"{scenario.title} ...")
            rows.append(row(scenario.title, run(system, name, rate=rate)))
            console.print("  " + ", ".join(rows[-1][1:]))
    head = f"{rate:g} calls a second, half of them with an idempotency key; {platform.system()}."
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    lines += ["| " + " | ".join(each) + " |" for each in rows]
    text = f"{head}\n\n" + "\n".join(lines)
    console.print(text, markup=False)
    if write is not None:
        before, begin, rest = write.read_text("utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise typer.BadParameter(f"{write} lacks the lines\n{BEGIN}\n{END}")
        write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


@app.command(name="soak")
def long_soak(
    seconds: Annotated[float, typer.Option(help="How long.")] = 300.0,
    rate: Annotated[float, typer.Option(help="Calls a second.")] = 40.0,
) -> None:
    """Let calls, listeners and edits go on for a while, and look at what the processes hold."""
    with tempfile.TemporaryDirectory() as folder, system_for_soak(Path(folder)) as system:
        soaked = soak(system, seconds=seconds, rate=rate)
    console.print(soaked.figures, markup=False)
    console.print(
        f"{soaked.edits} edits, {soaked.opened} streams that heard {soaked.heard} changes, "
        f"{soaked.keys} keys in the store"
    )
    flat = True
    for number, (before, after) in enumerate(zip(soaked.before, soaked.after, strict=True)):
        growth = soaked.growth_bytes(number) / MIB
        flat = flat and growth < 4
        console.print(
            f"replica {number + 1}: {before.memory / MIB:.1f} -> {after.memory / MIB:.1f} MiB "
            f"(second quarter to last: {growth:+.2f}), {before.descriptors} -> "
            f"{after.descriptors} descriptors, {before.threads} -> {after.threads} threads"
        )
    figures = soaked.figures
    if not flat or figures.failures or figures.lost or figures.duplicated:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
