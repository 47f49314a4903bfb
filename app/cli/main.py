"""The commands and what they share."""

import sys

import typer

from app.cli.health import health
from app.version import server_version

app = typer.Typer(
    name="mcp-tool-server",
    help="Serve typed Python functions as MCP tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"mcp-tool-server {server_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version"
    ),
) -> None:
    """Serve typed Python functions as MCP tools."""


app.command()(health)


def add_all_commands() -> typer.Typer:
    """The command line with every command."""
    # Here, because a health check runs every few seconds and must not load the whole server.
    from app.cli.admin import admin  # noqa: PLC0415
    from app.cli.audit import audit  # noqa: PLC0415
    from app.cli.call import call  # noqa: PLC0415
    from app.cli.check import check, tools  # noqa: PLC0415
    from app.cli.explain import explain  # noqa: PLC0415
    from app.cli.keys import keys  # noqa: PLC0415
    from app.cli.recordings import recordings  # noqa: PLC0415
    from app.cli.replay import replay  # noqa: PLC0415
    from app.cli.serve import serve  # noqa: PLC0415
    from app.cli.stats import stats  # noqa: PLC0415
    from app.cli.stdio import stdio  # noqa: PLC0415

    if len(app.registered_commands) == 1:
        for command in (serve, stdio, check, tools, call, explain, stats, replay):
            app.command()(command)
        app.add_typer(keys)
        app.add_typer(recordings)
        app.add_typer(admin)
        app.add_typer(audit)
        app.registered_commands.append(app.registered_commands.pop(0))  # health comes last
    return app


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] != ["health"]:
        add_all_commands()
    app()
