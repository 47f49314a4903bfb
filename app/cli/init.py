"""The first process of a container: passes signals on, and buries what nobody waits for.

The kernel gives orphans to process 1, and a signal that process 1 has no handler for does nothing.
The server itself cannot do the burying: it would take the ends of processes away from tools that
wait for them. So the server runs in a child. An init of the container's own (``init: true``) has
the number 1 itself, and then none of this happens.

Process 1 becomes an interpreter that runs this file and has loaded nothing else, which takes 5 MB;
as a copy of the server it would keep 30 MB that the server has changed since.
"""

import os
import signal
import sys
from typing import Final, NoReturn

PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def serve_in_child_of_init() -> None:
    """Return in the process that is to serve: this one, or a child if this one is process 1.

    To be called before there are threads, since it forks.
    """
    if os.getpid() != 1:
        return
    # Until the handlers stand: as the first process it would miss a signal altogether.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    server = os.fork()
    if server != 0:
        # Isolated, and without what the environment adds: nothing of it is needed.
        os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, str(server)])  # noqa: S606  # ourselves
    os.setpgrp()  # Ctrl+C at a terminal comes from process 1, and not a second time from there
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def look_after(server: int) -> NoReturn:
    """Be process 1 until this child ends, and end as it does.

    The exit code is the child's, or 128 and the number of the signal that has ended it.
    """
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(server, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    look_after(int(sys.argv[1]))
