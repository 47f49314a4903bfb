"""``serve``: run the server, in one process or several."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import structlog
import typer
import uvloop

from app.cli.exits import Exit
from app.cli.options import (
    ConfigOption,
    ToolsOption,
    config_file,
    fail,
    load_or_exit,
    tool_flags,
)
from app.guards.redaction import Redactor
from app.http.serving import bind, make_server
from app.observability.logs import configure_logging, flush_event_logs
from app.server import create_app
from app.settings import Settings

log = structlog.get_logger()
RESTART_PAUSE_S: Final = 1.0
SWITCH_INTERVAL_S: Final = 0.001
LAST_WAIT_S: Final = 1.0


def serve(
    config: ConfigOption = None,
    tools: ToolsOption = None,
    host: Annotated[str | None, typer.Option(help="Address to bind")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 picks a free one")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port")] = 1,
    reload: Annotated[
        bool | None, typer.Option("--reload/--no-reload", help="Notice changes of tools")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="Form of log lines: auto, json or pretty")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="Mildest level: debug, info, warning or error")
    ] = None,
) -> None:
    """Serve the tools over HTTP until SIGTERM or Ctrl+C."""
    flags = tool_flags(tools, host=host, port=port)
    if reload is not None:
        flags.setdefault("tools", {})["reload"] = reload
    for key, value in (("format", log_format), ("level", log_level)):
        if value is not None:
            flags.setdefault("logging", {})[key] = value
    settings = load_or_exit(config, flags)
    if workers > 1 and not settings.secrets.keys:
        fail(
            "--workers above 1 needs [secrets] keys: a cursor that one worker signs must be "
            "readable by the next; make one with `openssl rand -base64 32`",
            Exit.CONFIGURATION,
        )
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
    _start_log(settings)
    # Threads load modules and run tools; the event loop must get its turn among them soon.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
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
    _run_to_the_end(server.serve(sockets=[listener]))


def _start_log(settings: Settings) -> None:
    logging_ = settings.logging
    redact = None
    if logging_.redact:
        redact = Redactor(logging_.redact, locales=logging_.locales).data
    configure_logging(logging_.level, logging_.format, redact=redact)


def _run_to_the_end(serving: Coroutine[Any, Any, None]) -> NoReturn:
    """Run the server; then end the process, whatever its tools are doing.

    ``asyncio.run`` would wait for a task that swallows its cancellation, and the interpreter for
    a thread that never ends.
    """
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    main = loop.create_task(serving)
    code: Any = Exit.OK
    while not main.done():
        try:
            loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as error:
            # Raised in any task, these two stop the loop. Only the server itself may end it.
            if not main.done():
                log.exception("exit_refused", error=type(error).__name__)
            else:
                code = error.code if isinstance(error, SystemExit) else Exit.STARTUP
        except BaseException:  # the end must be reached
            log.exception("server_failed")
            code = Exit.STARTUP
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    left = 0
    if tasks:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_WAIT_S))
            left = len(pending)
    flush_event_logs()
    log.info("stopped", tasks_left_behind=left)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))


def _supervise(
    count: int,
    settings: Settings,
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    listener: socket.socket,
) -> None:
    """Keep several workers running; end them together."""
    _start_log(settings)
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
