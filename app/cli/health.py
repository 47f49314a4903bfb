"""``health``: ask a running server whether it is ready; for container health checks."""

import json
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from app.cli.exits import Exit
from app.cli.options import ConfigOption, fail, load_or_exit, out, ways_in

MOST_BYTES: Final = 65_536


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
        hosts, port = ways_in(server.host), server.port
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
                response = connection.getresponse()
                status, body = response.status, response.read(MOST_BYTES)
        except (OSError, HTTPException) as error:
            reason = f"{host}:{port}: {error}"
            continue
        if status == HTTPStatus.OK:
            out.print("ready")
            return
        reason = f"{host}:{port} answered {status}{_reasons(body)}"
    fail(f"not ready: {reason} (--url asks another address)", Exit.PROBLEMS)


def _reasons(body: bytes) -> str:
    """What the server says about it, if it is one of ours."""
    try:
        reasons = json.loads(body)["reasons"]
    except (ValueError, LookupError, TypeError):
        return ""
    texts = [text for text in reasons if isinstance(text, str)] if isinstance(reasons, list) else []
    return f": {' '.join(texts)}" if texts else ""
