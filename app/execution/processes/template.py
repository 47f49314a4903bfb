"""The template process: forks workers, kills them, and buries what they leave.

It has one thread and no tool is ever loaded in it, so forking it is safe. It is a parent of its
own so that the server never forks, and so that orphans have somebody who ends them.

Messages have a fixed size: from the server an operation and the worker's number, with two file
descriptors for a start; to the server the operation, the number, and a process id or status.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
import struct
import traceback
from typing import Final

from app.execution.processes import confine, worker

FROM_SERVER: Final = struct.Struct(">cI")
TO_SERVER: Final = struct.Struct(">cIi")
START: Final = b"S"
KILL: Final = b"K"
ENDED: Final = b"E"
BORN: Final = b"B"


def main(fd: int) -> None:
    """Serve until the server closes its end; then end everything.

    Args:
        fd: Of the socket to the server.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A supervisor may tell every process of the service to end. The server then lets calls
        # finish, so this must not decide. A handler, since "ignore" would be inherited by exec.
        signal.signal(number, lambda *_: None)
    confine.adopt_orphans()
    gc.collect()
    gc.freeze()  # workers share what nobody touches
    with socket.socket(fileno=fd) as control:
        _Template(control).serve()


class _Template:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pids: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._waker = wake
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        with self._selector as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            is_serving = True
            while is_serving:
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        with contextlib.suppress(BlockingIOError):
                            self._wake.recv(4096)
                    else:
                        is_serving = self._obey()
                self._bury()
        self._end_everything()

    def _end_everything(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in list(self._pids):
            self._kill(number)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self._kill_orphans()

    def _obey(self) -> bool:
        """One message of the server. False: it has ended."""
        message, fds, _, _ = socket.recv_fds(self._control, FROM_SERVER.size, 2)
        if len(message) < FROM_SERVER.size:
            return False
        operation, number = FROM_SERVER.unpack(message)
        if operation == START and len(fds) == 2:
            self._start(number, *fds)
        elif operation == KILL:
            self._kill(number)
        return True

    def _start(self, number: int, channel: int, output: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            self._tell(ENDED, number, -(error.errno or 1))
            pid = -1
        if pid == 0:
            self._become_worker(channel, output)
        os.close(channel)
        os.close(output)
        if pid > 0:
            self._pids[number], self._numbers[pid] = pid, number
            self._tell(BORN, number, pid)

    def _become_worker(self, channel: int, output: int) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._selector, self._control, self._wake, self._waker):
                end.close()
            confine.end_with_parent()
            worker.main(channel, output)
            code = 0
        except BaseException:  # noqa: BLE001  # to the log, by way of standard error
            traceback.print_exc()
        finally:
            os._exit(code)

    def _kill(self, number: int) -> None:
        pid = self._pids.get(number)
        if pid is not None:
            for kill in (os.killpg, os.kill):  # it may not have made its group yet
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        """Reap what has ended, and end what that has left behind."""
        somebody_ended = False
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                somebody_ended = True
                pid, status = ended
                number = self._numbers.pop(pid, None)
                if number is not None:
                    del self._pids[number]
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)  # the rest of its group
                    self._tell(ENDED, number, status)
        if somebody_ended:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Those in groups of their own have become children of this process."""
        for orphan in confine.children(os.getpid()) - self._numbers.keys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)

    def _tell(self, operation: bytes, number: int, value: int) -> None:
        with contextlib.suppress(OSError):  # the server has ended; `serve` will see it
            self._control.sendall(TO_SERVER.pack(operation, number, value))
