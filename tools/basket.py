"""A shopping basket that lasts from call to call: a handle is passed as an argument."""

from decimal import Decimal
from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from app import Context, ToolError, tool

KIND: Final = "basket"
KEPT_S: Final = 30 * 60
MAX_ITEMS: Final = 50
PRICES: Final = {
    "desk lamp": Decimal("34.90"),
    "fountain pen": Decimal("24.50"),
    "rain jacket": Decimal("119.00"),
}

Handle = Annotated[str, Field(max_length=100, description="Handle that create_basket returned.")]


class Item(TypedDict):
    """Some pieces of one product."""

    product: str
    quantity: int


class Basket(TypedDict):
    """What is in a basket, and what it costs."""

    basket: str
    items: list[Item]
    total_eur: str


@tool(
    title="Create a basket",
    annotations={"read_only": False, "destructive": False, "open_world": False},
)
async def create_basket(ctx: Context) -> Basket:
    """Create an empty shopping basket and return its handle, which the other basket tools take.

    A basket is kept for 30 minutes after the last change and belongs to whoever created it; then
    it is deleted with what is in it.
    """
    return _shown(await ctx.handles.create(KIND, {}, KEPT_S), {})


@tool(
    title="Add to a basket",
    annotations={"read_only": False, "destructive": False, "open_world": False},
)
async def add_item(
    ctx: Context,
    basket: Handle,
    product: Annotated[
        str, Field(max_length=100, description=f"One of: {', '.join(sorted(PRICES))}.")
    ],
    quantity: Annotated[int, Field(ge=1, le=100, description="How many more of it.")] = 1,
) -> Basket:
    """Put a product into a basket. The basket is then kept for another 30 minutes."""
    name = product.strip().lower()
    if name not in PRICES:
        raise ToolError(f"There is no such product. Sold are: {', '.join(sorted(PRICES))}.")

    def add(items: dict[str, int]) -> dict[str, int]:
        pieces = items.get(name, 0) + quantity
        if sum(items.values()) + quantity > MAX_ITEMS:
            raise ToolError(f"A basket holds at most {MAX_ITEMS} pieces.")
        return {**items, name: pieces}

    return _shown(basket, await ctx.handles.update(KIND, basket, add))


@tool(
    title="Look into a basket",
    annotations={"read_only": True, "open_world": False},
)
async def get_basket(ctx: Context, basket: Handle) -> Basket:
    """What is in a basket, and what it costs. Looking does not keep it longer than 30 minutes."""
    return _shown(basket, await ctx.handles.get(KIND, basket))


def _shown(handle: str, items: dict[str, Any]) -> Basket:
    total = sum((PRICES[name] * count for name, count in items.items()), Decimal(0))
    listed = [Item(product=name, quantity=count) for name, count in sorted(items.items())]
    return Basket(basket=handle, items=listed, total_eur=f"{total:.2f}")
