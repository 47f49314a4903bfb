"""A listener is told what concerns it, and only while its credential counts (LC-11)."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.auth import office
from tests.auth.office import Headers, Json, api_key, bearer
from tests.support.client import McpClient, Stream
from tests.support.issuer import Issuer
from tests.support.server import ServerFactory, ServerProcess, toml
from tests.support.toolfiles import write, write_tool
from tests.support.waiting import eventually

CHANGED: Final = "notifications/tools/list_changed"
KEEP_ALIVE_S: Final = 0.2
SOON_S: Final = 5.0
EVERYBODYS: Final = {"tools": ["ours"]}
ALICES: Final = {"tools": ["a_*"], "requires": {"roles": ["a"]}}
BOBS: Final = {"tools": ["b_*"], "requires": {"roles": ["b"]}}
RULES: Final = (EVERYBODYS, ALICES, BOBS)
A_KEY, A_TABLE = api_key("a", roles=["a"])
B_KEY, B_TABLE = api_key("b", roles=["b"])
A: Final[Headers] = {"X-API-Key": A_KEY}
B: Final[Headers] = {"X-API-Key": B_KEY}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=office.RESOURCE, algorithm="ES256") as issuer:
        yield issuer


def settings(issuer: Issuer, *rules: Mapping[str, Json], **auth: Json) -> dict[str, Json]:
    return office.config(
        issuer.settings(leeway_s=0),
        policies=rules or RULES,
        auth={"api_keys": [A_TABLE, B_TABLE], **auth},
        execution={"keep_alive_s": KEEP_ALIVE_S},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    for name in ("ours", "a_tool", "b_tool"):
        write_tool(folder, name)
    return folder


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of keys, as a secret that is mounted."""
    return write(tmp_path_factory.mktemp("secrets") / "keys.toml", "")


@pytest.fixture(scope="module")
def shared(
    issuer: Issuer, folder: Path, keys_file: Path, module_server_factory: ServerFactory
) -> ServerProcess:
    return module_server_factory(folder, settings(issuer, api_keys_file=str(keys_file)))


@pytest.fixture
def server(shared: ServerProcess, issuer: Issuer, keys_file: Path) -> ServerProcess:
    """The server with the rules it began with."""
    shared.write_config(settings(issuer, api_keys_file=str(keys_file)))
    eventually(lambda: sees(shared.client, A) == {"ours", "a_tool"}, "the first rules", SOON_S)
    eventually(lambda: sees(shared.client, B) == {"ours", "b_tool"}, "the first rules", SOON_S)
    return shared


def sees(client: McpClient, who: Headers) -> set[str]:
    reply = client.ask("tools/list", {}, who)
    return set() if reply.status != 200 else {tool["name"] for tool in reply.result["tools"]}


def hears_change(stream: Stream) -> None:
    assert stream.next(SOON_S)["method"] == CHANGED


def is_quiet(stream: Stream) -> None:
    """For the time of two signs of life."""
    office.is_quiet(stream, 2 * KEEP_ALIVE_S)


def ends(stream: Stream) -> None:
    """It ends with its result, and nothing else comes before the end."""
    (last,) = stream.rest(SOON_S)
    assert last["result"]["resultType"] == "complete"


# -- the end -------------------------------------------------------------------------------


def test_a_stream_ends_soon_after_its_token(
    server: ServerProcess, issuer: Issuer, folder: Path
) -> None:
    """LC-11: not before it, and what changes later is told to others alone."""
    expiry = int(time.time()) + 2
    passing = bearer(issuer.token(exp=expiry, roles=["a"]))
    staying = bearer(issuer.token(roles=["a"]))
    with (
        server.client.listening(headers=passing) as stream,
        server.client.listening(headers=staying) as other,
    ):
        ends(stream)
        assert expiry <= time.time() <= expiry + 2
        write_tool(folder, "a_tool", description=f"Changed at {expiry}.")
        hears_change(other)
    assert server.client.call("ours", {}, passing).status == 401


def test_streams_end_whose_credentials_count_no_longer(
    server: ServerProcess, issuer: Issuer
) -> None:
    """LC-11: keys and tokens that are taken back in different ways; all others listen on."""
    names = ("removed", "revoked", "with-new-secret", "expired")
    keys = {name: api_key(name, roles=["a"]) for name in names}
    server.write_config(
        settings(issuer, api_keys=[A_TABLE, *(table for _, table in keys.values())])
    )
    who: dict[str, Headers] = {name: {"X-API-Key": key} for name, (key, _) in keys.items()}
    who["token"] = bearer(issuer.token(jti="t-1", roles=["a"]))
    other = bearer(issuer.token(jti="t-2", roles=["a"]))
    for headers in who.values():
        eventually(lambda: sees(server.client, headers), "the new keys", SOON_S)  # noqa: B023
    after = [
        A_TABLE,
        keys["revoked"][1],
        api_key("with-new-secret", roles=["a"])[1],
        {**keys["expired"][1], "expires_at": datetime.now(UTC).isoformat()},
    ]
    with ExitStack() as stack:
        leaving = [
            stack.enter_context(server.client.listening(headers=each)) for each in who.values()
        ]
        staying = [
            stack.enter_context(server.client.listening(headers=each)) for each in (A, other)
        ]
        server.write_config(settings(issuer, api_keys=after, revoked=["revoked", "t-1"]))
        for stream in leaving:
            ends(stream)
        for stream in staying:
            is_quiet(stream)
    assert {name: server.client.call("ours", {}, each).status for name, each in who.items()} == (
        dict.fromkeys(who, 401)
    )
    assert server.client.call("ours", {}, other).status == 200


def test_a_file_of_keys_that_was_named_later_is_watched_as_well(
    server: ServerProcess, issuer: Issuer, tmp_path: Path
) -> None:
    key, table = api_key("late", roles=["a"])
    who: Headers = {"X-API-Key": key}
    file = write(tmp_path / "later.toml", toml({"api_keys": [table]}))
    server.write_config(settings(issuer, api_keys_file=str(file)))
    eventually(lambda: sees(server.client, who), "the new file", SOON_S)

    write(file, "")

    eventually(lambda: not sees(server.client, who), "that the key is gone", SOON_S)


def test_a_stream_ends_when_its_key_is_no_longer_in_the_file_of_keys(
    server: ServerProcess, keys_file: Path
) -> None:
    """The configuration stays as it is."""
    (leaver, leaver_table), (stayer, stayer_table) = api_key("leaver"), api_key("stayer")
    write(keys_file, toml({"api_keys": [leaver_table, stayer_table]}))
    leaving: Headers = {"X-API-Key": leaver}
    staying: Headers = {"X-API-Key": stayer}
    eventually(lambda: sees(server.client, leaving), "the keys of the file", SOON_S)
    with (
        server.client.listening(headers=leaving) as stream,
        server.client.listening(headers=staying) as other,
    ):
        write(keys_file, toml({"api_keys": [stayer_table]}))
        ends(stream)
        is_quiet(other)
    assert server.client.call("ours", {}, leaving).status == 401


def test_a_stream_ends_when_its_issuer_is_believed_no_longer(
    server: ServerProcess, issuer: Issuer
) -> None:
    who = bearer(issuer.token(roles=["a"]))
    with server.client.listening(headers=who) as stream, server.client.listening(headers=B) as b:
        server.write_config(settings(issuer, issuers=[]))
        ends(stream)
        is_quiet(b)
    assert server.client.call("ours", {}, who).status == 401


# -- what is heard ----------------------------------------------------------------------------


def test_a_change_of_rights_is_heard_by_whom_it_concerns(
    server: ServerProcess, issuer: Issuer
) -> None:
    """By a rule, or by a key that has fewer roles or others; and once, by those alone."""
    fewer, fewer_table = api_key("fewer", roles=["a"])
    others, others_table = api_key("others", roles=["a"])
    server.write_config(settings(issuer, api_keys=[A_TABLE, B_TABLE, fewer_table, others_table]))
    concerned: list[Headers] = [B, {"X-API-Key": fewer}, {"X-API-Key": others}]
    for headers in concerned:
        eventually(lambda: sees(server.client, headers), "the new keys", SOON_S)  # noqa: B023
    after = [A_TABLE, B_TABLE, {**fewer_table, "roles": []}, {**others_table, "roles": ["z"]}]
    moved = {**BOBS, "requires": {"roles": ["z"]}}
    with ExitStack() as stack:
        quiet = stack.enter_context(server.client.listening(headers=A))
        streams = [stack.enter_context(server.client.listening(headers=each)) for each in concerned]
        server.write_config(settings(issuer, EVERYBODYS, ALICES, moved, api_keys=after))
        for stream in streams:
            hears_change(stream)
        for stream in (quiet, *streams):
            is_quiet(stream)
    found = [sees(server.client, each) for each in concerned]
    assert found == [{"ours"}, {"ours"}, {"ours", "b_tool"}]


def test_a_rule_that_changes_nobodys_list_is_heard_by_nobody(
    server: ServerProcess, issuer: Issuer
) -> None:
    """An argument rule gates the call alone; the new rules are in force all the same."""
    gated = {**ALICES, "conditions": {"networks": ["10.0.0.0/8"]}}
    with server.client.listening(headers=A) as a, server.client.listening(headers=B) as b:
        server.write_config(settings(issuer, EVERYBODYS, gated, BOBS))
        eventually(
            lambda: server.client.call("a_tool", {}, A).status == 403, "the new rule", SOON_S
        )
        is_quiet(a)
        is_quiet(b)


def test_a_new_definition_is_heard_by_those_who_see_the_tool(
    server: ServerProcess, folder: Path
) -> None:
    with server.client.listening(headers=A) as a, server.client.listening(headers=B) as b:
        write_tool(folder, "b_tool", description=f"Changed at {time.time()}.")
        hears_change(b)
        is_quiet(a)


def test_hours_are_told_of_where_files_are_not_watched(
    issuer: Issuer, server_factory: ServerFactory, folder: Path
) -> None:
    timed = {**ALICES, "conditions": {"days": ["mon-fri"]}}
    fixed = settings(issuer, EVERYBODYS, timed, BOBS) | {"tools": {"reload": False}}
    client = server_factory(folder, fixed).client
    assert client.ask("server/discover", {}, A).result["capabilities"]["tools"]["listChanged"]
    with client.listening(headers=A) as stream:
        is_quiet(stream)


def test_callers_without_a_credential_leave_places_to_those_who_have_one(
    issuer: Issuer, server_factory: ServerFactory, folder: Path
) -> None:
    crowded = settings(issuer, allow_unauthenticated=True) | {"limits": {"listen_streams": 4}}
    client = server_factory(folder, crowded).client
    with ExitStack() as stack:
        for headers in ({}, {}, A, B):
            stack.enter_context(client.listening(headers=headers))
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(client.listening())
        params = {"notifications": {"toolsListChanged": True}}
        refused = client.ask("subscriptions/listen", params)
        assert refused.outcome == (503, -31503)
        assert "without a credential" in refused.error["message"]
        stack.enter_context(client.listening(headers=A))


CLOCK: Final = """
import time
from pathlib import Path

released = Path({released!r})
time.time = lambda: {after} if released.exists() else {before}
"""


def test_the_edge_of_a_time_window_is_heard(
    issuer: Issuer, server_factory: ServerFactory, folder: Path, tmp_path: Path
) -> None:
    """Windows begin with a minute: the process is given a clock that waits just before one."""
    lead_s = 3
    edge = (int(time.time()) // 60 + 1) * 60
    released = tmp_path / "released"
    clock = CLOCK.format(released=str(released), before=edge - lead_s, after=edge)
    write(tmp_path / "sitecustomize.py", clock)
    begin, end = (datetime.fromtimestamp(each, UTC) for each in (edge, edge + 3600))
    timed = {**ALICES, "conditions": {"time": f"{begin:%H:%M}-{end:%H:%M}"}}
    rules = settings(issuer, EVERYBODYS, timed, BOBS) | {"tools": {"list_ttl_ms": 60_000}}
    client = server_factory(folder, rules, env={"PYTHONPATH": str(tmp_path)}).client
    with client.listening(headers=A) as a, client.listening(headers=B) as b:
        before = client.ask("tools/list", {}, A).result
        assert {tool["name"] for tool in before["tools"]} == {"ours"}
        assert 0 < before["ttlMs"] <= lead_s * 1000
        released.touch()
        sees(client, B)  # whoever comes first after the edge must not take the news from the others
        hears_change(a)
        assert sees(client, A) == {"ours", "a_tool"}
        is_quiet(b)


def test_rights_that_an_issuer_narrows_are_narrowed_for_listeners_too(
    server_factory: ServerFactory, folder: Path
) -> None:
    """Only the issuer knows; its answer is asked for again, and the stream goes on."""
    with Issuer(audience=office.RESOURCE) as issuer:
        asked = issuer.introspection_settings(cache_s=0.2)
        client = server_factory(
            folder, settings(issuer) | {"auth": {"issuers": [issuer.settings(introspection=asked)]}}
        ).client
        token = issuer.opaque_token(roles=["a"])
        with client.listening(headers=bearer(token)) as stream:
            assert sees(client, bearer(token)) == {"ours", "a_tool"}
            issuer.opaque[token] = {**issuer.opaque[token], "roles": []}
            assert stream.next(15)["method"] == CHANGED
            assert sees(client, bearer(token)) == {"ours"}
