"""How often tools are called, how well and how fast, from the record, by SQL in memory."""

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

ERRORS: Final = ("tool_error", "internal_error", "timeout", "protocol_error")
REFUSALS: Final = ("denied", "limited")

_TABLE: Final = """
CREATE TABLE calls (
    tool TEXT, version TEXT, caller TEXT, outcome TEXT, duration_ms REAL
)
"""

# The percentile is the least value that so many of a hundred calls do not exceed (nearest rank):
# an exact value that was measured, and no estimate. Refusals have no latency of the tool's.
# (A tuple of plain texts is written alike in Python and in SQL.)
_QUERY: Final = f"""
WITH timed AS (
    SELECT tool, version, duration_ms,
        row_number() OVER (PARTITION BY tool, version ORDER BY duration_ms) AS place,
        count(*) OVER (PARTITION BY tool, version) AS number
    FROM calls WHERE outcome NOT IN {REFUSALS}
), percentiles AS (
    SELECT tool, version,
        max(CASE WHEN place = (number * 50 + 99) / 100 THEN duration_ms END) AS p50,
        max(CASE WHEN place = (number * 90 + 99) / 100 THEN duration_ms END) AS p90,
        max(CASE WHEN place = (number * 99 + 99) / 100 THEN duration_ms END) AS p99,
        max(duration_ms) AS longest
    FROM timed GROUP BY tool, version
)
SELECT calls.tool, calls.version, count(*) AS calls,
    sum(outcome IN {ERRORS}) AS errors,
    sum(outcome IN {REFUSALS}) AS refused,
    count(DISTINCT caller) AS callers, p50, p90, p99, longest
FROM calls LEFT JOIN percentiles
    ON percentiles.tool = calls.tool AND percentiles.version = calls.version
GROUP BY calls.tool, calls.version
ORDER BY calls DESC, calls.tool, calls.version
"""  # noqa: S608  # of words of our own


class Usage(NamedTuple):
    """One version of one tool over a period.

    Attributes:
        version: Equal for equal code, definition and settings.
        errors: Calls that came to nothing: ``ERRORS``.
        refused: Calls that were not allowed, or too many: ``REFUSALS``.
        callers: How many different ones; those without a credential count by their address.
        p50_ms, p90_ms, p99_ms, longest_ms: Of calls that were not refused; None: there are none.
    """

    tool: str
    version: str
    calls: int
    errors: int
    refused: int
    callers: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    longest_ms: float | None

    @property
    def error_rate(self) -> float:
        """Of the calls that were not refused."""
        served = self.calls - self.refused
        return self.errors / served if served else 0.0


def usage(records: Iterable[dict[str, Any]]) -> list[Usage]:
    """By tool and version, the ones called most first. Calls of unknown tools are left out.

    Args:
        records: Of calls.
    """
    database = sqlite3.connect(":memory:")
    try:
        database.execute(_TABLE)
        database.executemany(
            "INSERT INTO calls VALUES (?, ?, ?, ?, ?)",
            (
                (
                    record["tool"],
                    record["version"],
                    _caller(record),
                    record.get("outcome"),
                    record.get("duration_ms"),
                )
                for record in records
                if record.get("kind") == "call" and record.get("version") is not None
            ),
        )
        return [Usage(*row) for row in database.execute(_QUERY)]
    finally:
        database.close()


def _caller(record: dict[str, Any]) -> str:
    issuer, subject = record.get("issuer"), record.get("subject")
    if issuer is None:
        return f"address {record.get('address')}"
    return f"{issuer} {subject}"
