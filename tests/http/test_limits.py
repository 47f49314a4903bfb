"""Limits over HTTP: never more than allowed, whoever asks at once, and refusals that say when."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.auth.office import Headers, api_key, key_table
from tests.support.cases import rows
from tests.support.client import McpClient, Reply
from tests.support.server import ServerFactory, ServerProcess
from tests.support.waiting import Deadline, eventually, eventually_lines

CALLERS: Final = 64
CAPACITY: Final = 20
PERIOD_S: Final = 0.4
REFUSED: Final = (429, -31429)
UNKNOWN: Final = (400, -32602)
FULL: Final = (503, -31503)
KEYS: Final = {name: api_key(name)[0] for name in ("ada", "bob", "eve")}
WHO: Final[dict[str, Headers]] = {name: {"X-API-Key": key} for name, key in KEYS.items()}
ADA, BOB, EVE = WHO.values()


def rate(bucket: str, capacity: int, period_s: float = 3600, *tools: str) -> dict[str, Any]:
    """A rate limit, and an entry of `[[limits.rates]]` where tools are given."""
    limit: dict[str, Any] = {"bucket": bucket, "capacity": capacity, "period_s": period_s}
    return {**limit, "tools": list(tools)} if tools else limit


def config(*rates: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Three callers, of whom only `eve` sees `no_arguments`, and limits."""
    keys = [
        key_table(name, key, roles=[name], tenant="evil" if name == "eve" else "acme")
        for name, key in KEYS.items()
    ]
    rules: list[dict[str, Any]] = [
        {"tools": ["no_arguments"], "requires": {"roles": ["eve"]}},
        {"tools": ["add"], "requires": {"scopes": ["add"]}},
        {"tools": ["*"]},
    ]
    return {
        "auth": {"api_keys": keys, "allow_unauthenticated": True},
        "server": {"trusted_proxies": ["127.0.0.1"]},
        "tools": {"reload": False},
        "policies": rules,
        **sections,
        "limits": {"rates": list(rates), **sections.get("limits", {})},
    }


def echo(client: McpClient, who: Headers | None = None, tool: str = "echo") -> Reply:
    return client.call(tool, {"text": "t"}, who)


def calls(client: McpClient, number: int, who: Headers, tool: str = "echo") -> list[int]:
    """The statuses of so many calls."""
    return [echo(client, who, tool).status for _ in range(number)]


# -- never more than allowed ----------------------------------------------------------


class Span(NamedTuple):
    """A call that was let through: at some instant in between."""

    sent: float
    answered: float


def most_within(spans: list[Span], period_s: float) -> int:
    """How many calls were certainly let through within less than a period."""
    most = 0
    for first in spans:
        until = first.sent + period_s
        most = max(most, sum(s.sent >= first.sent and s.answered < until for s in spans))
    return most


def hammer(
    client: McpClient, whose: Callable[[int], Headers], for_s: float
) -> tuple[dict[str, list[Span]], Counter[tuple[int, int | None]]]:
    """Many callers at once, without a pause: what was let through for each key."""
    passed: dict[str, list[Span]] = {}
    outcomes: Counter[tuple[int, int | None]] = Counter()
    lock, begin = threading.Lock(), threading.Barrier(CALLERS)
    request = {"name": "add", "arguments": {"a": 1}}

    def work(number: int) -> None:
        headers = whose(number)
        with client.connect() as connection:
            begin.wait(10)
            deadline = Deadline(for_s)
            while not deadline.expired:
                sent = time.monotonic()
                reply = client.ask("tools/call", request, headers, connection=connection)
                span = Span(sent, time.monotonic())
                with lock:
                    outcomes[reply.outcome] += 1
                    if reply.status == 200:
                        passed.setdefault(str(headers["X-API-Key"]), []).append(span)

    with ThreadPoolExecutor(CALLERS) as pool:
        for worker in [pool.submit(work, number) for number in range(CALLERS)]:
            worker.result()
    return passed, outcomes


@rows(
    "bucket, shares",
    ("all together", "tool", 1),
    ("each caller", "user", 2),
    ("each tenant", "tenant", 1),
)
def test_many_callers_at_once_never_get_more_than_allowed_in_any_period(
    server_factory: ServerFactory, bucket: str, shares: int
) -> None:
    limits = config(rate(bucket, CAPACITY, PERIOD_S, "add"), policies=[])
    client = server_factory(config=limits).client
    began = time.monotonic()

    passed, outcomes = hammer(client, lambda number: (ADA, BOB)[number % 2], 2.0)

    periods = (time.monotonic() - began) / PERIOD_S
    assert set(outcomes) == {(200, None), REFUSED}
    together = [sorted(passed.get(KEYS[name], [])) for name in ("ada", "bob")]
    if shares == 1:
        together = [sorted(together[0] + together[1])]
    for spans in together:
        assert most_within(spans, PERIOD_S) <= CAPACITY
        assert len(spans) <= CAPACITY * (int(periods) + 1)
        assert len(spans) >= CAPACITY * 2, "and they do get what is allowed"


# -- how it is refused ----------------------------------------------------------------


@pytest.fixture(scope="module")
def tight(module_server_factory: ServerFactory) -> ServerProcess:
    """A server whose tools may be called once an hour by each caller, and listed twice."""
    limits = {"list_rates": [rate("user", 2)]}
    rates = [rate("user-tool", 1, 3600, "*")]
    return module_server_factory(config=config(*rates, limits=limits))


@pytest.fixture
def client(tight: ServerProcess) -> McpClient:
    return tight.client


_places = iter(range(1, 250))


@pytest.fixture
def stranger() -> Headers:
    """Somebody without a credential, at an address of its own."""
    return {"X-Forwarded-For": f"192.0.2.{next(_places)}"}


def test_a_refusal_says_how_long_to_wait_in_the_header_the_data_and_the_sentence(
    tight: ServerProcess, client: McpClient, stranger: Headers
) -> None:
    """wire §0.4."""
    assert echo(client, stranger).status == 200
    mark = tight.log_mark()

    reply = client.call("echo", {"text": "t"}, stranger, id="again")

    wait_s = int(reply.header("retry-after") or "")
    wait_ms = reply.error["data"]["retryAfterMs"]
    assert reply.status == 429
    assert reply.response.media_type == "application/json"
    assert 3590 <= wait_s <= 3600
    assert wait_s * 1000 - 1000 < wait_ms <= wait_s * 1000
    assert reply.last == {
        "jsonrpc": "2.0",
        "id": "again",
        "error": {
            "code": -31429,
            "message": f"At most 1 call in 3600 s of this tool by each caller. "
            f"Try again in {wait_s} s.",
            "data": {"retryAfterMs": wait_ms},
        },
    }
    line = tight.wait_for_log(lambda log: log.get("request_id") == "again", after=mark)
    assert {key: line[key] for key in ("outcome", "status", "code", "setting", "tool")} == {
        "outcome": "limited",
        "status": 429,
        "code": -31429,
        "setting": "limits.rates.0",
        "tool": "echo",
    }


def test_lists_are_metered_and_questions_about_the_server_are_not(
    client: McpClient, stranger: Headers
) -> None:
    """wire §0.5."""
    for _ in range(2):
        assert client.ask("tools/list", {}, stranger).status == 200
    refused = client.ask("tools/list", {}, stranger)
    assert refused.outcome == REFUSED
    assert refused.error["message"].startswith("At most 2 lists in 3600 s by each caller.")

    assert echo(client, stranger).status == 200, "calls are counted apart"
    for _ in range(5):
        assert client.ask("server/discover", {}, stranger).status == 200
        body = {"jsonrpc": "2.0", "method": "notifications/x"}
        assert client.ask("notifications/x", {}, stranger, body=body).status == 202
        with client.listen({}, stranger) as stream:
            assert stream.rest()


def test_a_page_that_there_is_not_costs_no_list(client: McpClient, stranger: Headers) -> None:
    for _ in range(5):
        assert client.ask("tools/list", {"cursor": "x"}, stranger).outcome == UNKNOWN
    assert client.ask("tools/list", {}, stranger).status == 200


def test_callers_do_not_use_up_each_others_calls(client: McpClient) -> None:
    places: list[Headers] = [
        {"X-Forwarded-For": "198.51.100.1"},
        {"X-Forwarded-For": "198.51.100.2"},
        {"X-Forwarded-For": "2001:db8:0:1::1"},
        {"X-Forwarded-For": "2001:db8:0:2::1"},
    ]
    for who in (ADA, BOB, *places):
        assert calls(client, 2, who) == [200, 429], who
    assert calls(client, 1, {**ADA, "X-Forwarded-For": "198.51.100.3"}) == [429]
    assert calls(client, 1, {"X-Forwarded-For": "2001:db8:0:1::ffff"}) == [429]


def test_a_hidden_tool_and_one_that_there_is_not_are_refused_as_one(
    client: McpClient, stranger: Headers
) -> None:
    assert client.call("no_arguments", {}, stranger).outcome == UNKNOWN

    refused = [client.call(name, {}, stranger) for name in ("no_arguments", "no_argumentz")]

    assert [reply.outcome for reply in refused] == [REFUSED, REFUSED]
    assert refused[0].error["message"] == refused[1].error["message"]
    assert echo(client, stranger).status == 200, "what can be seen is counted apart"
    assert client.call("no_arguments", {}, EVE).status == 200, "and for her it is a tool"


@rows(
    "ask, outcome",
    ("a wrong header", lambda c, who: c.call("in_region", {"region": "eu"}, who), (400, -32020)),
    ("a tool that asks for more", lambda c, who: c.call("add", {"a": 1}, who), (401, -31401)),
    ("no arguments object", lambda c, who: c.call("echo", [], who), UNKNOWN),
)
def test_what_is_refused_before_the_limits_costs_no_call(
    client: McpClient,
    stranger: Headers,
    ask: Callable[[McpClient, Headers], Reply],
    outcome: tuple[int, int],
) -> None:
    """wire §0.2."""
    for _ in range(3):
        assert ask(client, stranger).outcome == outcome


def test_wrong_arguments_cost_a_call_and_come_after_the_limits(
    client: McpClient, stranger: Headers
) -> None:
    """wire §0.2."""
    assert client.call("echo", {"txet": 1}, stranger).is_error
    assert client.call("echo", {"txet": 1}, stranger).outcome == REFUSED


def test_a_client_that_wants_a_stream_is_refused_with_the_status_too(
    client: McpClient, stranger: Headers
) -> None:
    headers = {**stranger, "Accept": "text/event-stream"}
    assert echo(client, headers).status == 200
    refused = echo(client, headers)
    assert (refused.outcome, refused.streamed) == (REFUSED, False)


def test_a_refused_request_is_freed_without_the_garbage_collector(
    server_factory: ServerFactory,
) -> None:
    own = {"rate_limit": rate("tool", 1)}
    client = server_factory(config={"overrides": {"echo": own}, "tools": {"reload": False}}).client
    found = []
    for rounds in (10, 100):
        with client.connect() as connection:
            for _ in range(rounds):
                client.call("echo", {"text": "t"}, connection=connection)
        found.append(client.call("collect_garbage").value)
    assert echo(client).outcome == REFUSED
    assert found[1] < 100


# -- settings that change ---------------------------------------------------------------


def test_changed_limits_hold_at_once_and_go_on_with_what_was_counted(
    server_factory: ServerFactory,
) -> None:
    def version(capacity: int, own: int, **limits: Any) -> dict[str, Any]:
        return config(
            rate("user", capacity, 3600, "echo*"),
            overrides={"add": {"rate_limit": rate("tool", own)}},
            policies=[],
            tools={},
            limits=limits,
        )

    server = server_factory(config=version(2, 1))
    client = server.client
    assert calls(client, 3, ADA) == [200, 200, 429]
    assert [client.call("add", {"a": 1}, ADA).status for _ in range(2)] == [200, 429]
    mark = server.log_mark()

    server.write_config(version(4, 2, concurrent_calls=7))

    eventually(lambda: echo(client, ADA).status == 200, "the larger capacity")
    assert calls(client, 2, ADA) == [200, 429], "of four, two were counted before"
    assert [client.call("add", {"a": 1}, ADA).status for _ in range(2)] == [200, 429]
    told = server.wait_for_log(
        lambda log: log["event"] == "configuration_needs_restart", after=mark
    )
    assert told["sections"] == ["limits.concurrent_calls"]

    server.write_config(config(policies=[], tools={}))
    eventually(lambda: echo(client, ADA).status == 200, "no limit")
    assert set(calls(client, 10, ADA)) == {200}


# -- how many at once -------------------------------------------------------------------


def waiting(folder: Path) -> dict[str, str]:
    return {"path": str(folder / "notes"), "release": str(folder / "release")}


@rows("tool", ("in the loop", "wait_async"), ("in a thread", "wait_sync"))
def test_a_tool_that_is_full_sends_calls_away_and_no_other_tool_notices(
    server_factory: ServerFactory, tmp_path: Path, tool: str
) -> None:
    """wire §0.4 503. And what was sent away costs no call under a rate limit."""
    own = {"max_concurrent": 1, "rate_limit": rate("user", 2)}
    server = server_factory(config={"overrides": {tool: own}, "tools": {"reload": False}})
    client = server.client
    params = {"name": tool, "arguments": waiting(tmp_path)}
    with client.connect() as busy:
        busy.send(client.request("tools/call", params).encode())
        eventually_lines(tmp_path / "notes", "started")
        mark = server.log_mark()
        for _ in range(3):
            reply = client.call(tool, waiting(tmp_path), id="late")
            assert reply.outcome == FULL
            assert reply.header("retry-after") == "1"
            assert reply.error["data"] == {"retryAfterMs": 1000}
        line = server.wait_for_log(lambda log: log.get("request_id") == "late", after=mark)
        assert (line["outcome"], line["setting"]) == ("limited", "max_concurrent")
        assert echo(client).status == 200
        (tmp_path / "release").touch()
        assert busy.read_response().status == 200
    assert client.call(tool, waiting(tmp_path)).status == 200
    assert client.call(tool, waiting(tmp_path)).outcome == REFUSED


@rows("tool", ("in the loop", "stubborn"), ("in a thread", "too_slow_sync"))
def test_what_was_left_behind_takes_room_until_it_ends(
    server_factory: ServerFactory, tmp_path: Path, tool: str
) -> None:
    """EX-04: a cap protects what the tool uses, and that is still in use."""
    overrides = {tool: {"max_concurrent": 1}}
    client = server_factory(config={"overrides": overrides, "tools": {"reload": False}}).client
    assert client.call(tool, waiting(tmp_path)).is_error
    assert client.call(tool, waiting(tmp_path)).outcome == FULL
    (tmp_path / "release").touch()
    eventually_lines(tmp_path / "notes", "finished")
    eventually(lambda: client.call(tool, waiting(tmp_path)).status == 200, "a free place")
