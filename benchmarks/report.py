"""The measurements as rows; and rows as a table for the terminal or for the document."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from benchmarks.cost import Series
from benchmarks.listeners import Listening
from benchmarks.reload import Reloading
from benchmarks.servers import FLOOR, OURS

Row = tuple[str, ...]

_COST_NOTE = (
    "µs: CPU time a request, median over the rounds; to floor, to ours: median of the ratios "
    "within each round; KB: size of the answer."
)
_LISTENING_NOTE = (
    "KiB each: resident memory of the process, without the kernel's socket buffers. µs each: CPU "
    "time of one change per listener, nothing else going on. Spread: from the first listener that "
    "heard to the last, calls going on, worst of the changes. Total: from the edit to the last "
    "listener; raw ASGI is told by a request, this server notices an edited file, waits for the "
    "edits to end, loads it and then tells. Call: median before; worst while the change went out."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table and the sentences below it."""

    title: str
    columns: Row
    rows: list[Row]
    notes: tuple[str, ...] = ()


def cost(found: Sequence[Series]) -> Section:
    """CPU time per request, and how it stands to the floor and to this server."""
    mine = {series.workload: series for series in found if series.server == OURS}
    rows: list[Row] = []
    for series in found:
        own = mine.get(series.workload)
        compared = own is not None and series.server not in (FLOOR, OURS)
        rows.append(
            (
                series.workload,
                series.server,
                f"{series.median_us:,.0f}",
                f"{series.least_us:,.0f}",
                f"{series.ratio:.2f}",
                _times(series, own) if own is not None and compared else "",
                f"{statistics.median(series.per_second):,.0f}",
                f"{series.answer_bytes / 1000:.1f}",
            )
        )
    return Section(
        "CPU time per request",
        (
            "request",
            "server",
            "µs",
            "least",
            "to floor",
            "to ours",
            "a second",
            "KB",
        ),
        rows,
        (_COST_NOTE,),
    )


def _times(series: Series, own: Series) -> str:
    """Median over the rounds of their cost to ours in the round beside it."""
    pairs = zip(series.cpu_us, own.cpu_us, strict=True)
    times = statistics.median(theirs / ours for theirs, ours in pairs)
    return f"{times:.2f}" if times < 2 else f"{times:.1f}"


def tracing(found: Sequence[Series]) -> Section:
    """CPU time of a call with and without spans."""
    rows: list[Row] = [
        (
            series.workload,
            series.server,
            f"{series.median_us:,.0f}",
            f"{series.least_us:,.0f}",
            f"{series.ratio:.2f}",
        )
        for series in found
    ]
    return Section(
        "CPU time of a call with spans", ("request", "server", "µs", "least", "to off"), rows
    )


def listening(found: Sequence[Listening]) -> Section:
    """Idle listeners and one change to all of them."""
    rows: list[Row] = [
        (
            each.server,
            f"{each.streams:,}",
            f"{each.kib_a_stream:.1f}",
            f"{each.idle_percent:.1f} %",
            f"{each.delivery_us:.0f}",
            f"{each.worst_spread_ms:.0f}",
            f"{each.median_total_ms:.0f}",
            f"{each.quiet.quantile_ms(0.5):.2f}",
            f"{each.calls_worst_ms:.0f}",
        )
        for each in found
    ]
    return Section(
        "Idle listeners, and one change to all of them while calls go on",
        (
            "server",
            "streams",
            "KiB each",
            "idle CPU",
            "µs each",
            "spread ms",
            "total ms",
            "call ms",
            "worst call ms",
        ),
        rows,
        (_LISTENING_NOTE,),
    )


def reloading(started_s: float, found: Sequence[Reloading]) -> Section:
    """Requests while tool files are loaded again."""
    rows: list[Row] = []
    for what in dict.fromkeys(each.what for each in found):
        same = [each for each in found if each.what == what]
        answers = sum(len(each.latencies.seconds) for each in same)
        rows.append(
            (
                what,
                f"{same[0].files:,}",
                f"{statistics.median(each.done_s for each in same):.2f}" if same[0].files else "",
                f"{answers:,}",
                f"{statistics.median(each.latencies.quantile_ms(0.5) for each in same):.2f}",
                f"{max(each.latencies.quantile_ms(0.99) for each in same):.1f}",
                f"{max(each.latencies.worst_ms for each in same):.1f}",
            )
        )
    return Section(
        "Requests while tools are loaded again",
        ("change", "files", "served after s", "answers", "median ms", "99 % ms", "worst ms"),
        rows,
        (f"The server answered {started_s:.1f} s after its start with all of these files.",),
    )


def for_terminal(section: Section) -> Table:
    """Text to the left, figures to the right, a line between groups."""
    drawn = Table(title=section.title, title_justify="left", title_style="bold", box=box.SIMPLE)
    for index, column in enumerate(section.columns):
        numeric = any(row[index][:1].isdigit() for row in section.rows)
        drawn.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row, following in zip(section.rows, [*section.rows[1:], None], strict=True):
        grouped = section.columns[1] == "server"
        ends = grouped and following is not None and following[0] != row[0]
        drawn.add_row(*row, end_section=ends)
    return drawn


def for_document(section: Section) -> str:
    """The same as Markdown."""
    numeric = [
        any(row[index][:1].isdigit() for row in section.rows)
        for index in range(len(section.columns))
    ]
    lines = [
        f"### {section.title}",
        "",
        _line(section.columns),
        _line(tuple("---:" if right else "---" for right in numeric)),
        *(_line(row) for row in section.rows),
    ]
    for note in section.notes:
        lines += ["", note]
    return "\n".join(lines)


def _line(cells: Row) -> str:
    return "| " + " | ".join(cells) + " |"
