"""``health``: ask a running server whether it is ready; for container health checks."""

from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Annotated
from urllib.parse import urlsplit

import typer

from app.cli.exits import Exit
from app.cli.options import ConfigOption, fail, load_or_exit, out


def health(
    config: ConfigOption = None,
    url: Annotated[
        str | None, typer.Option(help="Base URL of the server (default: as configured)")
    ] = None,
    timeout_s: Annotated[float, typer.Option(help="Seconds to wait")] = 3.0,
) -> None:
    """Exit with 0 if the server answers that it is ready, else with 1."""
    if url is None:
        server = load_or_exit(config, {}).server
        # The addresses that mean "every address" are reached through loopback.
        hosts = {"0.0.0.0": ["127.0.0.1"], "::": ["::1", "127.0.0.1"]}.get(  # noqa: S104  # no bind
            server.host, [server.host]
        )
        port = server.port
    else:
        parts = urlsplit(url)
        if parts.hostname is None:
            fail("--url must be a URL such as http://127.0.0.1:8000", Exit.USAGE)
        hosts, port = [parts.hostname], parts.port or 80
    reason = ""
    for host in hosts:
        try:
            with closing(HTTPConnection(host, port, timeout=timeout_s)) as connection:
                connection.request("GET", "/readyz")
                status = connection.getresponse().status
        except OSError as error:
            reason = f"{host}:{port}: {error}"
            continue
        if status == HTTPStatus.OK:
            out.print("ready")
            return
        reason = f"{host}:{port} answered {status}"
    fail(f"not ready: {reason} (--url asks another address)", Exit.PROBLEMS)
