"""Every message for a client of an older revision, held against that revision.

The judges are those of `tests.support.schema`, one step stricter: the revision's JSON Schema is
read as closed, so that a member which the revision does not define is an error even where JSON
Schema would let it pass. Where there is no copy of the schemas, `mcp-types` judges alone.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import jsonschema_rs
from mcp_types.methods import (
    parse_server_notification,
    parse_server_request,
    validate_server_result,
)

from tests.support.schema import META, SPEC_DIR

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope", "x-mcp-header"})
MODERN_CODES: Final = (-32020, -32021, -32022)
RESULTS: Final[Mapping[str, str]] = {
    "initialize": "InitializeResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "ping": "Result",
    "logging/setLevel": "Result",
}
REQUESTS: Final[Mapping[str, str]] = {
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
}
# JSON Schemas inside the schema: what is in them is the author's.
OPEN: Final = ("inputSchema", "outputSchema")


@cache
def _document(version: str) -> Mapping[str, Any] | None:
    path = SPEC_DIR / f"mcp-{version}.schema.json"
    if not path.is_file():
        return None
    return _closed(json.loads(path.read_text("utf-8")))  # type: ignore[no-any-return]  # an object


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    out = {key: value if key in OPEN else _closed(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and node.get("type") == "object":
        out.setdefault("additionalProperties", False)
    return out


@cache
def _validator(version: str, name: str) -> jsonschema_rs.Validator | None:
    document = _document(version)
    if document is None:
        return None
    place = "definitions" if "definitions" in document else "$defs"
    schema = {
        "$schema": document["$schema"],
        place: document[place],
        "allOf": [{"$ref": f"#/{place}/{name}"}],
    }
    return jsonschema_rs.validator_for(schema)


def defines(version: str, name: str) -> bool:
    """Whether a revision has a definition; True where there is no copy of it."""
    document = _document(version)
    return document is None or name in document.get("definitions", document.get("$defs"))


def members(version: str, name: str) -> frozenset[str] | None:
    """The members of one definition of a revision; None where there is no copy or no such one."""
    document = _document(version)
    if document is None or not defines(version, name):
        return None
    return frozenset(document.get("definitions", document.get("$defs"))[name]["properties"])


def check_legacy(value: Any, definition: str, version: str) -> None:
    """Hold a value against one definition of a revision's schema, where there is a copy.

    Raises:
        AssertionError: with every place that does not conform.
    """
    validator = _validator(version, definition)
    if validator is None:
        return
    problems = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(value)]
    text = json.dumps(value)[:2000]
    assert not problems, f"not a {definition} of {version}: {problems[:5]}\n{text}"


def check_result(result: Any, method: str, version: str) -> None:
    """Check a result: the method's own shape in this revision, and nothing modern."""
    check_legacy(result, RESULTS[method], version)
    validate_server_result(method, version, result)
    check_nothing_modern(result)


def check_request(message: Any, version: str) -> None:
    """Check a request of the server to the client."""
    assert set(message) <= {"jsonrpc", "id", "method", "params"}, message
    check_legacy(message, "JSONRPCRequest", version)
    method = message["method"]
    # Until 2025-06-18 the schema describes requests without their envelope.
    known = members(version, REQUESTS[method]) or message
    bare = {key: value for key, value in message.items() if key in known}
    check_legacy(bare, REQUESTS[method], version)
    parse_server_request(method, version, message.get("params"))
    check_nothing_modern(message)


def check_notification(message: Any, version: str) -> None:
    """Check a notification of the server."""
    assert set(message) <= {"jsonrpc", "method", "params"}, message
    check_legacy(message, "JSONRPCNotification", version)
    parse_server_notification(message["method"], version, message.get("params"))
    check_nothing_modern(message)


def check_error(message: Any, version: str) -> None:
    """Check an error response that has an id."""
    definition = "JSONRPCError" if defines(version, "JSONRPCError") else "JSONRPCErrorResponse"
    check_legacy(message, definition, version)
    assert message["error"]["code"] not in MODERN_CODES, message
    check_nothing_modern(message)


def check_nothing_modern(value: Any) -> None:
    """No member, at any depth, has a name that came with 2026-07-28."""
    if isinstance(value, dict):
        for key, child in value.items():
            assert key not in MODERN_MEMBERS and not key.startswith(META), key
            check_nothing_modern(child)
    elif isinstance(value, list):
        for child in value:
            check_nothing_modern(child)
