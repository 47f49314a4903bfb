"""Options that several commands share, and what they load."""

import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.exits import Exit
from app.configuration import DEFAULT_FILE, ConfigurationError, load_settings
from app.reloading import check_access
from app.settings import Settings

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file (default: config.toml if present)"),
]
ToolsOption = Annotated[
    Path | None, typer.Option("--tools", "-t", help="Folder of the tools (default: tools)")
]
ReloadOption = Annotated[
    bool | None, typer.Option("--reload/--no-reload", help="Notice changes of tools")
]
LogFormatOption = Annotated[
    str | None, typer.Option(help="Form of log lines: auto, json or pretty")
]
LogLevelOption = Annotated[
    str | None, typer.Option(help="Mildest level: debug, info, warning or error")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs")]

errors = Console(stderr=True, highlight=False)
out = Console(highlight=False)
if not out.is_terminal and "COLUMNS" not in os.environ:
    out.width = 200  # a file or another program has no width that tables should be folded into


def config_file(config: Path | None) -> Path | None:
    """The file that is read: the given one, or the default where there is one."""
    if config is not None:
        return config
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def tool_flags(tools: Path | None, **server: Any) -> dict[str, dict[str, Any]]:
    """Command line values by section; None means not given."""
    flags: dict[str, dict[str, Any]] = {
        "server": {key: value for key, value in server.items() if value is not None}
    }
    if tools is not None:
        flags["tools"] = {"directory": str(tools)}
    return {section: keys for section, keys in flags.items() if keys}


def serving_flags(
    tools: Path | None,
    *,
    reload: bool | None,
    log_format: str | None,
    log_level: str | None,
    **server: Any,
) -> dict[str, dict[str, Any]]:
    """As ``tool_flags``, with those of the commands that serve."""
    flags = tool_flags(tools, **server)
    if reload is not None:
        flags.setdefault("tools", {})["reload"] = reload
    for key, value in (("format", log_format), ("level", log_level)):
        if value is not None:
            flags.setdefault("logging", {})[key] = value
    return flags


def load_or_exit(config: Path | None, flags: dict[str, dict[str, Any]]) -> Settings:
    """Settings, or every problem on standard error and exit code 4."""
    try:
        settings = load_settings(config, flags=flags)
        check_access(settings)
    except ConfigurationError as error:
        for problem in error.problems:
            print_error(str(problem))
        raise typer.Exit(Exit.CONFIGURATION) from None
    return settings


def ways_in(host: str) -> list[str]:
    """The hosts by which this machine reaches the address that a server was told to bind.

    Those that mean "every address" are reached through loopback.
    """
    every = {"0.0.0.0": ["127.0.0.1"], "::": ["::1", "127.0.0.1"]}  # noqa: S104  # no bind
    return every.get(host, [host])


def print_error(message: str) -> None:
    """One line on standard error; what it says is text, not markup."""
    errors.print(f"[red]error[/red] {escape(message)}", soft_wrap=True)


def fail(message: str, code: Exit) -> NoReturn:
    """Say why, and end with this exit code."""
    print_error(message)
    raise typer.Exit(code)
