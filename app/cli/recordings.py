"""``recordings``: what the server has kept of calls."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from app.cli.exits import Exit
from app.cli.options import ConfigOption, JsonOption, fail, load_or_exit, out, print_error
from app.protocol.jsonrpc import loads_encoded
from app.recording.comparing import readable
from app.recording.library import Library
from app.recording.recording import Recording, Unusable, encode
from app.recording.wiring import folder_of, library_of
from app.settings import Settings

recordings = typer.Typer(
    name="recordings",
    help="List, show and export what the server has kept of calls.",
    no_args_is_help=True,
)

IdArgument = Annotated[str, typer.Argument(help="Id of a recording, or how it begins")]


@recordings.command("list")
def list_(
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what is kept, oldest first. Exit code 10 if one of them cannot be opened."""
    library = library_of(load_or_exit(config, {}))
    found, broken = all_of(library)
    found = [each for each in found if tool in (None, each.request.tool)]
    if as_json:
        typer.echo(json.dumps([_as_json(each) for each in found], indent=2))
    else:
        _print(found)
    for name, problem in broken:
        print_error(f"{name}: {problem}")
    raise typer.Exit(Exit.RECORDING if broken else Exit.OK)


@recordings.command()
def show(id: IdArgument, config: ConfigOption = None) -> None:
    """Print one, as JSON."""
    typer.echo(_whole(find(library_of(load_or_exit(config, {})), id)))


@recordings.command()
def export(
    id: IdArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write (default: ID.json)")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write one to a plain file that can be taken elsewhere and replayed there."""
    recording = find(library_of(load_or_exit(config, {})), id)
    path = output or Path(f"{recording.id}.json")
    try:
        # A new file, for this user alone: nothing is overwritten, no link is followed.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_whole(recording) + "\n")
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}", Exit.RECORDING)
    typer.echo(f"Written to {path}: not encrypted. {contents(recording)}", err=True)


def prepare_directory(settings: Settings) -> None:
    """The directory of recordings, ready to be written; or the reason, and exit code 4."""
    folder = folder_of(settings)
    if folder is not None:
        try:
            folder.prepare()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            fail(
                f"[recording] directory {folder.path} cannot be used: {reason}",
                Exit.CONFIGURATION,
            )


def find(library: Library, name: str) -> Recording:
    """A recording by id or file; or the reason, and exit code 10."""
    try:
        return library.find(name)
    except Unusable as error:
        fail(f"{name}: {error}", Exit.RECORDING)


def contents(recording: Recording) -> str:
    """A sentence about what is in a plain file."""
    masked = ", ".join(recording.redaction.masked)
    looked = ", ".join(recording.redaction.kinds)
    return (
        "It says who called what, with which arguments, and what came of it. "
        f"Looked for and masked: {looked}; found in: {masked or 'nothing'}. "
        "What no pattern knows is in it as it was: hand it on only to who may see that."
    )


def _whole(recording: Recording) -> str:
    return readable(loads_encoded(encode(recording)))


def all_of(library: Library) -> tuple[list[Recording], list[tuple[str, Unusable]]]:
    """All that can be used, oldest first, and the names of files that cannot, with the reasons."""
    found: list[Recording] = []
    broken: list[tuple[str, Unusable]] = []
    try:
        for entry, opened in library.opened():
            if isinstance(opened, Unusable):
                broken.append((entry.name, opened))
            else:
                found.append(opened)
    except Unusable as error:
        fail(str(error), Exit.RECORDING)
    return found, broken


def _as_json(recording: Recording) -> dict[str, Any]:
    whole: dict[str, Any] = orjson.loads(encode(recording))
    names = ("id", "called_at", "release", "outcome", "duration_ms", "omitted")
    caller = {name: whole["caller"][name] for name in ("issuer", "subject", "tenant")}
    masked = list(recording.redaction.masked)
    return {
        "tool": recording.request.tool,
        **{name: whole[name] for name in names},
        "caller": caller,
        "masked": masked,
    }


def _print(found: list[Recording]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Recording", "Called at", "Tool", "Outcome", "Caller"):
        is_ours = heading in ("Recording", "Called at", "Outcome")
        table.add_column(heading, overflow="fold", no_wrap=is_ours)
    for each in found:
        table.add_row(
            each.id,
            f"{each.called_at:%Y-%m-%d %H:%MZ}",
            escape(each.request.tool),
            each.outcome,
            escape(each.caller.subject or "anonymous"),
        )
    out.print(table)
    out.print(f"{len(found)} recording(s)")
