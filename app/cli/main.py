"""The commands and what they share."""

import typer

from app.cli.call import call
from app.cli.check import check, tools
from app.cli.health import health
from app.cli.serve import serve
from app.server import server_version

app = typer.Typer(
    name="mcp-tool-server",
    help="Serve typed Python functions as MCP tools over HTTP.",
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
    """Serve typed Python functions as MCP tools over HTTP."""


for command in (serve, check, tools, call, health):
    app.command()(command)


def main() -> None:
    """Entry point of the console script."""
    app()
