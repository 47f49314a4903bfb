"""``serve``: run the server, in one process or several."""

import contextlib
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from app.admin.serving import bind_admin
from app.cli.audit import check_audit_or_exit
from app.cli.exits import Exit
from app.cli.init import serve_in_child_of_init
from app.cli.options import (
    ConfigOption,
    LogFormatOption,
    LogLevelOption,
    ReloadOption,
    ToolsOption,
    config_file,
    fail,
    load_or_exit,
    serving_flags,
)
from app.cli.recordings import prepare_directory
from app.cli.running import CLOSING_S, LastResort, run_to_the_end, start_log
from app.cli.supervisor import Supervisor
from app.http.serving import SIGNALS, bind, make_server
from app.membership import new_replica_id
from app.server import create_app
from app.settings import Settings
from app.sharing import check_state

log = structlog.get_logger()
KILL_SLACK_S: Final = 2.0
"""A worker ends itself when its time is over; then it is killed."""


def serve(
    config: ConfigOption = None,
    tools: ToolsOption = None,
    host: Annotated[str | None, typer.Option(help="Address to bind")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 picks a free one")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port")] = 1,
    reload: ReloadOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Serve the tools over HTTP until SIGTERM or Ctrl+C."""
    serve_in_child_of_init()
    flags = serving_flags(
        tools, reload=reload, log_format=log_format, log_level=log_level, host=host, port=port
    )
    settings = load_or_exit(config, flags)
    if workers > 1 and (problem := settings.problem_of_several("--workers above 1")):
        fail(problem, Exit.CONFIGURATION)
    try:
        check_state(settings.state)
    except ValueError as error:
        fail(str(error), Exit.CONFIGURATION)
    folder = Path(settings.tools.directory)
    if not folder.is_dir():
        fail(f"the tools folder {folder} does not exist", Exit.TOOLS)
    if not os.access(folder, os.R_OK | os.X_OK):
        fail(f"the tools folder {folder} may not be read", Exit.TOOLS)
    check_audit_or_exit(settings)
    prepare_directory(settings)
    try:
        listener = bind(settings.server)
    except OSError as error:
        address = f"{settings.server.host}:{settings.server.port}"
        fail(f"cannot listen on {address}: {error.strerror}", Exit.BIND)
    try:
        admin = bind_admin(settings.admin)
    except OSError as error:
        address = f"{settings.admin.host}:{settings.admin.port}"
        fail(f"administrators cannot be listened to on {address}: {error.strerror}", Exit.BIND)
    replica = new_replica_id()
    if workers == 1:
        run_worker(settings, config_file(config), flags, listener, admin, replica)
    else:
        _supervise(workers, settings, config_file(config), flags, listener, admin, replica)


def run_worker(
    settings: Settings,
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    listener: socket.socket,
    admin: socket.socket | None,
    replica: str,
    metrics: Path | None = None,
    says: Connection | None = None,
) -> None:
    """One process that serves. All workers of a replica have its id and its sockets.

    Args:
        replica: Its name in a fleet.
        metrics: Where workers share what they count; None: there are no others.
        says: Where it tells a supervisor that it serves; None: there is no supervisor.
    """
    for number in SIGNALS:  # before the server has its own handlers, and after it has ended
        signal.signal(number, lambda *_: os._exit(Exit.OK))
    if says is not None:
        os.setpgrp()  # Ctrl+C is the supervisor's to hear
        threading.Thread(target=_end_with_supervisor, daemon=True).start()
    start_log(settings, worker_pid=None if says is None else os.getpid())
    app = create_app(
        settings, config=config, flags=flags, replica=replica, admin=admin, metrics=metrics
    )

    def listening(host: str, port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        service = app.service
        log.info(
            "listening",
            url=f"http://{shown}:{port}/mcp",
            public_url=settings.server.public_url,
            tools=len(service.registry.catalog.tools) if service is not None else 0,
            pid=os.getpid(),
            replica=app.replica,
        )
        if says is not None:
            with contextlib.suppress(OSError):
                says.send_bytes(b"serving")
            says.close()

    server = make_server(
        app,
        settings.server,
        on_listening=listening,
        on_signal=LastResort(_end_s(settings)).arm,
        is_supervised=says is not None,
    )
    run_to_the_end(server.serve(sockets=[listener]))


def _end_s(settings: Settings) -> float:
    """Seconds within which a process ends that was asked to."""
    server = settings.server
    return server.drain_window_s + server.shutdown_grace_s + CLOSING_S


def _end_with_supervisor() -> None:
    """However that ended: nobody would replace this process, or pass on that it is to end."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _supervise(
    count: int,
    settings: Settings,
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    listener: socket.socket,
    admin: socket.socket | None,
    replica: str,
) -> None:
    """Several processes that share the port, and this one, which looks after them."""
    start_log(settings)
    context = multiprocessing.get_context("spawn")

    def start() -> tuple[SpawnProcess, Connection]:
        hears, says = context.Pipe(duplex=False)
        with says:
            process = context.Process(
                target=run_worker,
                args=(settings, config, flags, listener, admin, replica, metrics, says),
            )
            process.start()
        return process, hears

    # Theirs go on accepting; with this one open, connections would wait for nobody at the end.
    def close() -> None:
        listener.close()
        if admin is not None:
            admin.close()

    end_s = _end_s(settings) + KILL_SLACK_S
    with contextlib.ExitStack() as stack:
        metrics: Path | None = None
        if admin is not None:
            metrics = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-metrics-")))
        code = Supervisor(count, start, end_s=end_s, on_end=close).run()
    log.info("stopped", exit_code=int(code))
    raise typer.Exit(code)
