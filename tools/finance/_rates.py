"""Exchange rates that ship with the tool: a helper module, not a tool.

Rounded sample rates from about the start of 2025; a demonstration, not a price list.
"""

from datetime import date
from decimal import Decimal
from typing import Final

AS_OF: Final = date(2025, 1, 2)

PER_EURO: Final = {
    "AUD": Decimal("1.66"),
    "BRL": Decimal("6.38"),
    "CAD": Decimal("1.48"),
    "CHF": Decimal("0.938"),
    "CNY": Decimal("7.51"),
    "EUR": Decimal(1),
    "GBP": Decimal("0.83"),
    "INR": Decimal("88.5"),
    "JPY": Decimal("162.1"),
    "SEK": Decimal("11.46"),
    "USD": Decimal("1.03"),
}
"""Units of each currency (ISO 4217) for one euro."""

MINOR_DIGITS: Final = {"JPY": 0}
"""Digits after the point, where they are not two."""


def rate(source: str, target: str) -> Decimal:
    """Units of `target` for one `source`.

    Raises:
        KeyError: A currency that the table does not have.
    """
    return PER_EURO[target] / PER_EURO[source]


def quantum(currency: str) -> Decimal:
    """The smallest amount of a currency, such as 0.01."""
    return Decimal(1).scaleb(-MINOR_DIGITS.get(currency, 2))
