from decimal import Decimal

import pytest

from app import ToolError
from tests.support.client import McpClient
from tools.finance._rates import AS_OF, PER_EURO, quantum, rate
from tools.finance.currency import currency_converter


@pytest.mark.parametrize(
    ("amount", "source", "target", "converted"),
    [
        ("100", "EUR", "USD", "103.00"),
        ("100", "eur", " usd ", "103.00"),
        ("103", "USD", "EUR", "100.00"),
        ("10", "EUR", "JPY", "1621"),
        ("0.01", "JPY", "EUR", "0.00"),
        ("1", "GBP", "USD", "1.24"),
        ("0.005", "EUR", "EUR", "0.00"),  # half to even
        ("0.015", "EUR", "EUR", "0.02"),
        ("0", "EUR", "USD", "0.00"),
        ("1000000000000", "EUR", "INR", "88500000000000.00"),
    ],
)
def test_an_amount_is_converted_and_rounded_to_the_smallest_coin(
    amount: str, source: str, target: str, converted: str
) -> None:
    answer = currency_converter(amount=Decimal(amount), from_currency=source, to_currency=target)

    assert str(answer.amount) == converted
    assert answer.currency == target.strip().upper()
    assert answer.as_of == AS_OF


@pytest.mark.parametrize("unknown", ["XXX", "", "euro", "€", "x" * 1000])
def test_an_unknown_currency_is_refused_with_the_known_ones(unknown: str) -> None:
    with pytest.raises(ToolError) as refused:
        currency_converter(amount=Decimal(1), from_currency="EUR", to_currency=unknown)

    assert "Known currencies: AUD, BRL, CAD" in str(refused.value)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("currency", PER_EURO)
def test_there_and_back_is_the_same_amount(currency: str) -> None:
    assert rate("EUR", currency) * rate(currency, "EUR") == pytest.approx(Decimal(1))


@pytest.mark.parametrize(("currency", "smallest"), [("EUR", "0.01"), ("JPY", "1")])
def test_a_currency_has_a_smallest_coin(currency: str, smallest: str) -> None:
    assert quantum(currency) == Decimal(smallest)


def test_the_folder_is_the_prefix_and_the_helper_is_no_tool(served: McpClient) -> None:
    assert [name for name in served.tools() if name.startswith("finance")] == [
        "finance.currency_converter"
    ]


@pytest.mark.parametrize("amount", [19.99, "19.99"])
def test_amounts_are_exact_whether_numbers_or_strings(
    served: McpClient, amount: float | str
) -> None:
    reply = served.call(
        "finance.currency_converter",
        {"amount": amount, "from_currency": "EUR", "to_currency": "USD"},
    )

    assert reply.value == {
        "amount": "20.59",
        "currency": "USD",
        "rate": "1.030000",
        "as_of": AS_OF.isoformat(),
    }


@pytest.mark.parametrize("amount", [-1, 1e13, "NaN", "many", None])
def test_an_amount_that_is_none_is_refused(served: McpClient, amount: object) -> None:
    reply = served.call(
        "finance.currency_converter",
        {"amount": amount, "from_currency": "EUR", "to_currency": "USD"},
    )

    assert reply.is_error
