import pytest

from app import ToolError
from tests.support.client import McpClient
from tools.calculate_sum import LARGEST_EXACT_INTEGER, calculate_sum


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (2, 3, 5),
        (-2, 2, 0),
        (0.5, 0.25, 0.75),
        (2, 0.5, 2.5),
        (LARGEST_EXACT_INTEGER - 1, 1, LARGEST_EXACT_INTEGER),
        (-LARGEST_EXACT_INTEGER, 0, -LARGEST_EXACT_INTEGER),
        (1e308, -1e308, 0.0),
    ],
)
def test_two_numbers_add_up_and_integers_stay_integers(a: float, b: float, total: float) -> None:
    found = calculate_sum(a=a, b=b)["sum"]

    assert found == total
    assert type(found) is type(total)


@pytest.mark.parametrize(
    ("a", "b"),
    [(LARGEST_EXACT_INTEGER, 1), (-LARGEST_EXACT_INTEGER, -1), (1e308, 1e308), (10**400, 0.5)],
)
def test_a_sum_that_json_cannot_carry_is_refused(a: float, b: float) -> None:
    with pytest.raises(ToolError, match="too large"):
        calculate_sum(a=a, b=b)


def test_the_schema_says_number_and_nothing_more(served: McpClient) -> None:
    tool = served.tools()["calculate_sum"]

    assert {each["type"] for each in tool["inputSchema"]["properties"].values()} == {"number"}
    assert tool["inputSchema"]["required"] == ["a", "b"]
    assert tool["outputSchema"]["properties"]["sum"]["type"] == "number"


def test_the_served_result_is_structured_and_has_its_json_as_text(served: McpClient) -> None:
    reply = served.call("calculate_sum", {"a": 2, "b": 3})

    assert reply.value == {"sum": 5}
    assert reply.text == '{"sum":5}'


@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": 1, "b": "two"}, {"a": 1, "b": 2, "c": 3}])
def test_arguments_that_do_not_fit_are_refused(
    served: McpClient, arguments: dict[str, object]
) -> None:
    assert served.call("calculate_sum", arguments).is_error
