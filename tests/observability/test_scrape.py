"""`GET /metrics`: what a server counts, and nothing that a client could choose."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from app.execution.execution import Outcome
from app.methods.record import LABELS
from app.observability import metrics
from app.observability.counting import OTHER
from tests.auth.office import Headers, key_table
from tests.observability.watched import (
    ADA,
    ADMIN,
    KEYS,
    Watched,
    call_as_older_client,
    call_in_every_way,
    watched,
)
from tests.support.cases import rows
from tests.support.client import meta
from tests.support.scraped import Scrape, scraped
from tests.support.stores import RedisServer
from tests.support.toolfiles import write, write_tool
from tests.support.waiting import eventually

CALLS = "mcp_tool_calls_total"
OUTCOMES = {value for name, value in vars(Outcome).items() if name.isupper()} | {
    *("denied", "limited", "protocol_error")
}
WORDS = "evil" * 3000
HOSTILE = ("evil", WORDS, 'evil"} 1\n# TYPE evil counter', "evil\u2028\x00\x1b[31m", "é vil")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def server(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A server that the load has gone over."""
    with watched(tmp_path_factory.mktemp("watched"), redis) as found:
        call_in_every_way(found.client)
        call_as_older_client(found.server)
        yield found


@pytest.fixture(scope="module")
def found(server: Watched) -> Scrape:
    """What it has counted then."""
    return server.scrape()


@rows(
    "tool, outcome, count",
    ("a good call, twice repeated, of both eras", "add", "ok", 3 + 2 + 2),
    ("a kept result", "kept", "ok", 3),
    ("a retried one", "flaky", "ok", 1),
    ("an error for the model, of both eras", "refuse", "tool_error", 2),
    ("a bug", "fail", "internal_error", 1),
    ("a deadline", "hang", "timeout", 1),
    ("a deadline in a thread", "hang_in_thread", "timeout", 1),
    ("a crash", "crash", "internal_error", 1),
    ("a question", "ask", "input_required", 1),
    ("a right that lacks", "secret", "denied", 1),
    ("the first of a limit", "seldom", "ok", 1),
    ("the second", "seldom", "limited", 1),
    ("a name that there is not", metrics.UNKNOWN, "protocol_error", 2),
)
def test_calls_are_counted_by_tool_and_outcome(
    found: Scrape, tool: str, outcome: str, count: int
) -> None:
    assert found.get(CALLS, tool=tool, outcome=outcome) == count


def test_times_are_those_of_calls_that_were_not_refused(found: Scrape) -> None:
    counted = "mcp_response_time_seconds_count"

    assert found.get(counted, tool="add") == 7
    assert found.get(counted, tool="secret") == 0
    assert found.get("mcp_response_time_seconds_bucket", tool="hang", le="0.1") == 0
    assert found.get("mcp_response_time_seconds_bucket", tool="hang", le="5.0") == 1
    assert 0.1 < found.get("mcp_response_time_seconds_sum", tool="hang") < 10


@rows(
    "labels, count",
    ("lists", {"method": "tools/list", "era": "modern", "status": "200"}, 1),
    ("another method", {"method": "(unknown)", "era": "modern", "status": "404"}, 1),
    ("no JSON", {"method": "(none)", "era": "(none)", "status": "400"}, 2),
    ("a limit", {"method": "tools/call", "era": "modern", "status": "429"}, 1),
    ("a batch", {"method": "batch", "era": "initialize", "status": "200"}, 1),
    ("its parts", {"method": "tools/call", "era": "initialize", "status": "(none)"}, 3),
    ("a session", {"method": "initialize", "era": "initialize", "status": "200"}, 1),
)
def test_requests_are_counted_by_method_era_and_status(
    found: Scrape, labels: dict[str, str], count: int
) -> None:
    assert found.get("mcp_requests_total", **labels) == count


@rows(
    "name, labels, least",
    ("a good key", "mcp_authentications_total", {"outcome": "ok"}, 20),
    ("no key", "mcp_authentications_total", {"outcome": "missing"}, 1),
    ("a wrong one", "mcp_authentications_total", {"outcome": "invalid"}, 1),
    ("an old one", "mcp_authentications_total", {"outcome": "expired"}, 1),
    ("none in its place", "mcp_authentications_total", {"outcome": "malformed"}, 1),
    ("one that does not permit it", "mcp_authentications_total", {"outcome": "denied"}, 1),
    ("a limit", "mcp_limited_total", {"setting": "rate_limit"}, 1),
    ("a hit", "mcp_cache_lookups_total", {"result": "hit"}, 2),
    ("a miss", "mcp_cache_lookups_total", {"result": "miss"}, 1),
    ("what is kept", "mcp_cache_bytes", {}, 100),
    ("a crash", "mcp_processes_killed_total", {"reason": "crash"}, 1),
    ("progress", "mcp_notifications_sent_total", {"method": "notifications/progress"}, 2),
    ("the loop", "mcp_event_loop_lag_seconds_count", {}, 1),
    ("the store", "mcp_state_operation_seconds_count", {"operation": "admit"}, 5),
    ("room for calls", "mcp_calls_limit", {}, 1000),
    ("room for threads", "mcp_threads_limit", {"state": "busy"}, 2),
    ("tools", "mcp_tools", {}, 14),
    ("the process", "mcp_server_processes", {}, 1),
    ("its memory", "process_resident_memory_bytes", {}, 10_000_000),
    ("its time", "process_cpu_seconds_total", {}, 0.1),
    ("its files", "process_open_fds", {}, 5),
)
def test_there_is_as_much_as_there_was(
    found: Scrape, name: str, labels: dict[str, str], least: float
) -> None:
    assert found.get(name, **labels) >= least


def test_every_family_is_told_by_both_formats(server: Watched) -> None:
    plain = server.get()
    other = server.get(headers={"Accept": "application/openmetrics-text;version=1.0.0"})

    for response, kind in ((plain, "text/plain"), (other, "application/openmetrics-text")):
        assert str(response.header("content-type")).startswith(kind)
        assert response.header("cache-control") == "no-store"
        names = scraped(response.body.decode(), is_openmetrics=kind != "text/plain").names
        assert metrics.FAMILIES.keys() <= names | {name.removesuffix("_bucket") for name in names}


# -- what changes -------------------------------------------------------------


def test_threads_that_are_left_behind_end_at_last(server: Watched) -> None:
    def abandoned() -> float | None:
        return server.scrape().get("mcp_threads", state="abandoned")

    eventually(lambda: abandoned() == 0, "those of the tests before have ended")
    server.client.call("hang_in_thread", {"seconds": 3}, ADA)
    assert abandoned() == 1
    eventually(lambda: abandoned() == 0, "the thread has ended")


def test_listeners_and_what_they_are_told_are_counted(server: Watched) -> None:
    before = server.scrape()
    with server.client.listening(headers=ADA) as stream:
        assert server.scrape().get("mcp_listen_streams") == 1
        write_tool(server.tools, "more")
        assert stream.next(20)["method"] == "notifications/tools/list_changed"
        write(server.tools / "more.py", "def more(:\n")
        eventually(
            lambda: server.scrape().get("mcp_tool_problems", severity="error") == 1,
            "the broken file is known",
        )
    after = server.scrape()

    changed = {"what": "tools", "result": "changed"}
    assert after.get("mcp_reloads_total", **changed) == 1 + before.get(
        "mcp_reloads_total", **changed
    )
    told = {"method": "notifications/tools/list_changed"}
    assert after.get("mcp_notifications_sent_total", **told) == 1
    prints = [scrape.labels("mcp_catalog_info", "fingerprint") for scrape in (before, after)]
    assert len(prints[0]) == len(prints[1]) == 1 and prints[0] != prints[1]
    eventually(lambda: server.scrape().get("mcp_listen_streams") == 0, "the listener has gone")


def test_settings_that_cannot_be_used_are_counted(server: Watched) -> None:
    before = server.server.config_path.read_text()
    server.server.write_config(before + "\n[nonsense]\na = 1\n")
    eventually(
        lambda: server.scrape().get("mcp_reloads_total", what="settings", result="failed"),
        "the broken settings were noticed",
    )
    server.server.write_config(before)


def test_a_tool_that_is_switched_off_is_no_changed_file(server: Watched) -> None:
    before = server.scrape()
    name = next(iter(server.client.tools(headers=ADA)))
    url = f"http://{server.admin.authority}/admin/v1/tools/{name}/switch"
    own = {"X-API-Key": KEYS["admin"]}
    for enabled in (False, True):
        body = {"enabled": enabled}
        assert httpx2.put(url, json=body, headers=own, trust_env=False).status_code == 200
    after = server.scrape()

    def reloads(scrape: Scrape, what: str) -> float:
        return scrape.get("mcp_reloads_total", what=what, result="changed")

    assert reloads(after, "switches") == reloads(before, "switches") + 2
    assert reloads(after, "settings") == reloads(before, "settings")


def test_a_key_that_was_revoked_is_told_apart(server: Watched) -> None:
    body = {"issuer": "api-key", "id": "gone"}
    url = f"http://{server.admin.authority}/admin/v1/credentials/revoke"
    own = {"X-API-Key": KEYS["admin"]}
    assert httpx2.post(url, json=body, headers=own, trust_env=False).status_code == 200

    assert server.client.call("add", {"a": 1}, {"X-API-Key": KEYS["gone"]}).status == 401
    assert server.scrape().get("mcp_authentications_total", outcome="revoked") == 1


# -- what clients say ---------------------------------------------------------


def test_no_word_of_a_client_becomes_a_label(server: Watched) -> None:
    client = server.client
    for word in HOSTILE:
        client.call(word, {}, ADA)
        client.ask("tools/list", {}, ADA, id=word)
        client.ask(word[:5000], {}, {**ADA, "Mcp-Method": "x"})
        client.call("add", {word: 1}, ADA, meta_=meta(clientInfo={"name": word, "version": word}))
        client.ask("tools/list", {}, {"Authorization": f"Bearer {word.encode()!r}"[:7000]})
        client.get("/mcp", {"Mcp-Session-Id": "evil", "X-API-Key": "evil"})
        server.get(f"/metrics?evil={len(word)}", {"Accept": "evil/evil"})
    text = server.get().body.decode()
    now = scraped(text)

    assert "evil" not in text
    assert now.labels(CALLS, "outcome") <= OUTCOMES
    assert now.labels("mcp_requests_total", "method") <= {*LABELS, metrics.UNKNOWN, metrics.NONE}
    assert now.labels("mcp_requests_total", "era") == {"modern", "initialize", metrics.NONE}


@rows(
    "headers, status",
    ("a foreign host", {"Host": "evil.example.com"}, 421),
    ("a foreign origin", {"Origin": "https://evil.example.com"}, 403),
    ("an origin that is none", {"Origin": "null"}, 403),
    ("its own name", {"Host": "localhost"}, 200),
    ("a page of this machine", {"Origin": "http://localhost:3000"}, 200),
    ("a key that is wrong, where none is needed", {"Authorization": "Bearer wrong"}, 200),
)
def test_who_asks_is_looked_at(server: Watched, headers: Headers, status: int) -> None:
    response = server.get(headers=headers)

    assert response.status == status
    assert (b"mcp_" in response.body) is (status == 200)


def test_the_port_of_clients_has_no_metrics(server: Watched) -> None:
    assert server.client.get("/metrics", ADMIN).status == 404


def test_beyond_this_machine_the_key_of_an_administrator_is_needed(
    redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = [key_table("admin", KEYS["admin"])]
    section: dict[str, Any] = {"admin": {"port": 0, "host": "0.0.0.0", "keys": keys}}  # noqa: S104
    with watched(tmp_path_factory.mktemp("beyond"), redis, sections=section) as server:
        assert server.get().status == 401
        assert server.get(headers=ADA).status == 401
        assert server.get(headers=ADMIN).status == 200
        assert server.get(headers={**ADMIN, "Origin": "https://evil.example.com"}).status == 403


def test_names_of_tools_that_come_too_late_are_one(
    redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with watched(
        tmp_path_factory.mktemp("few"),
        redis,
        sections={"metrics": {"max_tools": 2, "buckets": [1]}},
    ) as server:
        for tool in ("add", "refuse", "fail", "picture", "add"):
            server.client.call(tool, {"a": 1} if tool == "add" else {}, ADA)
        now = server.scrape()

    assert now.labels(CALLS, "tool") == {"add", "refuse", OTHER}
    assert now.sum(CALLS) == 5
    assert now.labels("mcp_response_time_seconds_bucket", "le") == {"1.0", "+Inf"}
