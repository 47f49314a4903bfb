"""Every message that a server sends, held against the specification.

Two judges: the JSON Schema of the revision, where a copy of it lies in the folder that
`MCP_SPEC_DIR` names (default `../shared/spec` beside the repository), and the wire models of
`mcp-types`, always. Then what neither can say: which codes may be sent, and with which status.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from mcp_types.methods import (
    SERVER_NOTIFICATIONS,
    parse_server_notification,
    validate_server_result,
)

VERSION: Final = "2026-07-28"
ROOT: Final = Path(__file__).resolve().parents[2]
SPEC_DIR: Final = Path(os.environ.get("MCP_SPEC_DIR") or ROOT.parent / "shared" / "spec")
SCHEMA_FILE: Final = SPEC_DIR / f"mcp-{VERSION}.schema.json"
META: Final = "io.modelcontextprotocol/"

# Definition of the result, by the method it answers.
RESULTS: Final[Mapping[str, str]] = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}
ERRORS: Final[Mapping[int, str]] = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
# The specification's schema defines these as whole messages, the others as their `error`.
WHOLE_MESSAGES: Final = (-32020, -32021, -32022)
# One error class, one HTTP status.
STATUS: Final[Mapping[int, int]] = {
    **dict.fromkeys((-32700, -32600, -32602, -32020, -32021, -32022), 400),
    -32601: 404,
    -32603: 500,
}
# Refusals of the transport carry -(31000 + status), outside every reserved range.
REFUSALS: Final = (401, 403, 404, 405, 406, 408, 413, 415, 421, 429, 431, 503)

Message = dict[str, Any]


@cache
def _definitions() -> Mapping[str, Any] | None:
    if not SCHEMA_FILE.is_file():
        return None
    return json.loads(SCHEMA_FILE.read_text("utf-8"))  # type: ignore[no-any-return]


@cache
def _validator(definition: str) -> jsonschema_rs.Validator | None:
    document = _definitions()
    if document is None:
        return None
    return jsonschema_rs.validator_for({**document, "$ref": f"#/$defs/{definition}"})


def check_definition(message: Any, definition: str) -> None:
    """Hold a value against one definition of the specification's schema, where there is a copy.

    Raises:
        AssertionError: with every place that does not conform.
    """
    validator = _validator(definition)
    if validator is None:
        return
    problems = [
        f"{error.instance_path}: {error.message}" for error in validator.iter_errors(message)
    ]
    assert not problems, f"not a {definition}: {problems[:5]}\n{json.dumps(message)[:2000]}"


def check_message(message: Any, *, method: str, status: int, streamed: bool) -> None:
    """Check a message that answers a request of `method`, and came with HTTP `status`.

    An error that is `streamed` rides a stream that began with 200, whatever its code.

    Raises:
        AssertionError: it breaks the specification or the server's own rules.
    """
    assert isinstance(message, dict), f"not an object: {message!r}"
    assert message.get("jsonrpc") == "2.0", message
    check_definition(message, "JSONRPCMessage")
    if "method" in message:
        check_notification(message)
    elif "error" in message:
        check_error(message, None if streamed else status)
    else:
        check_result(message, method)


def check_notification(message: Message) -> None:
    """Check a notification of the server."""
    assert set(message) <= {"jsonrpc", "method", "params"}, f"not a notification: {message}"
    assert (message["method"], VERSION) in SERVER_NOTIFICATIONS, message["method"]
    check_definition(message, "ServerNotification")
    parse_server_notification(message["method"], VERSION, message.get("params"))


def check_error(message: Message, status: int | None) -> None:
    """Check an error response: its shape, its code, and that code and status belong together."""
    assert set(message) <= {"jsonrpc", "id", "error"}, f"not an error response: {message}"
    assert type(message.get("id", 0)) in (int, str), f"id must be left out or be one: {message}"
    error = message["error"]
    assert set(error) <= {"code", "message", "data"}, error
    code, text = error["code"], error["message"]
    assert isinstance(text, str) and text.strip(), f"an error without a sentence: {error}"
    assert "Traceback" not in text and 'File "' not in text, f"internals in an error: {text}"
    if code in STATUS:
        check_definition(message, "JSONRPCErrorResponse")
        check_definition(message if code in WHOLE_MESSAGES else error, ERRORS[code])
    else:
        assert -code - 31000 in REFUSALS, f"a code of nobody: {error}"
    expected = STATUS.get(code, -code - 31000)
    assert status in (expected, None), f"{code} came with {status}"
    if code in (-31429, -31503):
        assert isinstance(error["data"]["retryAfterMs"], int), error


def check_result(message: Message, method: str) -> None:
    """Check a result: the method's own shape, and what every result carries."""
    assert set(message) == {"jsonrpc", "id", "result"}, f"not a result response: {message}"
    assert type(message["id"]) in (int, str), message["id"]
    result = message["result"]
    check_definition(message, "JSONRPCResultResponse")
    asks = result.get("resultType") == "input_required"
    # Multi Round-Trip Requests, "Supported Requests": of what is served, this method alone.
    assert not asks or method == "tools/call", f"{method} asks back"
    check_definition(result, "InputRequiredResult" if asks else RESULTS.get(method, "Result"))
    validate_server_result(method, VERSION, result)
    assert asks or result["resultType"] == "complete", result
    if asks:
        assert result.get("inputRequests") or "requestState" in result, result
    server = result.get("_meta", {}).get(f"{META}serverInfo")
    assert server and server["name"] and server["version"], "every result says who answers"
