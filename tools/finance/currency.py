"""A tool in a sub-folder: it is served as `finance.currency_converter`."""

from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated

from pydantic import Field

from app import ToolError, tool

from ._rates import AS_OF, PER_EURO, quantum, rate

Currency = Annotated[str, Field(description=f"ISO 4217 code: {', '.join(PER_EURO)}.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    amount: Annotated[Decimal, Field(description="Converted amount, rounded to the smallest coin.")]
    currency: Annotated[str, Field(description="Currency of the converted amount.")]
    rate: Annotated[Decimal, Field(description="Units of it for one unit of the other.")]
    as_of: Annotated[date, Field(description="Day of the rates.")]


@tool(
    title="Convert currencies",
    annotations={"read_only": True, "open_world": False},
)
def currency_converter(
    amount: Annotated[
        Decimal, Field(ge=0, le=10**12, max_digits=24, description="Amount to convert.")
    ],
    from_currency: Currency,
    to_currency: Currency,
) -> Conversion:
    """Convert an amount of money at fixed sample rates (not live ones; see as_of)."""
    source, target = _known(from_currency), _known(to_currency)
    factor = rate(source, target)
    return Conversion(
        amount=(amount * factor).quantize(quantum(target), ROUND_HALF_EVEN),
        currency=target,
        rate=round(factor, 6),
        as_of=AS_OF,
    )


def _known(currency: str) -> str:
    code = currency.strip().upper()
    if code not in PER_EURO:
        raise ToolError(
            f"There is no rate for {currency[:20]!r}. Known currencies: {', '.join(PER_EURO)}."
        )
    return code
