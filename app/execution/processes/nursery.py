"""The server's end of the template process: asks for workers, and hears how they end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import structlog

from app.configuration import ENV_PREFIX
from app.execution.processes.template import BORN, ENDED, FROM_SERVER, KILL, START, TO_SERVER

STOP_S: Final = 2.0
POLL_S: Final = 0.01
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from app.execution.processes.template import main; main(int(sys.argv[1]))"
)

log = structlog.get_logger()


class Nursery:
    """Starts the template when the first worker is wanted, and again should it ever end.

    Args:
        born: Told a worker's number and process id.
        ended: Told a worker's number and how it ended, as of ``os.waitpid``; below 0: it could
            not be started.
    """

    def __init__(self, born: Callable[[int, int], None], ended: Callable[[int, int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._born = born
        self._ended = ended
        self._template: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._living: set[int] = set()
        self._rest = b""

    def start(self, number: int, channel: int, output: int) -> None:
        """Start a worker with these file descriptors; the caller closes them.

        Raises:
            OSError: There is no template and none can be started.
        """
        self._living.add(number)
        if not self._send(START, number, [channel, output]):
            self._open()
            if not self._send(START, number, [channel, output]):
                raise OSError("the template of worker processes does not answer")

    def kill(self, number: int) -> None:
        """Kill a worker and all that it has started."""
        self._send(KILL, number, [])

    async def stop(self) -> None:
        """End the template and every worker."""
        template, self._template = self._template, None
        self._close()
        if template is not None:
            deadline = self._loop.time() + STOP_S
            while template.poll() is None and self._loop.time() < deadline:  # noqa: ASYNC110  # no event
                await asyncio.sleep(POLL_S)
            template.kill()
            template.wait()

    def _open(self) -> None:
        if self._template is not None:
            self._template.kill()
            self._template.wait()
        ours, theirs = socket.socketpair()
        with theirs:
            self._template = subprocess.Popen(  # noqa: S603  # ourselves
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()],  # and no other: above all no listening socket
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl+C is the server's to hear
                # What the server alone has to know: its keys, and settings of all tools.
                env={k: v for k, v in os.environ.items() if not k.upper().startswith(ENV_PREFIX)},
            )
        ours.setblocking(False)
        self._control, self._rest = ours, b""
        self._loop.add_reader(ours.fileno(), self._hear)

    def _send(self, operation: bytes, number: int, fds: list[int]) -> bool:
        if self._control is None:
            return False
        try:
            socket.send_fds(self._control, [FROM_SERVER.pack(operation, number)], fds)
        except OSError:
            self._lost()
            return False
        return True

    def _hear(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._rest += data
        while len(self._rest) >= TO_SERVER.size:
            operation, number, value = TO_SERVER.unpack_from(self._rest)
            self._rest = self._rest[TO_SERVER.size :]
            if operation == BORN:
                self._born(number, value)
            elif operation == ENDED:
                self._living.discard(number)
                self._ended(number, value)

    def _lost(self) -> None:
        """The template has ended by itself, and the workers with it."""
        log.error("process_template_lost", workers=len(self._living))
        self._close()
        for number in list(self._living):
            self._living.discard(number)
            self._ended(number, signal.SIGKILL)  # they end with their parent

    def _close(self) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._loop.remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
