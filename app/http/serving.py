"""Runs the application under uvicorn: bounded connections, a graceful end, exit code 0."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum, auto
from types import FrameType
from typing import Final, Protocol

import structlog
import uvicorn

from app.http.connection import SWEEP_S, Connection, bounded
from app.http.responses import Receive, Scope, Send
from app.settings import ServerSettings

TICKS_PER_SWEEP: Final = int(SWEEP_S / 0.1)  # uvicorn ticks ten times a second
CLOSE_SLACK_S: Final = 2.0

log = structlog.get_logger()


class Phase(Enum):
    """How far the end of the process is."""

    SERVING = auto()
    DRAINING = auto()  # requests are served, while others learn that this server goes
    STOPPING = auto()  # the socket is closed; what runs gets its grace
    FORCED = auto()  # what runs is left


# SIGTERM asks for an orderly end; whoever presses Ctrl+C or closes the terminal is in a hurry.
NEXT: Final[Mapping[tuple[Phase, bool], Phase]] = {
    (Phase.SERVING, True): Phase.DRAINING,
    (Phase.SERVING, False): Phase.STOPPING,
    (Phase.DRAINING, True): Phase.STOPPING,
    (Phase.DRAINING, False): Phase.STOPPING,
    (Phase.STOPPING, True): Phase.STOPPING,
    (Phase.STOPPING, False): Phase.FORCED,
    (Phase.FORCED, True): Phase.FORCED,
    (Phase.FORCED, False): Phase.FORCED,
}
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Served(Protocol):
    """The application, as far as its server has to know it.

    Attributes:
        on_drain: Told when answers become the last ones of their connections, and when no more.
    """

    on_drain: Callable[[bool], None]

    def serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """As of ASGI."""

    def begin_end(self) -> float:
        """The process was asked to end. Returns seconds until the socket should close."""

    def stop(self) -> None:
        """The socket closes now."""


class Server(uvicorn.Server):
    """uvicorn's server with an end in phases.

    Args:
        app: Told of the phases.
        on_listening: Called with the bound host and port once requests are served.
        on_signal: Called in the handler of the first signal.
        is_supervised: Whether a supervisor decides: SIGTERM may then come twice, from it and from
            whoever tells every process of a service to end.
        heeds_signals: Whether SIGTERM and SIGINT end it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: Served,
        *,
        on_listening: Callable[[str, int], None],
        on_signal: Callable[[], None],
        is_supervised: bool,
        heeds_signals: bool = True,
    ) -> None:
        super().__init__(config)
        self._heeds_signals = heeds_signals
        self._app = app
        self._on_listening = on_listening
        self._on_signal = on_signal
        self._is_supervised = is_supervised
        self._phase = Phase.SERVING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_at: float | None = None
        app.on_drain = self.close_after_answers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_listening(host, port)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_SWEEP == 0:
            self._sweep()
        self._drain()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stop()
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn leaves the application as it is then
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's
        is_orderly = sig == signal.SIGTERM
        before = self._phase
        if is_orderly and self._is_supervised and before is not Phase.SERVING:
            return
        self._phase = NEXT[before, is_orderly]
        if before is Phase.SERVING:
            self._on_signal()
        if self._phase is not Phase.DRAINING or not self.started:
            self.should_exit = True
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._drain)  # not at the next tick alone
        self.force_exit = self._phase is Phase.FORCED

    def close_after_answers(self, on: bool) -> None:
        """Say ``connection: close`` with each answer from now on, or no more.

        A client or a proxy that reads it opens its next connection elsewhere, and has none left
        that could break under a request when the socket closes.
        """
        protocol: type[Connection] = self.config.http_protocol_class  # type: ignore[assignment]
        protocol.ends_with_answer = on
        if on:
            for connection in self._connections():
                connection.end_with_answer()

    def _drain(self) -> None:
        """The window: it begins with the signal, and ends with ``should_exit``."""
        if self._phase is Phase.DRAINING and self._loop is not None:
            if self._stop_at is None:
                self._stop_at = self._loop.time() + self._app.begin_end()
            if self._loop.time() >= self._stop_at:
                self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again when it is done, which would make the exit code -15.
        if not self._heeds_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _connections(self) -> list[Connection]:
        return [c for c in self.server_state.connections if isinstance(c, Connection)]

    def _sweep(self) -> None:
        connections = self._connections()
        if connections:
            now = connections[0].loop.time()
            for connection in connections:
                connection.check_deadlines(now)


def make_server(
    app: Served,
    settings: ServerSettings,
    *,
    on_listening: Callable[[str, int], None],
    on_signal: Callable[[], None] = lambda: None,
    is_supervised: bool = False,
    heeds_signals: bool = True,
) -> Server:
    """A server for an application. The parser and the loop are pinned: with the pure Python
    ones a request costs several times as much.

    Args:
        heeds_signals: False for one beside the server of the process.
    """
    config = uvicorn.Config(
        app.serve,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded(
            max_header_bytes=settings.max_header_bytes,
            request_timeout_s=settings.request_timeout_s,
        ),
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # a float will do
        timeout_graceful_shutdown=settings.shutdown_grace_s + CLOSE_SLACK_S,  # type: ignore[arg-type]
        backlog=4096,
    )
    return Server(
        config,
        app,
        on_listening=on_listening,
        on_signal=on_signal,
        is_supervised=is_supervised,
        heeds_signals=heeds_signals,
    )


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
