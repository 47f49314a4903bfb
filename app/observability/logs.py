"""Structured logs: one JSON line per event on standard error, or coloured text on a terminal.

Values that come from clients are bounded and escaped by the JSON encoding; arguments and
credentials are never passed here.
"""

import logging
import sys
import threading
from typing import Any, Final, Literal, TextIO

import orjson
import structlog

MAX_CLIENT_TEXT: Final = 64
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(
    level: str, form: Literal["auto", "json", "pretty"], stream: TextIO | None = None
) -> None:
    """Set up structlog for the process, and the standard library's loggers with it.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        form: ``auto`` is pretty on a terminal and JSON elsewhere.
        stream: Where lines go; default: standard error.
    """
    out = stream or sys.stderr
    pretty = form == "pretty" or (form == "auto" and out.isatty())
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    ]
    if pretty:
        factory: Any = structlog.PrintLoggerFactory(out)
        render: list[Any] = [structlog.dev.ConsoleRenderer(colors=out.isatty())]
    else:
        factory = structlog.BytesLoggerFactory(out.buffer)
        render = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=orjson.dumps, default=repr),
        ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog()]
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class _ToStructlog(logging.Handler):
    """Lines of libraries and tools that log with the standard library, in the same form."""

    _inside = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self._inside, "busy", False):
            return
        self._inside.busy = True
        try:
            write = getattr(structlog.get_logger(), record.levelname.lower(), None)
            if write is not None:
                write(
                    "log", logger=record.name, message=record.getMessage(), exc_info=record.exc_info
                )
        finally:
            self._inside.busy = False


def printable(text: str, limit: int = MAX_CLIENT_TEXT) -> str:
    """A client's words, short and without control characters, for a log line."""
    short = text[:limit]
    return short if short.isprintable() else short.encode("unicode_escape").decode("ascii")[:limit]
