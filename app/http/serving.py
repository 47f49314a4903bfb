"""Runs the application under uvicorn: bounded connections, a graceful end, exit code 0."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import structlog
import uvicorn

from app.http.connection import SWEEP_S, Connection, bounded
from app.settings import ServerSettings

TICKS_PER_SWEEP: Final = int(SWEEP_S / 0.1)  # uvicorn ticks ten times a second
CLOSE_SLACK_S: Final = 2.0

log = structlog.get_logger()


class Server(uvicorn.Server):
    """uvicorn's server, telling the application before connections are closed.

    Args:
        on_drain: Called first thing on SIGTERM.
        on_listening: Called with the bound host and port once requests are served.
        heeds_signals: Whether SIGTERM and SIGINT end it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_drain: Callable[[], None],
        on_listening: Callable[[str, int], None],
        heeds_signals: bool = True,
    ) -> None:
        super().__init__(config)
        self._heeds_signals = heeds_signals
        self._on_drain = on_drain
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_listening(host, port)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_SWEEP == 0:
            self._sweep()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again when it is done, which would make the exit code -15.
        if not self._heeds_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _sweep(self) -> None:
        connections = [c for c in self.server_state.connections if isinstance(c, Connection)]
        if connections:
            now = connections[0].loop.time()
            for connection in connections:
                connection.check_deadlines(now)


def make_server(
    app: Any,
    settings: ServerSettings,
    *,
    on_drain: Callable[[], None],
    on_listening: Callable[[str, int], None],
    is_main: bool = True,
) -> Server:
    """A server for an application. The parser and the loop are pinned: with the pure Python
    ones a request costs several times as much.

    Args:
        is_main: False for one beside the server of the process: it heeds no signals, and its
            application has no lifespan.
    """
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded(
            max_header_bytes=settings.max_header_bytes,
            request_timeout_s=settings.request_timeout_s,
        ),
        ws="none",
        lifespan="on" if is_main else "off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # a float will do
        timeout_graceful_shutdown=settings.shutdown_grace_s + CLOSE_SLACK_S,  # type: ignore[arg-type]
        backlog=4096,
    )
    return Server(config, on_drain=on_drain, on_listening=on_listening, heeds_signals=is_main)


def bind(settings: ServerSettings) -> socket.socket:
    """A listening socket, bound here so that every worker can share it.

    Raises:
        OSError: The address is taken or not of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host.strip("[]"), settings.port))
        listener.listen(4096)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
