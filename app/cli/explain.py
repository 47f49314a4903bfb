"""``explain``: what a caller finds of one tool, and which rule decided."""

import asyncio
import difflib
import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from app.auth.authenticator import Authenticator
from app.auth.caller import Seal
from app.auth.claims import caller_of
from app.auth.problems import Refused
from app.cli.check import load_tools
from app.cli.exits import Exit
from app.cli.options import (
    ConfigOption,
    JsonOption,
    ToolsOption,
    fail,
    load_or_exit,
    out,
    tool_flags,
)
from app.policy.explain import Explanation
from app.policy.explain import explain as explain_access
from app.policy.policy import Policy
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import ProtocolError
from app.protocol.headers import HeaderMap
from app.registry.tool import InvalidArguments, Tool
from app.settings import IssuerSettings, Settings

NO_ISSUER = "https://claims.invalid"
"""Stands for an issuer where none is configured, so that claims can be tried all the same."""

_MARKS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "[yellow]?[/yellow]"}


def explain(
    tool: Annotated[str, typer.Option("--tool", help="The tool, by the name it is served under")],
    token: Annotated[
        str | None, typer.Option(help="Of a caller with this token; - reads it from standard input")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Of the holder of this API key; - reads standard input")
    ] = None,
    claims: Annotated[
        str | None, typer.Option(help="Of a caller whose token had these claims, a JSON object")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="At this instant, as 2026-12-24T18:00+01:00; default: now")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="From this address, for rules about networks")
    ] = None,
    args: Annotated[
        str | None, typer.Option(help="With these arguments, a JSON object, for rules about them")
    ] = None,
    config: ConfigOption = None,
    tools: ToolsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a caller sees a tool and may call it, and which rule decided.

    Without --token, --key and --claims the caller is one who shows no credential. Exit code 0
    if the call would reach the tool, else 1.
    """
    if sum(each is not None for each in (token, key, claims)) > 1:
        fail("--token, --key and --claims are three ways to name one caller; use one", Exit.USAGE)
    settings = load_or_exit(config, tool_flags(tools))
    found = _find(tool, settings)
    principal = _principal(settings, token or key, claims)
    auth = settings.auth
    if principal is ANONYMOUS and not auth.is_open:
        fail(
            "a caller without a credential is refused with 401, whatever the tool: name one by "
            "--token, --key or --claims",
            Exit.PROBLEMS,
        )
    arguments = None if args is None else _arguments(found, args)
    explanation = explain_access(
        Policy(settings.auth, settings.policies),
        found.name,
        found.annotations,
        own=found.own,
        grants=principal.grants,
        now=_instant(at).timestamp(),
        address=from_,
        arguments=arguments,
    )
    if as_json:
        typer.echo(json.dumps(_as_json(found, principal, explanation), indent=2))
    else:
        _print(found, principal, explanation)
    raise typer.Exit(Exit.OK if explanation.succeeds else Exit.PROBLEMS)


def _find(name: str, settings: Settings) -> Tool:
    assembly = load_tools(settings)
    tool = assembly.catalog.tools.get(name)
    if tool is None:
        close = difflib.get_close_matches(name, list(assembly.catalog.tools), n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        fail(f"there is no tool {name!r}{hint}", Exit.PROBLEMS)
    return tool


def _principal(settings: Settings, credential: str | None, claims: str | None) -> Principal:
    if credential is not None:
        text = sys.stdin.readline().strip() if credential == "-" else credential
        try:
            return asyncio.run(_who_shows(text, settings))
        except ProtocolError as error:
            fail(
                f"the credential is refused with {error.http_status}: {error.message}",
                Exit.PROBLEMS,
            )
    if claims is not None:
        given = _object("--claims", claims)
        try:
            return caller_of(given, _issuer_of(given, settings), seal=Seal(), expires_at=None)
        except Refused as refused:
            fail(f"--claims: {refused}", Exit.USAGE)
    return ANONYMOUS


async def _who_shows(credential: str, settings: Settings) -> Principal:
    if not settings.auth.is_configured:
        fail("no [[auth.issuers]] and no [[auth.api_keys]]: credentials are ignored", Exit.PROBLEMS)
    authenticator = Authenticator(settings)
    await authenticator.start()
    try:
        headers = HeaderMap([(b"authorization", b"Bearer " + credential.encode())])
        return await authenticator.authenticate(headers, b"")
    finally:
        await authenticator.stop()


def _issuer_of(claims: dict[str, Any], settings: Settings) -> IssuerSettings:
    """The issuer whose mapping of claims is used: that of `iss`, else the first."""
    issuers = settings.auth.issuers
    for issuer in issuers:
        if issuer.issuer == claims.get("iss"):
            return issuer
    return issuers[0] if issuers else IssuerSettings(issuer=NO_ISSUER)


def _arguments(tool: Tool, text: str) -> dict[str, Any]:
    given = _object("--args", text)
    try:
        prepared, _ = tool.prepare(given)
    except InvalidArguments as error:
        fail(f"--args do not satisfy the tool's own schema: {error}", Exit.PROBLEMS)
    return {**tool.defaults, **prepared}


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        fail(f'{option} must be a JSON object such as \'{{"sub": "alice"}}\'', Exit.USAGE)
    return value


def _instant(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        fail("--at must be an instant such as 2026-12-24T18:00+01:00", Exit.USAGE)
    return instant if instant.tzinfo is not None else instant.astimezone()


def _as_json(tool: Tool, principal: Principal, explanation: Explanation) -> dict[str, Any]:
    return {
        "tool": tool.name,
        "caller": {"issuer": principal.issuer, "subject": principal.subject},
        "visible": explanation.decision.visible,
        "callable": explanation.succeeds,
        "verdict": explanation.verdict,
        "decided_by": explanation.decided_by,
        "rules": [rule._asdict() for rule in explanation.rules],
        "demands": [line._asdict() for line in explanation.lines],
    }


def _print(tool: Tool, principal: Principal, explanation: Explanation) -> None:
    who = "a caller without a credential"
    if principal.issuer is not None:
        who = str(principal.subject)
        if principal.issuer != NO_ISSUER:
            who += f" of {principal.issuer}"
    out.print(f"[bold]{tool.name}[/bold] for {escape(who)}", soft_wrap=True)
    for rule in explanation.rules:
        if rule.decides:
            out.print(f"  {escape(rule.rule)}: decides", soft_wrap=True)
            break
        out.print(f"  {escape(rule.rule)}: is about other tools", soft_wrap=True)
    if explanation.lines:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("Demanded", "Needed", "Has", "Met"):
            table.add_column(heading, overflow="fold")
        for line in explanation.lines:
            table.add_row(
                escape(line.what), escape(line.needed), escape(line.has), _MARKS[line.met]
            )
        out.print(table)
    out.print(f"Verdict: {escape(explanation.verdict)}.", soft_wrap=True)
