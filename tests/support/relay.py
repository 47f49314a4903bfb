"""What stands between a client and a server: a line that can be cut, counted or wrapped in TLS."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

CHUNK: Final = 1 << 20


class Relay:
    """Passes bytes on to a port of this machine, in threads.

    Args:
        certificate: Of a TLS server that the relay then is; the other side stays without TLS.
        client_ca: Whose clients alone are let in.

    Attributes:
        sent: How often each client has written something: one for each batch of commands.
    """

    def __init__(
        self, to_port: int, *, certificate: Path | None = None, client_ca: Path | None = None
    ) -> None:
        self._to_port = to_port
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._context.load_cert_chain(certificate)
            if client_ca is not None:
                self._context.verify_mode = ssl.CERT_REQUIRED
                self._context.load_verify_locations(client_ca)
        self.sent: list[int] = []
        self._is_cut = False
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def cut(self) -> None:
        """From now on nothing passes, and nobody is told: as a network that is gone."""
        self._is_cut = True

    def mend(self) -> None:
        """What is sent from now on passes; connections from before are closed."""
        self._is_cut = False
        self.drop()

    def drop(self) -> None:
        """Close every connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            _close(each)

    def _start(self, what: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        try:
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._to_port))
        except OSError:
            _close(client)
            return
        with self._lock:
            self._sockets |= {client, server}
            number = len(self.sent)
            self.sent.append(0)
        self._start(self._pass, server, client)
        self._pass(client, server, number)

    def _pass(
        self, source: socket.socket, target: socket.socket, number: int | None = None
    ) -> None:
        try:
            while data := source.recv(CHUNK):
                if number is not None:
                    self.sent[number] += 1
                if not self._is_cut:
                    target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            _close(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _close(self._listener)
        self.drop()
        for thread in self._threads:
            thread.join(5)


class Scripted:
    """A server that answers every client with the same bytes, whatever it says."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while client.recv(CHUNK):
                client.sendall(self._answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _close(self._listener)
        self._thread.join(5)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
