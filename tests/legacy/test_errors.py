"""Errors: codes that older clients know, and the status that keeps their session alive."""

from typing import Any

import pytest

from app.legacy.errors import argument_error, told
from app.legacy.revisions import REVISIONS
from app.protocol import errors
from app.protocol.errors import ProtocolError
from tests.legacy.modern import ALL, result
from tests.support.cases import rows
from tests.support.legacy_schema import check_error

WAIT = {"retryAfterMs": 1500}


@rows(
    "error, code, status",
    ("no JSON", errors.ParseError("m"), -32700, 400),
    ("no request", errors.InvalidRequest("m"), -32600, 400),
    ("no such method", errors.MethodNotFound("m"), -32601, 200),
    ("bad params", errors.InvalidParams("m"), -32602, 200),
    ("our bug", errors.InternalError("m"), -32603, 200),
    ("headers that disagree", errors.HeaderMismatch("m"), -32600, 400),
    (
        "a capability that is missing",
        errors.MissingRequiredClientCapability("m", required={"sampling": {}}),
        -32602,
        200,
    ),
    (
        "a version that is not served",
        errors.UnsupportedProtocolVersion("m", requested="1999", supported=["2025-11-25"]),
        -32602,
        400,
    ),
    ("who is it", errors.Unauthorized("m"), -31401, 401),
    ("not for you", errors.Forbidden("m"), -31403, 403),
    ("no such session", errors.NotFound("m"), -31404, 404),
    ("no GET here", errors.MethodNotAllowed("m", allow="POST"), -31405, 405),
    ("nothing acceptable", errors.NotAcceptable("m"), -31406, 406),
    ("too slow", errors.RequestTimeout("m"), -31408, 408),
    ("too large", errors.PayloadTooLarge("m"), -31413, 413),
    ("no JSON by its own word", errors.UnsupportedMediaType("m"), -31415, 415),
    ("another host", errors.MisdirectedRequest("m"), -31421, 421),
    ("too many", errors.TooManyRequests("m", wait_s=1.5, setting="s"), -31429, 200),
    ("too many headers", errors.HeadersTooLarge("m"), -31431, 431),
    ("too busy", errors.Unavailable("m", retry_after_s=2), -31503, 200),
)
def test_every_error_has_a_code_and_a_status(error: ProtocolError, code: int, status: int) -> None:
    legacy = told(error)

    assert legacy.error["code"] == code and legacy.http_status == status
    assert legacy.error["message"] == error.message
    assert legacy.error.get("data") == error.data
    assert legacy.headers == error.headers
    message = {"jsonrpc": "2.0", "id": 1, "error": legacy.error}
    for revision in ALL:
        check_error(message, revision.version)


def _subclasses(kind: type[ProtocolError]) -> set[type[ProtocolError]]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


@pytest.mark.parametrize("kind", sorted(_subclasses(ProtocolError), key=str))
def test_no_error_has_a_modern_code(kind: Any) -> None:
    if kind in (ProtocolError, errors.Refusal):
        return  # never raised themselves
    error = kind.__new__(kind)
    ProtocolError.__init__(error, "m")
    assert told(error).error["code"] not in (-32020, -32021, -32022)


def test_a_wait_is_told_in_the_sentence_and_in_data() -> None:
    legacy = told(errors.TooManyRequests("Too many calls.", wait_s=1.5, setting="s"))

    assert legacy.error["data"] == WAIT
    assert legacy.error["message"] == "Too many calls. Try again in 2 s."


def test_bad_arguments_were_a_protocol_error_until_june() -> None:
    text = "Invalid arguments for add: a is required"

    error = argument_error(result(text, is_error=True))

    assert told(error).error == {"code": -32602, "message": text}
    assert told(error).http_status == 200
    assert [each for each in REVISIONS if REVISIONS[each].argument_errors_as_results] == [
        "2025-11-25"
    ]
