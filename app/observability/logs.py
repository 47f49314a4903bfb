"""Structured logs: one JSON line per event on standard error, or coloured text on a terminal.

Values that come from clients are bounded and escaped by the JSON encoding; arguments and
credentials are never passed here.
"""

import asyncio
import json
import logging
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, Literal, TextIO

import orjson
import structlog

MAX_CLIENT_TEXT: Final = 64
FLUSH_S: Final = 0.02
"""How long a line of an ``EventLog`` may wait for others."""
_ERROR_ID: Final = re.compile(r"[0-9a-f]{16}\Z")
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(
    level: str,
    form: Literal["auto", "json", "pretty"],
    stream: TextIO | None = None,
    *,
    redact: Callable[[Any], Any] | None = None,
    always: Mapping[str, Any] | None = None,
) -> None:
    """Set up structlog for the process, and the standard library's loggers with it.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        form: ``auto`` is pretty on a terminal and JSON elsewhere.
        stream: Where lines go; default: standard error.
        redact: Takes what must not be in a log out of plain JSON data: out of texts, nested ones
            too, and out of what stands beside a telling name. It returns the very same object
            where there is nothing.
        always: Stands in every line.
    """
    global _redact  # noqa: PLW0603  # as all of logging is: one for the process
    _redact = redact
    out = stream or sys.stderr
    pretty = form == "pretty" or (form == "auto" and out.isatty())
    if pretty:
        factory: Any = structlog.PrintLoggerFactory(out)
        processors: list[Any] = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            structlog.dev.ConsoleRenderer(colors=out.isatty()),
        ]
        if redact is not None:
            # Tracebacks as plain text: colours would tear apart what is looked for.
            plain = structlog.dev.ConsoleRenderer(
                colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
            formatted = [structlog.processors.format_exc_info, _Redaction(redact)]
            processors = [*formatted, *processors[:-1], plain]
        if always:
            processors.insert(-1, _Always(always))
    else:
        factory = structlog.BytesLoggerFactory(out.buffer)
        redaction = [] if redact is None else [_Redaction(redact)]
        last = _json_line if not always else _json_line_with(always)
        processors = [structlog.processors.format_exc_info, *redaction, last]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog()]
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    logging.captureWarnings(capture=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


_redact: Callable[[Any], Any] | None = None
WITHHELD: Final = "(withheld)"


def redacted(data: Any) -> Any:
    """Plain JSON data without what must not be in a log, as configured; at worst ``WITHHELD``."""
    if _redact is None:
        return data
    try:
        return _redact(data)
    except Exception:  # noqa: BLE001  # rather nothing than what was not looked at
        return WITHHELD


_event_logs: Final["weakref.WeakSet[EventLog]"] = weakref.WeakSet()


def flush_event_logs() -> None:
    """Write every line that is waiting; the process is about to end."""
    for log in _event_logs:
        log.flush()


class EventLog:
    """Writes one kind of event, often.

    A structlog logger costs three times what its line costs to encode, and a write costs as much
    again; so the JSON form of this event is encoded here, and all lines of ``FLUSH_S`` are handed
    to the output of structlog's logger at once. The lines are the same, but nothing is redacted:
    its fields are the server's own, what comes from clients among them is short, and arguments
    were redacted before.

    Attributes:
        is_enabled: Whether lines are written at all.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._lines: list[bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log = structlog.get_logger().bind()
        output = structlog.get_config()["logger_factory"]()
        is_json = isinstance(output, structlog.BytesLogger)
        self.is_enabled = self._log.is_enabled_for(logging.INFO)
        _event_logs.add(self)
        self._line: Callable[..., bytes] = structlog.get_config()["processors"][-1]
        self._write = output.msg if is_json and self.is_enabled else None

    def info(self, fields: dict[str, Any]) -> None:
        """Write an event with these fields; the mapping is the caller's to lose."""
        if self._write is None:
            self._log.info(self._event, **fields)
        else:
            fields["event"] = self._event
            self._lines.append(self._line(None, "info", fields))
            if len(self._lines) == 1:
                if self._loop is None:  # asking for it costs a system call
                    self._loop = asyncio.get_running_loop()
                self._loop.call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Write what is waiting."""
        if self._write is not None and self._lines:
            lines, self._lines = self._lines, []
            self._write(b"\n".join(lines))


class _Clock:
    """ISO 8601 instants in UTC; the text of a second is made once."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{int((now - second) * 1_000_000):06d}Z"


_clock: Final = _Clock()


class _Redaction:
    """A processor: takes out of a line what must not be in it, before level and instant are added.

    What is looked at is what would be written: values that are no plain data as their encoding.
    """

    def __init__(self, redact: Callable[[Any], Any]) -> None:
        self._redact = redact

    def __call__(
        self, _: Any, __: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        error_id = event.get("error_id")
        try:
            looked: dict[str, Any] = self._redact(json.loads(encoded(event)))
        except Exception as error:  # noqa: BLE001  # rather no line than one that was not looked at
            looked = {"event": "line_withheld", "error": type(error).__name__}
        # Made by us, and now and then of digits alone, as cards are.
        if isinstance(error_id, str) and _ERROR_ID.match(error_id):
            looked["error_id"] = error_id
        return looked


def _json_line(_: Any, level: str, event: MutableMapping[str, Any]) -> bytes:
    """The last processor: level, instant, and one line of JSON."""
    event["level"] = level
    event["timestamp"] = _clock.now()
    try:
        return orjson.dumps(event, default=repr)
    except TypeError:
        return encoded(event)


def _json_line_with(always: Mapping[str, Any]) -> Callable[..., bytes]:
    def line(_: Any, level: str, event: MutableMapping[str, Any]) -> bytes:
        event.update(always)
        return _json_line(None, level, event)

    return line


class _Always:
    """A processor: adds what stands in every line."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __call__(
        self, _: Any, __: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event.update(self._fields)
        return event


def encoded(event: Any) -> bytes:
    """As it stands in a line of the log."""
    try:
        return orjson.dumps(event, default=repr)
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        return json.dumps(event, default=repr).encode("ascii")


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
                message = record.getMessage()
                write("log", logger=record.name, message=message, exc_info=record.exc_info)
        except Exception:  # noqa: BLE001  # a line that cannot be written must not fail who logs
            self.handleError(record)
        finally:
            self._inside.busy = False


def printable(text: str, limit: int = MAX_CLIENT_TEXT) -> str:
    """A client's words, short and without control characters, for a log line."""
    short = text[:limit]
    return short if short.isprintable() else short.encode("unicode_escape").decode("ascii")[:limit]
