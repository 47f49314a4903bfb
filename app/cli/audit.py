"""``audit``: whether the record can be trusted, and what is in it."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from app.audit.audit import CHAIN_PURPOSE, DIGEST_PURPOSE, AuditUnusable
from app.audit.audit import check as check_audit
from app.audit.chain import Hasher, key_id
from app.audit.reading import Record, Wanted, instant_of, located, records
from app.audit.verifying import Report, Verifier
from app.cli.exits import Exit
from app.cli.options import ConfigOption, JsonOption, errors, fail, load_or_exit, out
from app.protocol.jsonrpc import canonical
from app.protocol.sealed import KeyRing
from app.settings import Settings

_OUTCOMES: Final = (
    *("ok", "input_required", "tool_error", "denied", "limited", "timeout", "cancelled"),
    *("protocol_error", "internal_error"),
)

audit = typer.Typer(
    name="audit", help="Verify the audit record, and search it.", no_args_is_help=True
)

PathArgument = Annotated[
    Path | None,
    typer.Argument(help="A folder or a file of a record (default: [audit] directory)"),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="From this instant: 2026-12-24, 2026-12-24T18:00Z, 30m, 12h, 7d"),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Up to this instant, likewise")]

_ENDINGS: Final = {
    "closed": "closed in order",
    "open": "no closing record: it is written now, was killed, or its end was cut off",
    "torn": "ends in the middle of a line, as after kill -9 or a full disk",
}


@audit.command()
def verify(
    path: PathArgument = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Find records that were changed, removed, moved or repeated; exit code 1 if any was.

    The keys come from [secrets] keys. Keep the head hashes elsewhere: they show later whether an
    end was cut off.
    """
    settings = load_or_exit(config, {})
    place = _place(path, settings)
    keys = _keys(settings, CHAIN_PURPOSE)
    verifier = Verifier({key_id(key): key for key in keys}, demands_key=bool(keys))
    try:
        directory, parts = located(place)
        report = verifier.verify(directory, parts, is_whole=place.is_dir())
    except (OSError, ValueError) as error:
        fail(f"the record cannot be read: {error}", Exit.CONFIGURATION)
    if as_json:
        typer.echo(json.dumps(_as_json(report), indent=2))
    else:
        _print(report)
    raise typer.Exit(Exit.PROBLEMS if report.findings else Exit.OK)


@audit.command()
def search(
    path: PathArgument = None,
    since: SinceOption = None,
    until: UntilOption = None,
    principal: Annotated[
        str | None,
        typer.Option(help="A subject, `ISSUER SUBJECT`, a tenant, or the id of a credential"),
    ] = None,
    tool: Annotated[str | None, typer.Option(help="The name of a tool")] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(_OUTCOMES[:-1])} or {_OUTCOMES[-1]}"),
    ] = None,
    arguments: Annotated[
        str | None,
        typer.Option(help="With these arguments, a JSON object; - reads it from standard input"),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show calls in the order of time. With --json one record a line."""
    if outcome is not None and outcome not in _OUTCOMES:
        raise typer.BadParameter(f"{outcome} is no outcome; there are {', '.join(_OUTCOMES)}")
    settings = load_or_exit(config, {})
    digest = None if arguments is None else _digest(arguments, settings)
    wanted = Wanted(instant(since), instant(until), principal, tool, outcome, digest)
    found = (record for record in read(path, settings) if wanted.matches(record))
    if as_json:
        for record in found:
            typer.echo(json.dumps(record, ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Time", no_wrap=True)
    for name in ("Caller", "Address", "Tool", "Rule", "Outcome"):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right")
    for record in found:
        is_intent = record["kind"] == "intent"
        table.add_row(
            escape(str(record["time"])[:19].replace("T", " ")),
            escape(caller_of(record)),
            _shown(record, "address"),
            _shown(record, "tool"),
            _shown(record, "rule"),
            "(intent)" if is_intent else _shown(record, "outcome"),
            "" if is_intent else f"{record.get('duration_ms', 0):.1f}",
        )
    out.print(table)


def check_audit_or_exit(settings: Settings) -> None:
    """Before anything is served: can calls be put on record?"""
    try:
        check_audit(settings)
    except AuditUnusable as error:
        fail(str(error), Exit.CONFIGURATION)


def caller_of(record: Record) -> str:
    """Who called, for people."""
    subject, tenant = record.get("subject"), record.get("tenant")
    if subject is None:
        return "-"
    return f"{subject} ({tenant})" if tenant is not None else str(subject)


def _place(path: Path | None, settings: Settings) -> Path:
    place = path or settings.audit.directory
    if place is None:
        fail("name a folder or a file, or set [audit] directory", Exit.USAGE)
    return place


def read(path: Path | None, settings: Settings) -> Iterator[Record]:
    """All records of calls that a command is about."""
    bad: list[str] = []
    try:
        yield from records(
            _place(path, settings), lambda file, line: bad.append(f"{file}, line {line}")
        )
    except (OSError, ValueError) as error:
        fail(f"the record cannot be read: {error}", Exit.CONFIGURATION)
    if bad:
        errors.print(
            f"{len(bad)} line(s) are no records, the first {bad[0]}; see `audit verify`.",
            soft_wrap=True,
        )


def instant(text: str | None) -> str | None:
    """An instant of the command line, as records have it."""
    if text is None:
        return None
    try:
        return instant_of(text, datetime.now(UTC))
    except ValueError:
        raise typer.BadParameter(
            f"{text} is no instant; write 2026-12-24, 2026-12-24T18:00Z, or 30m, 12h, 7d ago"
        ) from None


def _keys(settings: Settings, purpose: str) -> tuple[bytes, ...]:
    configured = settings.secrets.encoded
    return KeyRing(configured).derived(purpose) if configured else ()


def _digest(text: str, settings: Settings) -> str:
    """Of arguments, by the newest key."""
    keys = _keys(settings, DIGEST_PURPOSE)
    if not keys:
        fail("--arguments needs the [secrets] keys that the record was made with", Exit.USAGE)
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError:
        raise typer.BadParameter("--arguments must be a JSON object") from None
    return Hasher(keys[0]).hex(canonical(value)).decode()


def _shown(record: Record, name: str) -> str:
    value = record.get(name)
    return "-" if value is None else escape(str(value))


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "ok": not report.findings,
        "files": report.files,
        "records": report.records,
        "lost": report.lost,
        "writers": [
            {
                "writer": writer,
                "seq": seq,
                "head": head,
                "ending": report.endings[writer],
                "keyed": writer in report.keyed,
            }
            for writer, (seq, head) in sorted(report.heads.items())
        ],
        "torn": [{"file": file, "bytes": size} for file, size in sorted(report.torn.items())],
        "findings": [finding._asdict() for finding in report.findings],
    }


def _print(report: Report) -> None:
    for finding in report.findings:
        where = f"{finding.file}:{finding.line}" if finding.line else finding.file
        out.print(f"[red]error[/red] {escape(where)}: {escape(finding.text)}", soft_wrap=True)
    for file, size in sorted(report.torn.items()):
        text = f"{file}: its last line was not finished ({size} bytes); what is before it holds"
        out.print(f"[yellow]torn[/yellow] {escape(text)}", soft_wrap=True)
    for writer, (seq, head) in sorted(report.heads.items()):
        kind = "keyed" if writer in report.keyed else "without a key"
        out.print(f"{escape(writer)}  {seq} records, {kind}, {_ENDINGS[report.endings[writer]]}")
        out.print(f"  head {head}", soft_wrap=True)
    if report.lost:
        out.print(f"{report.lost} record(s) could not be written; gap records say when.")
    problems = f"[red]{len(report.findings)} problem(s)[/red]" if report.findings else "no problem"
    out.print(f"{report.files} file(s), {report.records} record(s): {problems}")
