"""``serve``: run the server, in one process or several."""

import multiprocessing
import os
import signal
import socket
import threading
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from app.cli.exits import Exit
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
from app.cli.running import run_to_the_end, start_log
from app.http.serving import bind, make_server
from app.server import create_app
from app.settings import Settings
from app.sharing import check_state

log = structlog.get_logger()
RESTART_PAUSE_S: Final = 1.0


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
    if not Path(settings.tools.directory).is_dir():
        fail(f"the tools folder {settings.tools.directory} does not exist", Exit.TOOLS)
    try:
        listener = bind(settings.server)
    except OSError as error:
        address = f"{settings.server.host}:{settings.server.port}"
        fail(f"cannot listen on {address}: {error.strerror}", Exit.BIND)
    if workers == 1:
        run_worker(settings, config_file(config), flags, listener)
    else:
        _supervise(workers, settings, config_file(config), flags, listener)


def run_worker(
    settings: Settings,
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    listener: socket.socket,
) -> None:
    """One process that serves."""
    start_log(settings)
    app = create_app(settings, config=config, flags=flags)

    def listening(host: str, port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        service = app.service
        log.info(
            "listening",
            url=f"http://{shown}:{port}/mcp",
            public_url=settings.server.public_url,
            tools=len(service.registry.catalog.tools) if service is not None else 0,
            pid=os.getpid(),
        )

    server = make_server(app.serve, settings.server, on_drain=app.drain, on_listening=listening)
    run_to_the_end(server.serve(sockets=[listener]))


def _supervise(
    count: int,
    settings: Settings,
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    listener: socket.socket,
) -> None:
    """Keep several workers running; end them together."""
    start_log(settings)
    context = multiprocessing.get_context("spawn")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, lambda *_: stopping.set())

    def start() -> SpawnProcess:
        process = context.Process(target=run_worker, args=(settings, config, flags, listener))
        process.start()
        return process

    workers = [start() for _ in range(count)]
    code = Exit.OK
    while not stopping.wait(RESTART_PAUSE_S):
        for index, worker in enumerate(workers):
            if not worker.is_alive():
                log.error("worker_died", pid=worker.pid, exit_code=worker.exitcode)
                if worker.exitcode == Exit.STARTUP:  # the next one would fail alike
                    code = Exit.STARTUP
                    stopping.set()
                else:
                    workers[index] = start()
    listener.close()
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(settings.server.shutdown_grace_s * 2)
        if worker.is_alive():
            log.error("worker_killed", pid=worker.pid)
            worker.kill()
    raise typer.Exit(code)
