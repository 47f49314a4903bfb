import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from tests.support.client import McpClient, Reply, meta
from tools.export_report import COLUMNS, MAX_ROWS


def export(client: McpClient, **arguments: Any) -> Reply:
    return client.call("export_report", {"seconds": 0, **arguments}, timeout_s=30)


def rows_of(reply: Reply) -> list[dict[str, str]]:
    (resource,) = [block["resource"] for block in reply.result["content"][1:]]
    assert resource["mimeType"] == "text/csv"
    return list(csv.DictReader(io.StringIO(resource["text"])))


@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (1, 100), (7, 3), (100, 7), (MAX_ROWS, 1)])
def test_the_file_has_as_many_rows_as_asked_for(served: McpClient, rows: int, steps: int) -> None:
    reply = export(served, rows=rows, steps=steps)

    found = rows_of(reply)
    assert len(found) == rows
    assert list(found[0]) == list(COLUMNS)
    assert [int(row["order"]) for row in found] == list(range(1, rows + 1))


def test_the_summary_agrees_with_the_file(served: McpClient) -> None:
    reply = export(served, rows=50)

    revenue = sum(Decimal(row["revenue"]) for row in rows_of(reply))
    assert reply.text == f"Exported 50 rows with a revenue of {revenue} in total."


def test_the_same_rows_come_every_time(served: McpClient) -> None:
    assert rows_of(export(served, rows=20, steps=2)) == rows_of(export(served, rows=20, steps=5))


def test_the_file_is_meant_for_the_user(served: McpClient) -> None:
    _, file = export(served, rows=1).result["content"]

    assert file["annotations"] == {"audience": ["user"]}
    assert file["resource"]["uri"] == "report://sales.csv"


def test_progress_rises_to_the_number_of_rows(served: McpClient) -> None:
    reply = served.call(
        "export_report",
        {"rows": 40, "steps": 4, "seconds": 1},
        meta_=meta(progressToken="report"),
        timeout_s=30,
    )

    progress = reply.notifications("notifications/progress")
    done = [each["progress"] for each in progress]
    assert done == sorted(set(done))
    assert set(done) <= {10, 20, 30, 40}
    assert len(done) >= 2
    assert {each["total"] for each in progress} == {40}
    assert progress[0]["message"] == f"{done[0]} of 40 rows"
    assert len(rows_of(reply)) == 40


@pytest.mark.parametrize(
    "arguments", [{"rows": 0}, {"rows": MAX_ROWS + 1}, {"steps": 0}, {"seconds": 61}]
)
def test_what_is_out_of_bounds_is_refused(served: McpClient, arguments: dict[str, int]) -> None:
    assert export(served, **arguments).is_error
