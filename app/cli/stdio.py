"""``stdio``: serve the one client that has started this process."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from app.cli.audit import check_audit_or_exit
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
    print_error,
    serving_flags,
)
from app.cli.recordings import prepare_directory
from app.cli.running import run_to_the_end, start_log
from app.methods.discover import server_messages
from app.protocol.errors import ProtocolError, Unauthorized, Unavailable
from app.protocol.headers import HeaderMap
from app.service import Service, tracing_of
from app.settings import Settings
from app.stdio.channel import Channel
from app.stdio.credential import ACCESS_TOKEN, API_KEY, UnusableCredential, take_credential
from app.stdio.descriptors import Streams, take_standard_streams
from app.stdio.door import Door
from app.stdio.older import OlderRevisions
from app.stdio.serving import serve

log = structlog.get_logger()


def stdio(
    config: ConfigOption = None,
    tools: ToolsOption = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with the API key of the caller, in place of the environment"),
    ] = None,
    reload: ReloadOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Serve the tools over standard input and output to the client that has started this.

    Where callers need a credential, the environment holds it: MCP_API_KEY or MCP_ACCESS_TOKEN.
    """
    try:
        streams = take_standard_streams()
    except OSError as error:
        fail(f"cannot serve: {error}", Exit.STARTUP)
    try:
        credential = take_credential(os.environ, api_key_file)
    except UnusableCredential as error:
        fail(str(error), Exit.CREDENTIAL)
    flags = serving_flags(tools, reload=reload, log_format=log_format, log_level=log_level)
    settings = load_or_exit(config, flags)
    if not Path(settings.tools.directory).is_dir():
        fail(f"the tools folder {settings.tools.directory} does not exist", Exit.TOOLS)
    check_audit_or_exit(settings)
    prepare_directory(settings)
    start_log(settings)
    run_to_the_end(_serve(settings, config_file(config), flags, streams, credential))


async def _serve(
    settings: Settings,
    config: Path | None,
    flags: dict[str, dict[str, Any]],
    streams: Streams,
    credential: HeaderMap,
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    service = Service(
        settings, config=config, flags=flags, pages=False, tracing=tracing_of(settings)
    )
    if not await _start(service, stop):
        return
    try:
        await _check_credential(service, credential)
        service.registry.settle()
        log.info("serving_stdio", tools=len(service.registry.catalog.tools), pid=os.getpid())
        max_line_bytes = settings.server.max_body_bytes
        channel = Channel(*streams, max_line_bytes=max_line_bytes)
        older = None
        if settings.legacy.enabled:
            older = OlderRevisions(
                service.legacy, service.hub, channel, credential, observers=service.observers
            )
        door = Door(
            channel,
            service.router,
            service.hub,
            server_messages(settings),
            authenticator=lambda: service.endpoint.authenticator,
            credential=credential,
            max_line_bytes=max_line_bytes,
            legacy=older,
            observers=service.observers,
            spans=service.spans,
        )
        was_read = await serve(channel, door, give_up=service.executor.give_up, stop=stop)
        if older is not None:
            await older.close()
    finally:
        await service.stop()
    if not was_read:
        raise SystemExit(Exit.PROBLEMS)


async def _start(service: Service, stop: asyncio.Event) -> bool:
    """Start, unless a signal comes first: a module or a ``lifespan()`` may take for ever."""
    starting = asyncio.create_task(service.start(), name="start")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    return False


async def _check_credential(service: Service, credential: HeaderMap) -> None:
    """Better no server than one that refuses everything; nobody would know why.

    Raises:
        SystemExit: The credential is refused.
    """
    try:
        await service.endpoint.authenticator.authenticate(credential, b"")
    except Unavailable as error:
        # Nobody can say now. Each request is asked about anew.
        log.warning("credential_unchecked", problem=error.message)
    except Unauthorized as error:
        if credential:
            print_error(f"the credential is refused: {error.message}")
        else:
            print_error(
                f"callers of this server need a credential: set {API_KEY} or {ACCESS_TOKEN} in "
                "the environment, or give --api-key-file"
            )
        raise SystemExit(Exit.CREDENTIAL) from None
    except ProtocolError as error:
        print_error(f"the credential is refused: {error.message}")
        raise SystemExit(Exit.CREDENTIAL) from None
