"""While rules and keys are replaced under load, no call passes that neither version allows."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.auth import office
from tests.auth.office import Headers, api_key, key_table
from tests.support.client import McpClient
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write, write_tool
from tests.support.waiting import eventually

SOON_S: Final = 5.0
SWAPS: Final = 4
TOOL: Final = "finance.pay"
KEYS: Final = {name: api_key(name)[0] for name in ("a", "b", "c", "turncoat")}
WHO: Final[dict[str, Headers]] = {name: {"X-API-Key": key} for name, key in KEYS.items()}
PASSED: Final = 200


def version(allowed: str, turncoat: str) -> dict[str, Any]:
    """Rules and keys of one version.

    Args:
        allowed: The role that may call; `a` and `b` have the role of their name.
        turncoat: The role of one whose key changes together with the rules.
    """
    roles = {"a": "a", "b": "b", "c": "c", "turncoat": turncoat}
    tables = [key_table(name, key, roles=[roles[name]]) for name, key in KEYS.items()]
    rules: list[dict[str, Any]] = [
        {"tools": [TOOL], "requires": {"roles": [allowed]}},
        {"tools": ["whoami"]},
    ]
    return office.config(policies=rules, auth={"api_keys": tables})


# In neither version may `c` call, nor the turncoat: it has the role of `b` while `a` may, and
# that of `a` while `b` may. Only old rules with new keys, or new with old ones, would let it in.
VERSIONS: Final = (version("a", turncoat="b"), version("b", turncoat="a"))


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> ServerProcess:
    return module_server_factory(office.TOOLS, VERSIONS[0])


def pay(client: McpClient, who: Headers, **how: Any) -> int:
    return client.call(TOOL, {"amount": 1}, who, **how).status


def swap(server: ServerProcess, number: int) -> None:
    """Put a version into force, and see that it is."""
    server.write_config(VERSIONS[number % 2])
    welcome = "ab"[number % 2]
    eventually(lambda: pay(server.client, WHO[welcome]) == PASSED, "the new rules", SOON_S)


def test_rules_that_alternate_under_load_let_nobody_in_by_mistake(server: ServerProcess) -> None:
    swap(server, 0)
    outcomes: Counter[tuple[str, int]] = Counter()
    over = threading.Event()

    def work(name: str) -> None:
        client = server.client
        with client.connect() as connection:
            while not over.is_set():
                outcomes[name, pay(client, WHO[name], connection=connection)] += 1

    with ThreadPoolExecutor(len(WHO)) as pool:
        workers = [pool.submit(work, name) for name in WHO]
        try:
            for number in range(1, SWAPS + 1):
                swap(server, number)
        finally:
            over.set()
        for worker in workers:
            worker.result()
    assert set(outcomes) == {
        *(("a", status) for status in (PASSED, 400)),
        *(("b", status) for status in (PASSED, 400)),
        ("c", 400),
        ("turncoat", 400),
    }
    assert min(outcomes.values()) > 10, outcomes


def begun(client: McpClient, who: Headers) -> Callable[[], int]:
    """A call whose head the server has; calling the value finishes it and gives the status."""
    connection = client.connect()
    request = client.request("tools/call", {"name": TOOL, "arguments": {"amount": 1}}, who)
    connection.send_pieces([request.head()])

    def finish() -> int:
        with connection:
            connection.send(request.body)
            return connection.read_response().status

    return finish


def test_a_call_that_arrives_slowly_meets_the_rules_of_its_end(server: ServerProcess) -> None:
    """Who calls is known by the head, the tool by the body: in between both may change."""
    swap(server, 0)
    finish = {name: begun(server.client, WHO[name]) for name in WHO}
    swap(server, 1)
    assert {name: call() for name, call in finish.items()} == {
        "a": 400,
        "b": PASSED,
        "c": 400,
        "turncoat": 400,
    }


def test_a_key_that_is_removed_while_its_call_arrives_is_refused(server: ServerProcess) -> None:
    swap(server, 0)
    finish = begun(server.client, WHO["a"])
    without = office.config(
        policies=VERSIONS[0]["policies"],
        auth={"api_keys": VERSIONS[0]["auth"]["api_keys"][1:]},
    )
    server.write_config(without)
    eventually(lambda: pay(server.client, WHO["a"]) == 401, "the removal", SOON_S)
    assert finish() == 401


def test_a_key_is_taken_back_while_a_file_of_tools_hangs(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """Importing it never ends; whoever takes a right away does not wait for it."""
    write_tool(tmp_path, "ours")
    key, table = api_key("gone")
    other, kept = api_key("kept")
    with_key, without = ({"auth": {"api_keys": keys}} for keys in ([table, kept], [kept]))
    server = server_factory(tmp_path, with_key)
    client = server.client
    assert client.call("ours", {}, {"X-API-Key": key}).status == 200
    begun = tmp_path / "begun"
    write(
        tmp_path / "hangs.py",
        f"import threading\n\nopen({str(begun)!r}, 'w').close()\nthreading.Event().wait()\n",
    )
    eventually(begun.exists, "that the import has begun")

    server.write_config(without)

    eventually(lambda: client.call("ours", {}, {"X-API-Key": key}).status == 401, "the removal", 5)
    assert client.call("ours", {}, {"X-API-Key": other}).status == 200
