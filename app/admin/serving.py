"""Runs the administrative listener beside the server of the process, in the same loop."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from app.admin.access import Access
from app.admin.listener import Listener
from app.admin.operations import Console, Operations
from app.http.gate import Gate
from app.http.serving import bind, make_server
from app.observability.exposition import Exposition
from app.settings import AdminSettings, ServerSettings

MAX_BODY_BYTES: Final = 64 * 1024
MAX_HEADER_BYTES: Final = 16 * 1024
GRACE_S: Final = 1.0
STOP_S: Final = 5.0

log = structlog.get_logger()


def bind_admin(settings: AdminSettings) -> socket.socket | None:
    """The listening socket; None where there is to be none.

    Raises:
        OSError: The address is taken or not of this machine.
    """
    return None if settings.port is None else bind(_server_settings(settings))


@asynccontextmanager
async def administration(
    console: Console,
    settings: AdminSettings,
    listener: socket.socket | None,
    metrics: Exposition,
) -> AsyncIterator[None]:
    """Serve administrators while the body runs; nobody where there is no socket."""
    if listener is None:
        yield
        return
    own = _server_settings(settings)
    gate = Gate(own, section="admin")
    app = Listener(Operations(console), gate, Access(gate, console.administrators), metrics)
    server = make_server(app, own, on_listening=_listening, heeds_signals=False)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="administrative listener")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait({task}, timeout=STOP_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _listening(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    log.info("administration_listening", url=f"http://{shown}:{port}", pid=os.getpid())


def _server_settings(settings: AdminSettings) -> ServerSettings:
    return ServerSettings(
        host=settings.host,
        port=settings.port or 0,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=MAX_BODY_BYTES,
        max_header_bytes=MAX_HEADER_BYTES,
        shutdown_grace_s=GRACE_S,
    )
