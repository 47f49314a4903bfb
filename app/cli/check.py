"""``check`` and ``tools``: what would be served, and what is wrong."""

import asyncio
import json
from typing import Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from app.cli.exits import Exit
from app.cli.options import (
    ConfigOption,
    JsonOption,
    ToolsOption,
    errors,
    fail,
    load_or_exit,
    out,
    tool_flags,
)
from app.configuration import ConfigurationError, Problem, load_settings
from app.execution.processes.trial import problems_of_start
from app.methods.discover import server_messages
from app.observability.logs import configure_logging
from app.registry.assembly import Assembly
from app.registry.once import load_once
from app.registry.tool import definition_of
from app.reloading import check_access
from app.settings import Settings
from app.sharing import check_state

Finding = dict[str, Any]
"""A problem as ``--json`` prints it."""


def check(
    config: ConfigOption = None, tools: ToolsOption = None, as_json: JsonOption = False
) -> None:
    """Load settings and tools and print every problem; exit code 1 if one is an error."""
    findings: list[Finding] = []
    served = 0
    try:
        settings = load_settings(config, flags=tool_flags(tools))
        check_access(settings)
        _check_state(settings)
    except ConfigurationError as error:
        for problem in error.problems:
            message = f"{problem.key}: {problem.message}" if problem.key else problem.message
            findings.append(_finding("error", problem.source, message))
    else:
        if settings.tools.directory.is_dir():
            assembly = load_tools(settings)
            found = assembly.catalog.tools.values()
            failed = asyncio.run(problems_of_start(found, settings))
            lost = {problem.path for problem in failed}
            served = sum(tool.source.path not in lost for tool in found)
            findings += [
                _finding(
                    problem.severity,
                    _shown_path(settings, problem.path),
                    problem.message,
                    line=problem.line,
                    tool=problem.tool,
                )
                for problem in (*assembly.problems, *failed)
            ]
        else:
            missing = f"the tools folder {settings.tools.directory} does not exist"
            findings.append(_finding("error", "configuration", missing))
    broken = any(finding["severity"] == "error" for finding in findings)
    if as_json:
        typer.echo(json.dumps({"ok": not broken, "tools": served, "problems": findings}, indent=2))
    else:
        _print(findings, served)
    raise typer.Exit(Exit.PROBLEMS if broken else Exit.OK)


def tools(
    config: ConfigOption = None, tools: ToolsOption = None, as_json: JsonOption = False
) -> None:
    """List the tools that would be served."""
    settings = load_or_exit(config, tool_flags(tools))
    assembly = load_tools(settings)
    served = list(assembly.catalog.tools.values())
    if as_json:
        typer.echo(json.dumps([definition_of(tool) for tool in served], indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Tool", no_wrap=True, min_width=max((len(t.name) for t in served), default=4))
    table.add_column("Runs in", no_wrap=True)
    table.add_column("Deadline", justify="right", no_wrap=True)
    table.add_column("Arguments", overflow="fold")
    table.add_column("File", overflow="fold")
    for tool in served:
        definition = definition_of(tool)
        schema = definition["inputSchema"]
        required = schema.get("required", [])
        arguments = [
            escape(name) if name in required else f"[dim]{escape(name)}[/dim]"
            for name in schema.get("properties", {})
        ]
        table.add_row(
            f"[bold]{tool.name}[/bold]",
            tool.runs_in,
            f"{tool.timeout_s:g} s",
            ", ".join(arguments),
            escape(_shown_path(settings, tool.source.path)),
        )
    out.print(table)
    broken = [problem for problem in assembly.problems if problem.severity == "error"]
    if broken:
        errors.print(f"{len(broken)} problem(s) keep tools from being served; see `check`.")


def _check_state(settings: Settings) -> None:
    try:
        check_state(settings.state)
    except ValueError as error:
        raise ConfigurationError([Problem("", str(error), "configuration")]) from None


def _finding(
    severity: str, file: str, message: str, *, line: int | None = None, tool: str | None = None
) -> Finding:
    return {"severity": severity, "file": file, "line": line, "tool": tool, "message": message}


def load_tools(settings: Settings) -> Assembly:
    """Everything that would be served; ends the process where there is no folder."""
    # What tool modules log while they load must not mix with what is printed.
    configure_logging("error", settings.logging.format)
    try:
        return load_once(settings, server_messages(settings))
    except FileNotFoundError as error:
        fail(str(error), Exit.TOOLS)


def _shown_path(settings: Settings, path: str) -> str:
    return str(settings.tools.directory / path) if path else "configuration"


def _print(findings: list[Finding], served: int) -> None:
    for finding in findings:
        where = escape(finding["file"] + (f":{finding['line']}" if finding["line"] else ""))
        colour = "red" if finding["severity"] == "error" else "yellow"
        what = f"{finding['tool']}: " if finding["tool"] else ""
        errors.print(f"{where}: [{colour}]{finding['severity']}[/{colour}]: ", end="")
        errors.print(f"{what}{finding['message']}", markup=False, soft_wrap=True)
    count = sum(finding["severity"] == "error" for finding in findings)
    out.print(f"{served} tool(s), {count} error(s), {len(findings) - count} warning(s)")
