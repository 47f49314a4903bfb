"""``stats``: how tools are used, from the audit record."""

import json
from typing import Any, Final

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from app.audit.reading import Wanted
from app.audit.statistics import Usage, usage
from app.cli.audit import PathArgument, SinceOption, UntilOption, instant, read
from app.cli.check import load_tools
from app.cli.options import (
    ConfigOption,
    JsonOption,
    ToolsOption,
    load_or_exit,
    out,
    tool_flags,
)

VERSION_CHARACTERS: Final = 8


def stats(
    path: PathArgument = None,
    since: SinceOption = None,
    until: UntilOption = None,
    config: ConfigOption = None,
    tools: ToolsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show calls, errors, latencies and callers by tool and version, and tools never called."""
    settings = load_or_exit(config, tool_flags(tools))
    wanted = Wanted(instant(since), instant(until))
    found = usage(record for record in read(path, settings) if wanted.matches(record))
    called = {each.tool for each in found}
    served: list[str] | None = None
    if settings.tools.directory.is_dir():
        served = list(load_tools(settings).catalog.tools)
    never = [name for name in served or () if name not in called]
    if as_json:
        shown = [{**each._asdict(), "error_rate": each.error_rate} for each in found]
        typer.echo(json.dumps({"tools": shown, "never_called": never}, indent=2))
        return
    _print(found, served)
    if never:
        out.print(f"Never called: {', '.join(never)}", soft_wrap=True)


def _print(found: list[Usage], served: list[str] | None) -> None:
    # Narrow enough for 80 columns: what is wider is cut off at the right without a word.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, caption="p50, p90, p99, max: ms")
    table.add_column("Tool", overflow="fold", min_width=12)
    table.add_column("Version", no_wrap=True)
    for name in ("Calls", "Errors", "Refused", "Callers", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        gone = served is not None and each.tool not in served
        table.add_row(
            f"[dim]{escape(each.tool)}[/dim]" if gone else escape(each.tool),
            each.version[:VERSION_CHARACTERS],
            f"{each.calls:,}",
            f"{each.error_rate:.1%}" if each.errors else "-",
            f"{each.refused:,}" if each.refused else "-",
            f"{each.callers:,}",
            *(_ms(value) for value in (each.p50_ms, each.p90_ms, each.p99_ms, each.longest_ms)),
        )
    out.print(table)


def _ms(value: Any) -> str:
    return "-" if value is None else f"{value:,.1f}"
