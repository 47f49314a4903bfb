"""What the commands that serve have in common: their log, and how their process ends."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

import structlog
import uvloop

from app.cli.exits import Exit
from app.guards.redaction import Redactor
from app.observability.logs import configure_logging, flush_event_logs
from app.settings import Settings

SWITCH_INTERVAL_S: Final = 0.001
LAST_WAIT_S: Final = 1.0
FAILURES: Final = 3
"""Attempts to run the event loop, where it raises of itself."""
CLOSING_S: Final = 5.0
"""After the grace of running calls: for what tools have opened, and for their processes."""

log = structlog.get_logger()


def start_log(settings: Settings, *, worker_pid: int | None = None) -> None:
    """Write the log of this process as configured.

    Args:
        worker_pid: Stands in every line, where several processes write to the same log.
    """
    logging_ = settings.logging
    redact = None
    if logging_.redact:
        redact = Redactor(logging_.redact, locales=logging_.locales).data
    always = {} if worker_pid is None else {"worker_pid": worker_pid}
    configure_logging(logging_.level, logging_.format, redact=redact, always=always)


class LastResort:
    """Ends the process some time after it was asked to end, whatever holds it up.

    A tool that computes in the event loop for ever holds up everything else; not this thread.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._asked = threading.Event()
        threading.Thread(target=self._wait, name="last resort", daemon=True).start()

    def arm(self) -> None:
        """The process was asked to end. May be called in a signal handler."""
        self._asked.set()

    def _wait(self) -> None:
        self._asked.wait()
        time.sleep(self._within_s)
        # In a thread of its own: who holds up the process may hold its log, too.
        tell = threading.Thread(target=self._tell, daemon=True)
        tell.start()
        tell.join(LAST_WAIT_S)
        os._exit(Exit.STUCK)

    def _tell(self) -> None:
        flush_event_logs()
        log.error("end_forced", after_s=self._within_s)
        sys.stderr.flush()


def run_to_the_end(serving: Coroutine[Any, Any, None]) -> NoReturn:
    """Run the server; then end the process, whatever its tools are doing.

    ``asyncio.run`` would wait for a task that swallows its cancellation, and the interpreter for
    a thread that never ends.
    """
    # Threads load modules and run tools; the event loop must get its turn among them soon.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        loop = uvloop.new_event_loop()
    except OSError:  # too few file descriptors, for one
        serving.close()
        log.exception("server_failed")
        _leave(Exit.STARTUP)
    asyncio.set_event_loop(loop)
    main = loop.create_task(serving)
    code: Any = Exit.OK
    failures = 0
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
            failures += 1
            if failures == FAILURES:  # it is the loop that cannot run
                _leave(code)
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
    _leave(code)


def _leave(code: Any) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))
