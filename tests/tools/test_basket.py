"""The baskets: a handle that goes from call to call."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.auth.office import api_key, bearer
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.server import ServerFactory
from tests.tools.conftest import TOOLS
from tools.basket import KEPT_S, MAX_ITEMS


def create(client: McpClient) -> str:
    handle: str = client.call("create_basket").value["basket"]
    return handle


def add(client: McpClient, basket: str, product: str, quantity: int = 1) -> None:
    reply = client.call("add_item", {"basket": basket, "product": product, "quantity": quantity})
    assert not reply.is_error, reply.text


def test_a_new_basket_is_empty(served: McpClient) -> None:
    value = served.call("create_basket").value
    assert value["basket"].startswith("basket_")
    assert (value["items"], value["total_eur"]) == ([], "0.00")


def test_what_is_put_into_a_basket_is_there_in_the_next_call(served: McpClient) -> None:
    basket = create(served)
    add(served, basket, "desk lamp", 2)
    add(served, basket, "  Fountain Pen ")
    add(served, basket, "desk lamp")

    assert served.call("get_basket", {"basket": basket}).value == {
        "basket": basket,
        "items": [
            {"product": "desk lamp", "quantity": 3},
            {"product": "fountain pen", "quantity": 1},
        ],
        "total_eur": "129.20",
    }


def test_baskets_are_apart(served: McpClient) -> None:
    one, two = create(served), create(served)
    add(served, one, "rain jacket")
    assert served.call("get_basket", {"basket": two}).value["items"] == []


def test_nothing_is_lost_when_many_put_something_in_at_once(served: McpClient) -> None:
    basket = create(served)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: add(served, basket, "desk lamp"), range(24)))
    (item,) = served.call("get_basket", {"basket": basket}).value["items"]
    assert item["quantity"] == 24


@pytest.mark.parametrize("basket", ["", "basket_", "basket_" + "0" * 48, "ä", "order_1"])
@pytest.mark.parametrize("name", ["get_basket", "add_item"])
def test_a_handle_that_is_not_there_is_an_error_that_helps(
    served: McpClient, name: str, basket: str
) -> None:
    arguments = {"basket": basket}
    if name == "add_item":
        arguments["product"] = "desk lamp"
    reply = served.call(name, arguments)
    assert reply.is_error
    assert reply.text == (
        "There is no such basket: the handle is unknown, has expired or belongs to somebody else. "
        "Create a new one."
    )


@rows(
    "product, quantity, text",
    ("unknown", "spaceship", 1, "Sold are: desk lamp, fountain pen, rain jacket."),
    ("too many", "desk lamp", MAX_ITEMS + 1, "at most 50 pieces"),
)
def test_what_cannot_be_bought_is_refused(
    served: McpClient, product: str, quantity: int, text: str
) -> None:
    arguments = {"basket": create(served), "product": product, "quantity": quantity}
    reply = served.call("add_item", arguments)
    assert reply.is_error
    assert text in reply.text


def test_the_descriptions_say_how_long_a_basket_is_kept(served: McpClient) -> None:
    tools = served.tools()
    for name in ("create_basket", "add_item", "get_basket"):
        assert f"{KEPT_S // 60} minutes" in tools[name]["description"], name


def test_a_basket_belongs_to_who_created_it(server_factory: ServerFactory) -> None:
    (ada, of_ada), (eve, of_eve) = api_key("ada"), api_key("eve")
    config = {
        "tools": {"reload": False},
        "auth": {"api_keys": [of_ada, of_eve], "default": "allow"},
    }
    client = server_factory(TOOLS, config).client
    basket = client.call("create_basket", headers=bearer(ada)).value["basket"]

    def looks(key: str, handle: str) -> str:
        return client.call("get_basket", {"basket": handle}, headers=bearer(key)).text

    assert basket in looks(ada, basket)
    assert looks(eve, basket) == looks(eve, "basket_00")
    assert looks(eve, basket).startswith("There is no such basket")
