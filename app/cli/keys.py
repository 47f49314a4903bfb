"""``keys``: API keys of this server's own."""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from app.auth.api_keys import hash_key, is_key, make_key, read_api_keys
from app.auth.problems import UnusableFile
from app.cli.exits import Exit
from app.settings import ApiKeySettings

keys = typer.Typer(
    name="keys", help="Make API keys, and hash them for the configuration.", no_args_is_help=True
)

_MODE = 0o644
"""It holds hashes, of keys that nobody can guess; a container reads it as another user."""


@keys.command()
def create(
    id: Annotated[
        str,
        typer.Option("--id", help="Its name: lower-case letters, digits and hyphens; no secret"),
    ],
    scope: Annotated[
        list[str] | None, typer.Option(help="A scope that it grants; may be repeated")
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option(help="A role of who holds it; may be repeated")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The organisation it acts for")] = None,
    clearance: Annotated[
        str | None, typer.Option(help="One of the clearances of the configuration")
    ] = None,
    approval: Annotated[
        list[str] | None, typer.Option(help="An approval that it carries; may be repeated")
    ] = None,
    expires_in_days: Annotated[
        int | None,
        typer.Option(min=1, max=36_500, help="It is refused after so many days (default: never)"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Append it, hashed, to this file for auth.api_keys_file"),
    ] = None,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="For an administrator: with --file, for admin.keys_file"),
    ] = False,
) -> None:
    """Make a key and show it, once: the first line on standard output.

    The server keeps only its hash, in a table that follows on standard output.

    With --file the table is appended there instead.
    """
    key = make_key(id)
    expires_at = None
    if expires_in_days is not None:
        now = datetime.now(UTC).replace(microsecond=0)
        expires_at = now + timedelta(days=expires_in_days)
    try:
        settings = ApiKeySettings(
            id=id,
            hash=hash_key(key),
            scopes=tuple(scope or ()),
            roles=tuple(role or ()),
            tenant=tenant,
            clearance=clearance,
            approvals=tuple(approval or ()),
            expires_at=expires_at,
        )
    except ValidationError as error:
        raise typer.BadParameter(_what_is_wrong(error)) from None
    if admin and settings.has_grants:
        raise typer.BadParameter("--admin takes no scopes, roles, tenant, clearance or approvals")
    if file is None:
        typer.echo(key)
        typer.echo("\n" + table(settings, "admin.keys" if admin else "auth.api_keys"))
        typer.echo("The key is shown once. Put the table into config.toml.", err=True)
        return
    _append(file, settings)
    typer.echo(key)
    typer.echo(
        f"The key is shown once. It was appended, hashed, to {file}, which "
        f"{'[admin] keys_file' if admin else '[auth] api_keys_file'} can name.",
        err=True,
    )


@keys.command("hash")
def hash_() -> None:
    """Read a key from standard input and print its hash, as `hash` of an API key holds it."""
    text = sys.stdin.read(4096).strip()
    if not is_key(text.encode("utf-8", "replace")):
        raise typer.BadParameter("standard input is no API key: mts_ID_ and 43 characters")
    typer.echo(hash_key(text))


def table(key: ApiKeySettings, name: str) -> str:
    """A key as a TOML table; what it does not have is left out."""
    lines = [f"[[{name}]]", f"id = {_toml(key.id)}", f"hash = {_toml(key.hash)}"]
    lists = {"scopes": key.scopes, "roles": key.roles, "approvals": key.approvals}
    texts = {"tenant": key.tenant, "clearance": key.clearance}
    lines += [
        f"{field} = [{', '.join(_toml(each) for each in values)}]"
        for field, values in lists.items()
        if values
    ]
    lines += [f"{field} = {_toml(text)}" for field, text in texts.items() if text is not None]
    if key.expires_at is not None:
        lines.append(f"expires_at = {key.expires_at.isoformat().replace('+00:00', 'Z')}")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which JSON does not escape.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _append(file: Path, key: ApiKeySettings) -> None:
    try:
        there = read_api_keys(file) if file.exists() else ()
        if any(other.id == key.id for other in there):
            raise typer.BadParameter(f"{file} has a key {key.id!r} already; choose another --id")
        text = table(key, "api_keys")
        if file.exists() and file.stat().st_size:
            text = "\n" + text  # its last line may have no end
        # One write, so that a server that watches the file never reads half a table.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        try:
            os.write(descriptor, text.encode("utf-8"))
        finally:
            os.close(descriptor)
    except UnusableFile as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.CONFIGURATION) from None
    except OSError as error:
        typer.echo(f"{file}: cannot be written: {error.strerror}", err=True)
        raise typer.Exit(Exit.CONFIGURATION) from None


def _what_is_wrong(error: ValidationError) -> str:
    options = {"scopes": "--scope", "roles": "--role", "approvals": "--approval"}
    detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = str(detail["loc"][0])
    if field == "id":
        return "--id must be 1 to 32 lower-case letters, digits and hyphens, such as ci-bot"
    if field == "scopes":
        return "--scope must be a scope without spaces, quotes and backslashes"
    return f"{options.get(field, '--' + field)}: {detail['msg']}"
