"""A trace goes on: from `_meta` or headers, through the server, into whatever its tools ask."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sessions.conversation import Conversation
from tests.sessions.test_stdio import OldStdio
from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.collector import Collector
from tests.support.server import ServerProcess
from tests.support.stdio import StdioServer
from tests.tools.conftest import TOOLS as EXAMPLES
from tests.tools.open_meteo import OpenMeteo
from tests.tracing.conftest import TOOLS, TRACING, Trace, config

PLACES = ["place", "place_in_thread", "place_in_process", "place_async_in_process"]


# -- whose trace it is --------------------------------------------------------------


def test_meta_is_the_parent_and_the_header_a_link(client: McpClient, collector: Collector) -> None:
    inner, outer = Trace(), Trace()
    inner.call(client, "take", headers={"traceparent": outer.parent, "tracestate": "a=b"})

    span = collector.wait(inner.id, "tools/call take")["tools/call take"]
    assert span.parent == inner.span
    assert span.links == [(outer.id, outer.span)]


def test_the_same_context_twice_is_one_parent(client: McpClient, collector: Collector) -> None:
    caller = Trace()
    caller.call(client, "take", headers={"traceparent": caller.parent})

    span = collector.wait(caller.id, "tools/call take")["tools/call take"]
    assert (span.parent, span.links) == (caller.span, [])


@pytest.mark.parametrize("inner", [None, "nonsense", 7, {}, "0" * 100_000])
def test_without_one_in_meta_the_header_is_the_parent(
    client: McpClient, collector: Collector, inner: Any
) -> None:
    outer = Trace()
    about = meta() if inner is None else meta(traceparent=inner)
    headers = {"traceparent": outer.parent, "tracestate": "vendor=1"}
    client.call("take", {}, headers, meta_=about)

    span = collector.wait(outer.id, "tools/call take")["tools/call take"]
    assert (span.parent, span.state, span.links) == (outer.span, "vendor=1", [])


def test_a_session_of_an_older_revision_has_the_header_too(
    server: ServerProcess, collector: Collector
) -> None:
    outer = Trace()
    with Conversation([server], "2025-06-18", who={"traceparent": outer.parent}) as conversation:
        conversation.open({})
        assert conversation.call("take").text == "0"

    assert collector.wait(outer.id, "tools/call take")["tools/call take"].parent == outer.span


T = secrets.token_hex(16)
P = secrets.token_hex(8)
BAD_PARENTS: dict[str, Any] = {
    "empty": "",
    "no hex": f"00-{'g' * 32}-{P}-01",
    "upper case": f"00-{T.upper()}-{P}-01",
    "a trace of zeros": f"00-{'0' * 32}-{P}-01",
    "a span of zeros": f"00-{T}-{'0' * 16}-01",
    "version ff": f"ff-{T}-{P}-01",
    "no flags": f"00-{T}-{P}",
    "more behind version 00": f"00-{T}-{P}-01-more",
    "a line break": f"00-{T}-{P}-01\n",
    "a megabyte": f"00-{T}-{P}-01" + "-x" * 300_000,
    "a number": 1,
    "a list": [f"00-{T}-{P}-01"],
    "null": None,
}


@pytest.mark.parametrize("parent", BAD_PARENTS.values(), ids=BAD_PARENTS.keys())
def test_a_malformed_context_begins_another_trace(
    client: McpClient, server: ServerProcess, collector: Collector, parent: Any
) -> None:
    id, mark = secrets.token_hex(4), server.log_mark()
    about = meta() | {"traceparent": parent, "tracestate": "planted=1"}
    reply = client.call("place", {}, meta_=about, id=id)

    line = server.wait_for_log(lambda log: log.get("request_id") == id, after=mark)
    span = collector.wait(line["trace_id"], "tools/call place")["tools/call place"]
    assert (span.parent, span.state) == ("", "")
    assert span.trace not in (T, "0" * 32)
    assert "planted" not in str(reply.value)


BAD_STATES: dict[str, Any] = {
    "a megabyte": "a=" + "x" * 1_000_000,
    "a thousand members": ",".join(f"k{number}=v" for number in range(1000)),
    "33 members": ",".join(f"k{number}=v" for number in range(33)),
    "a key twice": "a=1,a=2",
    "upper case": "A=1",
    "control characters": "a=\x00\x1b[31m",
    "a line break": "a=1\nb=2",
    "not ASCII": "a=ü",
    "a number": 7,
    "no value": "a",
}


@pytest.mark.parametrize("state", BAD_STATES.values(), ids=BAD_STATES.keys())
def test_a_malformed_state_is_dropped_and_its_parent_counts(
    client: McpClient, server: ServerProcess, collector: Collector, caller: Trace, state: Any
) -> None:
    reply = client.call("place", {}, meta_=caller.meta(tracestate=state))

    span = collector.wait(caller.id, "tools/call place")["tools/call place"]
    assert (span.parent, span.state) == (caller.span, "")
    assert reply.value["headers"].keys() == {"traceparent"}
    assert server.logs("log") == []  # what libraries say of it may quote it
    assert server.logs("tracing_problem") == []


# -- into tools ------------------------------------------------------------------


@pytest.mark.parametrize("tool", PLACES)
def test_a_tool_is_in_the_trace_of_its_call(
    client: McpClient, collector: Collector, caller: Trace, tool: str
) -> None:
    reply = client.call(tool, {}, meta_=caller.meta(tracestate="vendor=1,other=2"))

    run = collector.wait(caller.id, f"run {tool}")[f"run {tool}"]
    assert reply.value == {
        "headers": {
            "traceparent": f"00-{caller.id}-{run.id}-01",
            "tracestate": "vendor=1,other=2",
        },
        "trace": caller.id,
        "span": run.id,
        "baggage": {},
    }


def test_spans_of_a_tool_are_children_of_its_run(
    client: McpClient, collector: Collector, caller: Trace
) -> None:
    reply = caller.call(client, "own_span")

    spans = collector.wait(caller.id, "run own_span", "own work")
    assert spans["own work"].parent == spans["run own_span"].id
    assert spans["own work"].scope == "a tool"
    assert reply.value["headers"]["traceparent"] == f"00-{caller.id}-{spans['own work'].id}-01"


@pytest.mark.parametrize("tool", PLACES)
def test_the_next_call_is_not_in_the_trace_of_the_one_before(
    client: McpClient, caller: Trace, tool: str
) -> None:
    with client.connect() as connection:
        first = client.call(tool, {}, meta_=caller.meta(), connection=connection)
        second = client.call(tool, {}, connection=connection)

    assert first.value["trace"] == caller.id
    assert second.value["trace"] not in (caller.id, "0" * 32)


@pytest.mark.parametrize("tool", PLACES)
def test_what_the_caller_does_not_sample_is_passed_on_and_not_sent(
    client: McpClient, collector: Collector, tool: str
) -> None:
    quiet, loud = Trace(flags="00"), Trace()
    headers = quiet.call(client, tool).value["headers"]
    loud.call(client, tool)

    version, trace, span, flags = headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", quiet.id, "00")
    assert span not in (quiet.span, "0" * 16)
    collector.wait(loud.id, f"tools/call {tool}")
    assert collector.spans(quiet.id) == []


# -- baggage ------------------------------------------------------------------------


@pytest.mark.parametrize("tool", PLACES)
def test_the_baggage_that_is_let_through_reaches_tools_and_what_they_ask(
    client: McpClient, caller: Trace, tool: str
) -> None:
    sent = "secret=s3cret,tier=gold%20plus;p=1, tenant.id = a%2Cb ,tier=2"
    reply = client.call(tool, {}, meta_=caller.meta(baggage=sent))

    assert reply.value["baggage"] == {"tier": "gold plus", "tenant.id": "a,b"}
    assert reply.value["headers"]["baggage"] == "tier=gold%20plus,tenant.id=a%2Cb"


def test_baggage_comes_in_a_header_too(client: McpClient, caller: Trace) -> None:
    headers = {"traceparent": caller.parent, "baggage": "tier=1,x=2"}
    assert client.call("place", {}, headers).value["baggage"] == {"tier": "1"}


HOSTILE_BAGGAGE: dict[str, Any] = {
    "a megabyte": "tier=" + "x" * 1_000_000,
    "over its limit": "a=" + "x" * 8192 + ",tier=1",
    "a long value": "tier=" + "x" * 300,
    "control characters": "tier=\x00\x1b[31m",
    "an encoded line break": "tier=a%0d%0aX-Evil:%201",
    "an encoded control character": "tier=%1b[31m",
    "a lone surrogate": "tier=%ed%a0%80",
    "a number": 7,
    "a list": ["tier=1"],
    "no value": "tier",
    "blanks within": "tier=a b",
    "not ASCII": "tier=ü",
}


@pytest.mark.parametrize("sent", HOSTILE_BAGGAGE.values(), ids=HOSTILE_BAGGAGE.keys())
def test_hostile_baggage_is_dropped(
    client: McpClient, server: ServerProcess, caller: Trace, sent: Any
) -> None:
    value = client.call("place", {}, meta_=caller.meta(baggage=sent)).value

    seen = value["baggage"].get("tier", "")
    assert len(seen) <= 256
    assert seen.isprintable()
    assert set(value["headers"]) <= {"traceparent", "baggage"}
    assert json.dumps(value["headers"]).isascii()
    assert server.logs("log") == []


def test_of_a_thousand_members_those_that_are_let_through_count(
    client: McpClient, caller: Trace
) -> None:
    sent = "tier=1," + ",".join(f"k{number}=v" for number in range(1000))
    value = client.call("place", {}, meta_=caller.meta(baggage=sent[:8192])).value

    assert value["headers"]["baggage"] == "tier=1"


# -- planted secrets ------------------------------------------------------------------


def test_nothing_that_is_secret_is_in_a_span(
    client: McpClient, collector: Collector, caller: Trace
) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    about = caller.meta(**{"example.com/key": canary, "baggage": f"secret={canary}"})
    token = {"Cookie": f"a={canary}", "X-Forwarded-For": canary, "User-Agent": canary}
    for tool in ("take", "refuse", "crash"):
        client.call(tool, {"text": canary}, token, meta_=about)
    client.call("take", {"number": canary}, meta_=about)
    client.call("take", {canary: 1}, meta_=about)
    client.call(canary, {}, meta_=about)
    client.ask(canary, body={**_body(about), "method": canary})
    client.call("take", {}, {"Mcp-Name": canary}, meta_=about)
    client.call("take", {}, meta_=about, id="last")

    collector.wait_for(
        lambda span: span.trace == caller.id and span.attributes.get("jsonrpc.request.id") == "last"
    )
    assert len(collector.spans(caller.id)) >= 9
    assert canary.encode() not in collector.received


def _body(about: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "", "params": {"_meta": about}}


# -- over stdio -------------------------------------------------------------------


@pytest.fixture(scope="module")
def piped(collector: Collector) -> Iterator[StdioServer]:
    with StdioServer(TOOLS, {"tracing": TRACING}, env=collector.environment) as it:
        yield it


def test_requests_over_stdio_have_spans_too(piped: StdioServer, collector: Collector) -> None:
    caller, refused = Trace(), Trace()
    id = piped.ask("tools/call", {"name": "place", "arguments": {}}, meta=caller.meta())
    place = piped.response(id)["result"]["structuredContent"]
    piped.ask("tools/call", {"name": "nobody"}, meta=refused.meta())

    spans = collector.wait(caller.id, "tools/call place", "run place")
    request, run = spans["tools/call place"], spans["run place"]
    assert (request.parent, run.parent, request.kind) == (caller.span, request.id, "SERVER")
    assert request.attributes["network.transport"] == "pipe"
    assert not [key for key in request.attributes if key.startswith(("client.", "network.p"))]
    assert place["headers"]["traceparent"] == f"00-{caller.id}-{run.id}-01"
    assert collector.wait(refused.id, "tools/call")["tools/call"].error == "-32602"


def test_a_session_over_stdio_has_spans_too(collector: Collector) -> None:
    caller = Trace()
    with OldStdio(TOOLS, {"tracing": TRACING}, env=collector.environment) as old:
        old.open("2025-06-18")
        context = {"_meta": {"traceparent": caller.parent}}
        assert old.result(old.use("take", **context))
        old.response(old.old("foo/bar", context))

    spans = collector.wait(caller.id, "tools/call take", "run take", "_OTHER")
    call = spans["tools/call take"]
    assert (call.parent, spans["run take"].parent) == (caller.span, call.id)
    assert call.attributes["mcp.protocol.version"] == "2025-06-18"
    assert spans["_OTHER"].error == "-32601"
    assert collector.wait_for(lambda span: span.name == "initialize")


# -- without spans -----------------------------------------------------------------


@pytest.fixture(scope="module")
def untraced() -> Iterator[ServerProcess]:
    """A server that makes no spans."""
    with ServerProcess(TOOLS, config(tracing={"enabled": False})) as process:
        yield process


@pytest.mark.parametrize("tool", PLACES)
@rows("how", ("in meta", "meta"), ("in headers", "headers"), ("in a session", "session"))
def test_a_callers_trace_goes_on_without_spans_of_ours(
    untraced: ServerProcess, caller: Trace, tool: str, how: str
) -> None:
    context = {"traceparent": caller.parent, "tracestate": "vendor=1"}
    if how == "meta":
        value = untraced.client.call(tool, {}, meta_=meta() | context).value
    elif how == "headers":
        value = untraced.client.call(tool, {}, context).value
    else:
        with Conversation([untraced], "2025-11-25", who=dict(context)) as conversation:
            conversation.open({})
            value = conversation.call(tool).result["structuredContent"]

    assert value["headers"] == context
    assert (value["span"], value["baggage"]) == ("0" * 16, {})


@pytest.mark.parametrize("parent", BAD_PARENTS.values(), ids=BAD_PARENTS.keys())
def test_without_a_trace_there_is_nothing_to_send_on(untraced: ServerProcess, parent: Any) -> None:
    about = meta() | {"traceparent": parent, "tracestate": "a=b"}
    assert untraced.client.call("place", {}, meta_=about).value["headers"] == {}


def test_the_example_asks_its_service_in_the_trace_of_its_caller(collector: Collector) -> None:
    caller = Trace()
    with OpenMeteo() as service:
        overrides = {
            "get_weather_data": {
                "settings": {"base_url": service.url, "geocoding_url": service.url}
            }
        }
        settings = {"tracing": {"enabled": True}, "overrides": overrides}
        with ServerProcess(EXAMPLES, settings, env=collector.environment) as server:
            caller.call(server.client, "get_weather_data", {"location": "Paris"})
            run = collector.wait(caller.id, "run get_weather_data")["run get_weather_data"]

    assert len(service.parents) == 2
    assert set(service.parents) == {f"00-{caller.id}-{run.id}-01"}
