"""Many callers at once: nobody is taken for another, and nobody gets what is another's."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.auth import office
from tests.auth.office import Headers, bearer, whoami
from tests.support.client import McpClient, Reply, meta, read_reply
from tests.support.issuer import Issuer
from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write_tool

CALLERS: Final = 50
ROUNDS: Final = 6


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=office.RESOURCE, algorithm="ES256") as issuer:
        yield issuer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the office's tools, to be changed."""
    folder = tmp_path_factory.mktemp("office") / "tools"
    return Path(shutil.copytree(office.TOOLS, folder, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="module")
def server(issuer: Issuer, folder: Path, module_server_factory: ServerFactory) -> ServerProcess:
    rules = [*office.POLICIES, {"tools": ["fence"]}]
    return module_server_factory(folder, office.config(issuer.settings(), policies=rules))


def test_one_connection_serves_each_request_as_its_own_caller(
    client: McpClient, issuer: Issuer
) -> None:
    """SN-07."""
    alice, bob = (bearer(issuer.token(sub=name)) for name in ("alice", "bob"))
    with client.connect() as connection:
        for _ in range(3):
            assert whoami(client, alice, connection=connection)["subject"] == "alice"
            assert whoami(client, bob, connection=connection)["subject"] == "bob"
            reply = client.call("whoami", {}, connection=connection)
            assert reply.status == 401
        assert whoami(client, alice, connection=connection)["subject"] == "alice"


def test_a_connection_keeps_no_caller_after_a_refusal(client: McpClient, issuer: Issuer) -> None:
    """SN-07: neither a bad token nor a 403 leaves anything behind."""
    alice = bearer(issuer.token(sub="alice"))
    with client.connect() as connection:
        assert whoami(client, alice, connection=connection)["subject"] == "alice"
        assert client.call("write_notes", {}, alice, connection=connection).status == 403
        assert client.call("whoami", {}, bearer("bad"), connection=connection).status == 401
        assert client.call("whoami", {}, connection=connection).status == 401


def test_requests_that_are_sent_ahead_are_each_answered_to_their_own_caller(
    client: McpClient, issuer: Issuer
) -> None:
    """SN-07, all in one write: nothing of one request stays for the next."""
    people: dict[str, Headers] = {
        "alice": bearer(issuer.token(sub="alice")),
        "nobody": {},
        "bob": bearer(issuer.token(sub="bob")),
    }
    order = ["alice", "bob", "nobody", "alice", "nobody", "bob"]
    params = {"name": "whoami", "arguments": {}}
    with client.connect() as connection:
        requests = (client.request("tools/call", params, people[name]) for name in order)
        connection.send(b"".join(request.encode() for request in requests))
        replies = [read_reply(connection, "tools/call") for _ in order]
    served = [reply.value["subject"] if reply.status == 200 else "nobody" for reply in replies]
    assert served == order


def test_the_body_of_a_refused_request_is_no_request(client: McpClient, issuer: Issuer) -> None:
    """The refusal comes before the body, which looks like a call with a good token."""
    alice = bearer(issuer.token(sub="alice"))
    smuggled = client.request("tools/call", {"name": "whoami", "arguments": {}}, alice, id="in")
    outer = client.request("tools/call", {"name": "whoami"}, body=smuggled.encode())
    following = client.request("tools/list", {}, alice, id="after")
    with client.connect() as connection:
        connection.send_pieces([outer.head()])
        assert connection.read_response().status == 401
        connection.send(outer.body + following.encode())
        assert read_reply(connection, "tools/list").last["id"] == "after"


def test_fifty_connections_mix_callers_and_strangers(client: McpClient, issuer: Issuer) -> None:
    """SN-07."""
    people = {name: bearer(issuer.token(sub=name)) for name in ("alice", "bob")}
    start = threading.Barrier(CALLERS)

    def mix(number: int) -> None:
        order = Random(number).choices([*people, None], k=ROUNDS)  # noqa: S311 - a mixture, and the same each time
        with client.connect() as connection:
            start.wait(10)
            for name in order:
                if name is None:
                    assert client.call("whoami", {}, connection=connection).status == 401
                else:
                    assert whoami(client, people[name], connection=connection)["subject"] == name

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(mix, range(CALLERS)))


def gather(client: McpClient, number: int, who: Headers) -> Reply:
    word = f"word-{number}"
    own = meta(progressToken="the same")
    arguments = {"gathering": "fifty", "word": word, "together": CALLERS}
    return client.call("gather", arguments, who, meta_=own, id=1, timeout_s=20)


def test_fifty_callers_with_equal_ids_each_get_their_own(
    client: McpClient, issuer: Issuer, folder: Path
) -> None:
    """Equal request ids and progress tokens; every call runs while all the others do.

    Each caller listens too, with the same id: what the calls say reaches no listener.
    """
    people = [bearer(issuer.token(sub=f"caller-{number}")) for number in range(CALLERS)]
    with ExitStack() as stack:
        streams = [stack.enter_context(client.listening(id=1, headers=who)) for who in people]
        with ThreadPoolExecutor(CALLERS) as pool:
            replies = list(pool.map(gather, [client] * CALLERS, range(CALLERS), people))
        write_tool(folder, "fence")
        for stream in streams:
            # A change that concerns all, so the first message of each shows that none came before.
            assert stream.next()["method"] == "notifications/tools/list_changed"
    for number, reply in enumerate(replies):
        assert reply.last["id"] == 1
        assert reply.value == {"subject": f"caller-{number}", "word": f"word-{number}"}
        progress = reply.notifications("notifications/progress")
        assert progress
        assert {each["message"] for each in progress} == {f"caller-{number}:word-{number}"}
        assert {each["progressToken"] for each in progress} == {"the same"}
