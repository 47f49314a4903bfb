# ruff: noqa: S608  # the queries are the tests' own
import inspect
import itertools
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import get_args

import pytest

from app import ToolError
from tests.support.client import McpClient, Reply
from tools._sqlite import MAX_RESULT_CHARS, MAX_ROWS, Cell, Database, build, run_query
from tools.execute_sql import DATA, Region, execute_sql

REGIONS = get_args(Region)
WITHOUT_END = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture(scope="module")
def databases() -> Mapping[str, Database]:
    return {region: build(DATA / f"{region}.sql") for region in REGIONS}


@pytest.fixture
def database(databases: Mapping[str, Database]) -> Database:
    return databases["eu-west1"]


def ask(database: Database, query: str) -> list[list[Cell]]:
    return run_query(database, query, stop=lambda: None).rows


def refusal(database: Database, query: str) -> str:
    with pytest.raises(ToolError) as refused:
        ask(database, query)
    return str(refused.value)


# The databases.


def test_every_shipped_file_is_a_region_and_every_region_a_file() -> None:
    assert sorted(file.stem for file in DATA.iterdir()) == sorted(REGIONS)


def test_every_region_has_the_tables_that_the_description_names(
    databases: Mapping[str, Database],
) -> None:
    doc = inspect.getdoc(execute_sql.function) or ""
    described = {
        name: tuple(columns.removesuffix(")").split(", "))
        for name, _, columns in (line.partition("(") for line in doc.splitlines())
        if columns
    }

    for region, database in databases.items():
        found = {name: tuple(columns) for name, columns in database.tables.items()}
        assert found == described, region


def test_the_data_are_whole_and_differ_by_region(databases: Mapping[str, Database]) -> None:
    users = []
    for database in databases.values():
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(database.image)
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (count,) = ask(database, "SELECT count(*), min(total_cents) > 0 FROM order_totals")
        assert count == [24, 1]
        users.append({row[0] for row in ask(database, "SELECT email FROM users")})
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(users, 2))


# What may be asked.


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT id, city FROM users ORDER BY id LIMIT 2", [[1, "Berlin"], [2, "Lyon"]]),
        ("SELECT name FROM users WHERE city = 'Göteborg';", [["Eva Lindqvist"]]),
        ("WITH five AS (SELECT 5 AS n) SELECT n + 1 FROM five -- six", [[6]]),
        (f"{WITHOUT_END} SELECT i FROM n LIMIT 3", [[1], [2], [3]]),
        ("VALUES (1, 'a'), (2, 'b')", [[1, "a"], [2, "b"]]),
        ("SELECT upper(name) FROM products WHERE id = 1", [["DESK LAMP"]]),
        ("SELECT count(*) FROM order_totals", [[24]]),
        ("SELECT count(*) FROM sqlite_schema WHERE type = 'view'", [[1]]),
        (
            "PRAGMA table_info(order_items)",
            [
                [0, "order_id", "INTEGER", 1, None, 1],
                [1, "product_id", "INTEGER", 1, None, 2],
                [2, "quantity", "INTEGER", 1, None, 0],
            ],
        ),
        ("SELECT 1 WHERE 0", []),
    ],
)
def test_a_reading_statement_is_answered(
    database: Database, query: str, rows: list[list[Cell]]
) -> None:
    assert ask(database, query) == rows


@pytest.mark.parametrize(
    ("expression", "cell"),
    [
        ("NULL", None),
        ("1.5", 1.5),
        ("9223372036854775807", 2**63 - 1),
        ("9e999", "inf"),
        ("-9e999", "-inf"),
        ("x'00ff'", "x'00ff'"),
        ("CAST(x'ff41' AS TEXT)", "\N{REPLACEMENT CHARACTER}A"),
        ("CAST(x'eda080' AS TEXT)", "\N{REPLACEMENT CHARACTER}" * 3),
        ("'a' || char(0) || 'b'", "a\0b"),
    ],
)
def test_every_value_has_a_json_form(database: Database, expression: str, cell: Cell) -> None:
    assert ask(database, f"SELECT {expression}") == [[cell]]


# What may not.

NOT_READING = [
    "INSERT INTO users VALUES (99, 'a', 'b', 'c', 'd')",
    "WITH x AS (SELECT 1) INSERT INTO users SELECT 99, 'a', 'b', 'c', 'd'",
    "REPLACE INTO users VALUES (1, 'a', 'b', 'c', 'd')",
    "UPDATE users SET name = 'x'",
    "DELETE FROM users",
    "EXPLAIN DELETE FROM users",
    "DROP TABLE order_items",
    "ALTER TABLE users ADD COLUMN x",
    "CREATE TABLE x (a)",
    "CREATE TEMP TABLE x (a)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE TRIGGER x AFTER INSERT ON users BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE x USING fts5(a)",
    "ATTACH DATABASE '/etc/passwd' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO '/tmp/copy.sqlite'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "SAVEPOINT x",
]


@pytest.mark.parametrize("query", NOT_READING)
def test_only_reading_is_allowed(database: Database, query: str) -> None:
    said = refusal(database, query)

    assert said.startswith("Only reading from the tables is allowed: send one SELECT"), said
    assert "users(id, name, email, city, joined_on)" in said


@pytest.mark.parametrize(
    "query",
    [
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = 1",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA temp_store_directory = '/tmp'",
        "PRAGMA hard_heap_limit = 0",
        "PRAGMA wal_checkpoint",
        "PRAGMA database_list",
    ],
)
def test_no_pragma_changes_or_tells_more_than_the_tables(database: Database, query: str) -> None:
    assert refusal(database, query).startswith("Of the PRAGMAs only those that describe tables")


@pytest.mark.parametrize(
    "call",
    [
        "load_extension('/tmp/x.so')",
        "LOAD_EXTENSION('/tmp/x.so')",
        "printf('%.*c', 2147483647, 'x')",
        "format('%.*c', 2147483647, 'x')",
    ],
)
def test_functions_that_run_code_or_cannot_be_stopped_are_barred(
    database: Database, call: str
) -> None:
    name = call.partition("(")[0].lower()

    assert refusal(database, f"SELECT {call}").startswith(f"The function {name} is not available")


@pytest.mark.parametrize(
    "query", ["SELECT 1; SELECT 2", "SELECT 1; DELETE FROM users", "SELECT 1;;"]
)
def test_two_statements_are_refused(database: Database, query: str) -> None:
    assert "one statement at a time" in refusal(database, query)


@pytest.mark.parametrize("query", ["", " ", ";", "-- nothing", "/* nothing */"])
def test_a_query_without_a_statement_is_refused(database: Database, query: str) -> None:
    assert refusal(database, query) == "There is no statement in the query. Send one SELECT."


def test_nothing_that_was_tried_changed_the_database(database: Database) -> None:
    before = ask(database, "SELECT * FROM users")

    for query in NOT_READING:
        refusal(database, query)

    assert ask(database, "SELECT * FROM users") == before


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", 'SQLite says: near "SELEC": syntax error.'),
        ("SELECT nope FROM users", "SQLite says: no such column: nope."),
        ("SELECT * FROM people", "SQLite says: no such table: people."),
        ("SELECT nope(1)", "SQLite says: no such function: nope."),
        ("SELECT name FROM users, products", "SQLite says: ambiguous column name: name."),
        ("SELECT ?", "SQLite says: Incorrect number of bindings supplied."),
        ("SELECT 1\0", "null character"),
        ("SELECT '\ud800'", "surrogates not allowed"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "SQLite says:"),
        ("SELECT " + ", ".join("1" * 101), "SQLite says: too many columns in result set."),
        ("SELECT 'a' LIKE '" + "%a" * 60 + "'", "SQLite says: LIKE or GLOB pattern too complex."),
        ("SELECT zeroblob(100000000)", "SQLite says: string or blob too big."),
    ],
)
def test_a_mistake_is_explained_with_the_tables(database: Database, query: str, said: str) -> None:
    text = refusal(database, query)

    assert said in text
    assert text.endswith("order_totals(order_id, user_id, total_cents).")


# How much.


def test_a_result_may_have_so_many_rows_and_no_more(database: Database) -> None:
    assert len(ask(database, f"{WITHOUT_END} SELECT i FROM n LIMIT {MAX_ROWS}")) == MAX_ROWS
    assert "Add a LIMIT" in refusal(database, f"{WITHOUT_END} SELECT i FROM n")


def test_a_result_may_have_so_many_characters_and_no_more(database: Database) -> None:
    rows = MAX_RESULT_CHARS // 10_000
    query = f"{WITHOUT_END} SELECT hex(zeroblob(5000)) FROM n LIMIT"

    assert len(ask(database, f"{query} {rows}")) == rows
    assert "Select fewer columns or rows" in refusal(database, f"{query} {rows + 1}")


@pytest.mark.parametrize(
    "query",
    [
        f"{WITHOUT_END} SELECT count(*) FROM n",
        f"{WITHOUT_END} SELECT group_concat(i) FROM n",
        "SELECT count(*) FROM " + ", ".join(f"order_items AS t{n}" for n in range(30)),
    ],
)
def test_a_query_without_end_is_stopped_for_the_reason_given(
    database: Database, query: str
) -> None:
    asked = itertools.count()

    with pytest.raises(ToolError, match=r"^The query was stopped: enough\."):
        run_query(database, query, stop=lambda: "enough." if next(asked) > 5 else None)


def test_a_sort_without_end_runs_out_of_the_memory_that_it_is_given(database: Database) -> None:
    query = f"{WITHOUT_END} SELECT i, randomblob(5000) AS noise FROM n ORDER BY noise"
    asked = itertools.count()

    with pytest.raises(ToolError, match="too much memory"):
        run_query(database, query, stop=lambda: "no limit." if next(asked) > 1000 else None)

    assert ask(database, "SELECT 1") == [[1]]


def test_queries_in_many_threads_do_not_disturb_each_other(database: Database) -> None:
    queries = [f"SELECT sum(id + {n}) FROM orders" for n in range(200)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda query: ask(database, query), queries))

    assert answers == [[[300 + 24 * n]] for n in range(200)]


# As served.


def call(
    client: McpClient, query: str, *, region: str = "eu-west1", header: str | None = ""
) -> Reply:
    mirrored = {"Mcp-Param-Region": region if header == "" else header}
    return client.call("execute_sql", {"region": region, "query": query}, mirrored)


@pytest.mark.parametrize(
    ("region", "city"), [("eu-west1", "Berlin"), ("us-west1", "Portland"), ("asia-east1", "Taipei")]
)
def test_the_region_chooses_the_database(served: McpClient, region: str, city: str) -> None:
    reply = call(served, "SELECT city FROM users WHERE id = 1", region=region)

    assert reply.value == {"columns": ["city"], "rows": [[city]], "row_count": 1}
    assert reply.header("Mcp-Param-Region") == region


@pytest.mark.parametrize("header", [None, "us-west1", "EU-WEST1"])
def test_the_region_in_the_header_must_be_that_of_the_body(
    served: McpClient, header: str | None
) -> None:
    assert call(served, "SELECT 1", header=header).outcome == (400, -32020)


def test_an_unknown_region_is_refused_with_the_known_ones(served: McpClient) -> None:
    reply = call(served, "SELECT 1", region="moon")

    assert reply.is_error
    assert all(region in reply.text for region in REGIONS)


def test_the_model_hears_what_is_wrong_with_its_query(served: McpClient) -> None:
    reply = call(served, "SELECT nme FROM users")

    assert reply.is_error
    assert "no such column: nme" in reply.text


def test_a_runaway_query_ends_before_the_deadline_with_a_reason(hurried: McpClient) -> None:
    reply = call(hurried, f"{WITHOUT_END} SELECT count(*) FROM n")

    assert reply.is_error
    assert "it took too long" in reply.text
