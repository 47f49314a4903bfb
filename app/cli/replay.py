"""``replay``: run recorded calls again, here, and show what has changed."""

import asyncio
import io
import json
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from pydantic import ValidationError
from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.cli.exits import Exit
from app.cli.options import (
    ConfigOption,
    JsonOption,
    ToolsOption,
    fail,
    load_or_exit,
    out,
    print_error,
    tool_flags,
)
from app.cli.recordings import all_of, find
from app.observability.logs import configure_logging
from app.policy.policy import Policy
from app.recording.library import Library
from app.recording.recording import Recording
from app.recording.replay import Ended, Replayed, Replayer, Verdict
from app.recording.wiring import library_of
from app.service import Service
from app.settings import RecordingSettings, Settings

_COLOURS: Final = {
    Verdict.SAME: "green",
    Verdict.CHANGED: "yellow",
    Verdict.ALLOWED: "magenta",
    Verdict.REFUSED: "magenta",
    Verdict.ERROR: "red",
    Verdict.SKIPPED: "dim",
}
_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
MAX_DIFF_LINES: Final = 60
"""Of one call, on a terminal; ``--json`` has all of them."""


def replay(
    recording: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|ID...", help="Recordings: files, or ids of this server's own"),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All that the server has kept, oldest first")
    ] = False,
    tools: ToolsOption = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="TOML file whose [[policies]] stand in for the configured ones"),
    ] = None,
    config: ConfigOption = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Rules decide about the present, not about the call's time"),
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Member of structured content that may differ; may be repeated"),
    ] = None,
    allow_effects: Annotated[
        bool,
        typer.Option("--allow-effects", help="Run tools too that are not declared read-only"),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run recorded calls again and show what has changed. Exit code 1 if anything has.

    Refusals are decided without running anything. Of the others only tools with the annotation
    read_only run, for real.
    """
    flags = tool_flags(tools)
    flags.setdefault("tools", {})["reload"] = False
    flags["execution"] = {"processes": 1, "cache_bytes": 0}
    settings = load_or_exit(config, flags)
    recordings = _recordings(library_of(settings), recording or [], every=every)
    if policy is not None:
        settings = _with_policies(settings, policy)
    # Nothing of this is recorded in its turn.
    settings = settings.model_copy(update={"recording": RecordingSettings()})
    heard = io.TextIOWrapper(io.BytesIO(), "utf-8")
    configure_logging("error", "json", heard)
    replayed = asyncio.run(
        _replay(settings, recordings, now=now, ignored=ignore or [], allow_effects=allow_effects)
    )
    failures = _failures(heard)
    if as_json:
        typer.echo(json.dumps([_as_json(each, failures) for each in replayed], indent=2))
    else:
        _print(replayed, failures)
    differs = any(each.verdict.differs for each in replayed)
    raise typer.Exit(Exit.PROBLEMS if differs else Exit.OK)


def _recordings(library: Library, names: list[str], *, every: bool) -> list[Recording]:
    """All of them, before anything runs."""
    if every == bool(names):
        fail("name recordings by file or id, or say --all", Exit.USAGE)
    if not every:
        return [find(library, name) for name in names]
    found, broken = all_of(library)
    for name, problem in broken:
        fail(f"{name}: {problem}", Exit.RECORDING)
    return found


def _with_policies(settings: Settings, file: Path) -> Settings:
    """The settings with the rules of a file in place of their own."""
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        fail(f"{file}: cannot be read: {error.strerror}", Exit.CONFIGURATION)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{file}: not valid TOML: {error}", Exit.CONFIGURATION)
    others = sorted(set(values) - {"policies"})
    if others or "policies" not in values:
        what = f"has {', '.join(others)}" if others else "has none"
        fail(
            f"{file}: holds [[policies]] and nothing else; it {what}. For other settings use "
            "--config",
            Exit.CONFIGURATION,
        )
    try:
        changed = Settings.model_validate({**dict(settings), "policies": values["policies"]})
        Policy(changed.auth, changed.policies)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            print_error(f"{file}: {'.'.join(map(str, detail['loc']))}: {detail['msg']}")
        raise typer.Exit(Exit.CONFIGURATION) from None
    except ValueError as error:
        fail(f"{file}: {error}", Exit.CONFIGURATION)
    return changed


async def _replay(
    settings: Settings,
    recordings: list[Recording],
    *,
    now: bool,
    ignored: list[str],
    allow_effects: bool,
) -> list[Replayed]:
    instant = time.time()
    service = Service(settings, pages=False, log_problems=False, replays_at=lambda: instant)
    try:
        await service.start()
    except FileNotFoundError as error:
        fail(str(error), Exit.TOOLS)
    replayer = Replayer(
        service.call_tool,
        lambda: service.registry.catalog,
        allow_effects=allow_effects,
        ignored=ignored,
    )
    replayed = []
    try:
        for problem in service.registry.problems:
            if problem.severity == "error":
                print_error(str(problem))
        for recording in recordings:
            instant = time.time() if now else recording.called_at.timestamp()
            replayed.append(await replayer.replay(recording, instant))
    finally:
        await service.stop()
    return replayed


def _failures(heard: io.TextIOWrapper) -> dict[str, str]:
    """What the log says of failures, by error id: the exception, and where it was raised."""
    heard.flush()
    buffer = heard.buffer
    assert isinstance(buffer, io.BytesIO)
    found = {}
    for line in buffer.getvalue().splitlines():
        event = orjson.loads(line)
        if "error_id" in event:
            trace = event.get("exception", "").strip().splitlines()
            places = [each.strip() for each in trace if each.lstrip().startswith("File ")]
            place = places[-1].partition(", in ")[0] if places else ""
            found[event["error_id"]] = f"{trace[-1] if trace else event.get('error')} ({place})"
    return found


def _outcome(ended: Ended | None) -> str:
    return "not run" if ended is None else ended.outcome


def _notes(replayed: Replayed, failures: dict[str, str]) -> list[str]:
    now = replayed.now
    failure = failures.get(now.error_id or "") if now is not None else None
    return [*replayed.notes, *([failure] if failure else [])]


def _as_json(replayed: Replayed, failures: dict[str, str]) -> dict[str, Any]:
    recording = replayed.recording
    return {
        "id": recording.id,
        "tool": recording.request.tool,
        "called_at": recording.called_at.isoformat(),
        "verdict": replayed.verdict.value,
        "recorded": recording.outcome,
        "replayed": _outcome(replayed.now),
        "notes": _notes(replayed, failures),
        "diff": replayed.diff,
    }


def _print(replayed: list[Replayed], failures: dict[str, str]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Recording", "Tool", "Recorded", "Replayed", "Verdict"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "Tool")
    for each in replayed:
        colour = _COLOURS[each.verdict]
        table.add_row(
            each.recording.id,
            escape(each.recording.request.tool),
            each.recording.outcome,
            _outcome(each.now),
            f"[{colour}]{each.verdict}[/{colour}]",
        )
    out.print(table)
    for each in replayed:
        notes = _notes(each, failures)
        if notes or each.diff:
            out.print(f"[bold]{each.recording.id}[/bold] {escape(each.recording.request.tool)}")
            for note in notes:
                out.print(Text(f"  {note}"), soft_wrap=True)
            _print_diff(each.diff)
            out.print()
    counts = Counter(each.verdict for each in replayed)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    out.print(f"{len(replayed)} replayed: {said}" if replayed else "There is nothing to replay.")


def _print_diff(diff: str) -> None:
    lines = diff.split("\n") if diff else []
    for line in lines[:MAX_DIFF_LINES]:
        out.print(Text(f"  {line}", _DIFF_COLOURS.get(line[:1], "")), soft_wrap=True)
    if len(lines) > MAX_DIFF_LINES:
        out.print(f"  ... {len(lines) - MAX_DIFF_LINES} more lines: --json has them")
