import pytest

from tests.support.client import McpClient
from tools.list_users import USERS, list_users


@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ("", ["u1", "u2", "u3", "u4", "u5"]),
        ("   ", ["u1", "u2", "u3", "u4", "u5"]),
        ("ben", ["u2"]),
        ("CHLOÉ", ["u3"]),
        ("example.org", ["u3", "u5"]),
        ("nobody", []),
        (".*", []),
    ],
)
def test_the_filter_looks_at_names_and_addresses(search: str, ids: list[str]) -> None:
    assert [user["id"] for user in list_users(search=search)] == ids


def test_the_served_result_is_an_array(served: McpClient) -> None:
    assert served.call("list_users", {}).value == list(USERS)


def test_the_output_schema_names_each_part(served: McpClient) -> None:
    schema = served.tools()["list_users"]["outputSchema"]

    assert schema["type"] == "array"
    assert set(schema["items"]["required"]) == {"id", "name", "email"}
