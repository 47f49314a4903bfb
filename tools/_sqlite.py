"""Queries on a private, read-only copy of a small SQLite database: a helper module, not a tool.

The query comes from a model, so it is treated as hostile. The layers follow SQLite's own advice
("Defense Against The Dark Arts"): each query gets a copy of its own that nobody else sees;
an authorizer that lets only reads through; limits on lengths, memory, time and the result.
"""

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app import ToolError

Cell = str | int | float | None

MAX_ROWS: Final = 500
MAX_RESULT_CHARS: Final = 200_000
MAX_COLUMNS: Final = 100
MAX_VALUE_BYTES: Final = 20_000  # keeps every single function call short
MAX_QUERY_BYTES: Final = 40_000
# For all SQLite databases of the process together: SQLite has no limit per connection, and a
# limit that was set once can only be lowered.
MAX_HEAP_BYTES: Final = 64 * 1024 * 1024
STEPS_BETWEEN_CHECKS: Final = 10_000
"""Steps of SQLite's virtual machine: a fraction of a millisecond."""

_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MAX_QUERY_BYTES,
    sqlite3.SQLITE_LIMIT_COLUMN: MAX_COLUMNS,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,  # many % signs are slow to match
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}

_READS: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_READING_PRAGMAS: Final = {"table_info", "table_xinfo", "table_list", "foreign_key_list"}
_BARRED_FUNCTIONS: Final = {
    "load_extension",  # runs code
    "fts3_tokenizer",  # shows an address in memory
    "printf",  # '%.*c' counts to two thousand million, and nothing can stop it meanwhile
    "format",  # the same
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database as bytes, which threads can share, and its tables with their columns."""

    image: bytes
    tables: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole result; one that does not fit raises instead."""

    columns: list[str]
    rows: list[list[Cell]]


def build(script: Path) -> Database:
    """The database that a file of SQL statements describes.

    Raises:
        OSError, sqlite3.Error: The file cannot be read or is wrong.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script.read_text("utf-8"))
        tables: dict[str, list[str]] = {}
        for table, column in connection.execute(
            "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type IN ('table', 'view') ORDER BY t.rowid, c.cid"
        ):
            tables.setdefault(table, []).append(column)
        return Database(image=connection.serialize(), tables=tables)


def run_query(database: Database, query: str, *, stop: Callable[[], str | None]) -> Answer:
    """Run one reading statement on a copy of a database. Blocks: for a thread.

    Args:
        stop: Asked often while the query runs; a reason ends the query.

    Raises:
        ToolError: The query is wrong, not allowed, too large or was stopped; says what to do.
    """
    guard = _Guard(stop)
    try:
        with _private_copy(database.image) as connection:
            connection.set_authorizer(guard.authorize)
            connection.set_progress_handler(guard.check, STEPS_BETWEEN_CHECKS)
            return _collect(connection.execute(query))
    except MemoryError:
        raise ToolError("The query needs too much memory. Sort or join fewer rows.") from None
    # A Warning is Python 3.11's word for two statements, ValueError one for a NUL.
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        reason = guard.reason or f"SQLite says: {str(error).rstrip('.')}."
        tables = (f"{name}({', '.join(columns)})" for name, columns in database.tables.items())
        raise ToolError(f"{reason} The tables are: {'; '.join(tables)}.") from None


@contextmanager
def _private_copy(image: bytes) -> Iterator[sqlite3.Connection]:
    # Without isolation_level=None Python would begin transactions of its own.
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(image)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
        # No temporary files: a large sort would fill the disk, which may be read-only besides.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        yield connection


class _Guard:
    """SQLite's two callbacks; remembers why it refused, since SQLite's errors hardly tell."""

    def __init__(self, stop: Callable[[], str | None]) -> None:
        self.reason: str | None = None
        self._stop = stop

    def check(self) -> bool:
        """Progress handler: whether to end the query."""
        if (why := self._stop()) is not None:
            self.reason = f"The query was stopped: {why}"
        return self.reason is not None

    def authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Authorizer: lets reads through, and nothing else."""
        match action:
            case sqlite3.SQLITE_FUNCTION:
                allowed = (second or "").lower() not in _BARRED_FUNCTIONS
                reason = f"The function {second} is not available here."
            case sqlite3.SQLITE_PRAGMA:
                allowed = (first or "").lower() in _READING_PRAGMAS
                reason = "Of the PRAGMAs only those that describe tables are available here."
            case _:
                allowed = action in _READS
                reason = (
                    "Only reading from the tables is allowed: send one SELECT (or WITH ... SELECT)."
                )
        if allowed:
            return sqlite3.SQLITE_OK
        self.reason = reason
        return sqlite3.SQLITE_DENY


def _collect(cursor: sqlite3.Cursor) -> Answer:
    if cursor.description is None:
        raise ToolError("There is no statement in the query. Send one SELECT.")
    columns = [column[0] for column in cursor.description]
    rows: list[list[Cell]] = []
    size = 0
    for values in cursor:
        row = [_cell(value) for value in values]
        rows.append(row)
        size += sum(len(cell) if isinstance(cell, str) else 8 for cell in row)
        if len(rows) > MAX_ROWS:
            raise ToolError(
                f"The result has more than {MAX_ROWS} rows. Add a LIMIT, a WHERE or a GROUP BY."
            )
        if size > MAX_RESULT_CHARS:
            raise ToolError(
                f"The result has more than {MAX_RESULT_CHARS} characters. "
                "Select fewer columns or rows."
            )
    return Answer(columns=columns, rows=rows)


def _cell(value: str | bytes | float | None) -> Cell:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value
