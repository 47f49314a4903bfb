"""Personal data and secrets that a tool says do not get into the log, whichever way it is said."""

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from app.guards.redaction import KINDS, Redactor
from app.observability.logs import configure_logging
from tests.support.cases import rows
from tests.support.server import ROOT, ServerFactory, ServerProcess

TOOLS = ROOT / "tests" / "fixtures" / "careless"
KEY = "ghp_" + "aB3dE5gH7j" * 4
# What is said, and what of it the log may not have.
SAID = (
    f"joe@example.com, +49 170 1234567, 4111 1111 1111 1111, 536-90-4399, {KEY}, password=hunter2"
)
GONE = ("joe@", "0 1234567", "1111 1111", "536-90", KEY[4:], "hunter2")


@pytest.fixture(scope="module")
def careful(module_server_factory: ServerFactory) -> ServerProcess:
    """A server of careless tools, as it is but for the country."""
    return module_server_factory(TOOLS, {"logging": {"locales": ["us"], "level": "debug"}})


def told(server: ServerProcess, tool: str, arguments: dict[str, Any], mark: int) -> str:
    """All that the log says once the call is in it."""
    server.client.call(tool, arguments, timeout_s=30)
    server.wait_for_log(
        lambda log: log.get("event") == "request" and log.get("tool") == tool, after=mark
    )
    return json.dumps(server.logs()[mark:], ensure_ascii=False)


@rows(
    "tool, error",
    ("the standard library's loggers", "library", "ValueError"),
    ("fields", "structured", "found"),
    ("a warning", "warned", "UserWarning"),
    ("an exception", "raised", "RuntimeError"),
    ("its cause", "chained", "KeyError"),
    ("the cause of what the model is told", "told", None),
    ("a long text", "long", "RuntimeError"),
    ("what a process prints and logs", "printed", "tool_output"),
    ("an exception of a process", "raised_apart", "RuntimeError"),
    ("a cause in a process", "told_apart", None),
)
def test_what_a_tool_says_is_masked(careful: ServerProcess, tool: str, error: str | None) -> None:
    text = told(careful, tool, {"text": SAID}, careful.log_mark())
    assert not [part for part in GONE if part in text]
    if error is not None:
        assert error in text and "[email]" in text and "[secret]" in text and "****1111" in text


def test_what_stands_beside_a_telling_name_is_masked(careful: ServerProcess) -> None:
    text = told(careful, "named", {"value": "correct horse"}, careful.log_mark())
    assert "correct" not in text and "horse" not in text
    assert '"password": "[secret]"' in text


def test_the_error_id_and_the_lines_of_the_trace_stay(careful: ServerProcess) -> None:
    mark = careful.log_mark()
    answer = careful.client.call("raised", {"text": SAID}).text
    line = careful.wait_for_log(lambda log: log.get("event") == "tool_failed", after=mark)
    assert line["error_id"] in answer
    assert "leaking.py" in line["exception"] and "in raised" in line["exception"]
    assert set(line) >= {"event", "level", "timestamp", "tool", "error"}


def test_it_can_be_switched_off(server_factory: ServerFactory) -> None:
    server = server_factory(TOOLS, {"logging": {"redact": []}})
    text = told(server, "raised", {"text": SAID}, server.log_mark())
    assert all(part in text for part in GONE)


def test_kinds_can_be_chosen(server_factory: ServerFactory) -> None:
    server = server_factory(TOOLS, {"logging": {"redact": ["email"]}})
    text = told(server, "raised", {"text": SAID}, server.log_mark())
    assert "joe@" not in text
    assert all(part in text for part in GONE[1:])


def test_another_choice_needs_a_restart(server_factory: ServerFactory) -> None:
    server = server_factory(TOOLS, {"logging": {"level": "info"}})
    mark = server.log_mark()
    server.write_config({"logging": {"level": "info", "redact": []}})
    line = server.wait_for_log(
        lambda log: log.get("event") == "configuration_needs_restart", after=mark
    )
    assert line["sections"] == ["logging"]


# Without a server.


@pytest.fixture
def start() -> Any:
    """Sets up logging to a text; afterwards structlog is as it was."""
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.BytesIO()
    out = io.TextIOWrapper(written, "utf-8", write_through=True)

    def begin(form: Any, redact: Callable[[Any], Any] | None) -> Callable[[], str]:
        configure_logging("info", form, out, redact=redact)
        return lambda: written.getvalue().decode()

    yield begin
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.mark.parametrize("form", ["json", "pretty"])
def test_both_forms_of_lines_are_redacted(form: str, start: Any) -> None:
    text = start(form, Redactor(KINDS, locales=["us"]).data)
    log = structlog.get_logger()
    try:
        raise ValueError(SAID)  # noqa: TRY301  # its trace is looked at
    except ValueError:
        log.exception("failed", path=Path("/x"), text=SAID)
    assert not [part for part in GONE if part in text()]
    assert "failed" in text() and "ValueError" in text() and "/x" in text()


def test_an_error_id_of_digits_stays(start: Any) -> None:
    text = start("json", Redactor(KINDS).data)
    structlog.get_logger().error("failed", error_id="4111111111111111", other="4111111111111111")
    line = json.loads(text())
    assert (line["error_id"], line["other"]) == ("4111111111111111", "****1111")


def test_a_line_that_cannot_be_looked_at_is_not_written(start: Any) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError(SAID)

    text = start("json", fail)
    structlog.get_logger().error("failed", text=SAID, error_id="0123456789abcdef")
    line = json.loads(text())
    assert line.pop("timestamp")
    assert line == {
        "event": "line_withheld",
        "level": "error",
        "error": "RuntimeError",
        "error_id": "0123456789abcdef",
    }
