"""Holds request lines of the log against their documented shape."""

from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import orjson

SCHEMA: Final[dict[str, Any]] = orjson.loads(
    (Path(__file__).resolve().parents[2] / "docs/schemas/log-line.schema.json").read_bytes()
)
_VALIDATOR: Final = jsonschema_rs.Draft202012Validator(SCHEMA)


def wrong_lines(lines: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the request lines among these."""
    requests = [line for line in lines if line.get("event") == "request"]
    return [
        f"{error.message} in {line}" for line in requests for error in _VALIDATOR.iter_errors(line)
    ]
