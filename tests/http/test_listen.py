"""subscriptions/listen: acknowledgement, filter, life and end of a stream."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient, Stream, meta
from tests.support.schema import META
from tests.support.server import ServerFactory, ServerProcess
from tests.support.sse import Comment
from tests.support.toolfiles import write, write_tool
from tests.support.waiting import eventually, eventually_lines

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tools/list_changed"
TOOLS = {"toolsListChanged": True}
TALK = '''
from app import Context, tool


@tool
async def talk(ctx: Context) -> str:
    """Report progress and log."""
    ctx.progress(1)
    ctx.log("info", "x")
    return "x"
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tools that tests change."""
    folder = tmp_path_factory.mktemp("tools")
    write(folder / "talk.py", TALK)
    return folder


@pytest.fixture(scope="module")
def watching(module_server_factory: ServerFactory, folder: Path) -> ServerProcess:
    """A server that watches its folder, and shows signs of life every 0.3 s."""
    return module_server_factory(folder, {"execution": {"keep_alive_s": 0.3}})


def subscription(message: dict[str, Any]) -> Any:
    """The subscription that a message belongs to."""
    body = message.get("params") or message.get("result") or {}
    return body.get("_meta", {}).get(f"{META}subscriptionId")


def ends_gracefully(stream: Stream, id: Any) -> None:
    """The stream ends with its result; a `notifications/cancelled` before it is tolerated."""
    *others, last = stream.rest()
    assert all(each["method"] == "notifications/cancelled" for each in others), others
    assert last["id"] == id
    assert last["result"]["resultType"] == "complete"
    assert subscription(last) == id


@pytest.mark.parametrize("id", [1, "1", 0, "", "L-é", 2**53 + 1], ids=lambda id: f"wire §6 {id!r}")
def test_the_first_message_acknowledges_with_the_id_as_it_was(
    watching: ServerProcess, id: Any
) -> None:
    """wire §6 open, LC-01."""
    with watching.client.listen(id=id) as stream:
        message = stream.next()
        assert message["method"] == ACKNOWLEDGED
        assert message["params"]["notifications"] == TOOLS
        assert subscription(message) == id
        assert type(subscription(message)) is type(id)


def test_discover_listen_list(watching: ServerProcess) -> None:
    """LC-01: what a client does first, in its order."""
    client = watching.client
    assert client.ask("server/discover").result["capabilities"]["tools"]["listChanged"] is True
    with client.listening():
        assert client.ask("tools/list").status == 200


def test_the_acknowledgement_comes_with_the_headers(watching: ServerProcess) -> None:
    """ST-02 without a proxy."""
    with watching.client.listen() as stream:
        assert stream.next(1.0)["method"] == ACKNOWLEDGED


@rows(
    "asked, honoured",
    ("wire §6 unsupported kind", TOOLS | {"promptsListChanged": True}, TOOLS),
    (
        "wire §6 resources",
        TOOLS | {"resourcesListChanged": True, "resourceSubscriptions": ["a:b"]},
        TOOLS,
    ),
    ("wire §6 unknown key", TOOLS | {"weather": True, "x": {"y": 1}}, TOOLS),
    ("wire §6 false", TOOLS | {"promptsListChanged": False}, TOOLS),
    ("wire §6 taskIds", TOOLS | {"taskIds": ["t"]}, TOOLS),
)
def test_only_what_is_honoured_is_acknowledged(
    watching: ServerProcess, asked: dict[str, Any], honoured: dict[str, bool]
) -> None:
    with watching.client.listen(asked) as stream:
        assert stream.next()["params"]["notifications"] == honoured
        assert isinstance(stream.reader.next(), Comment)  # and the stream stays


@rows(
    "asked",
    ("LC-06 nothing asked", {}),
    ("LC-06 only false", {"toolsListChanged": False}),
    ("LC-06 only prompts", {"promptsListChanged": True}),
    ("wire §6 nothing honoured", {"resourceSubscriptions": ["a:b"]}),
    ("wire §6 only taskIds", {"taskIds": ["t"]}),
)
def test_a_stream_for_nothing_is_acknowledged_and_ended(
    watching: ServerProcess, asked: dict[str, Any]
) -> None:
    """wire §0.12."""
    with watching.client.listen(asked, id="n") as stream:
        message = stream.next()
        assert message["method"] == ACKNOWLEDGED
        assert message["params"]["notifications"] == {}
        ends_gracefully(stream, "n")


@rows(
    "params",
    ("wire §6 notifications missing", {}),
    ("wire §6 notifications null", {"notifications": None}),
    ("LC-14 array", {"notifications": []}),
    ("LC-14 string", {"notifications": "toolsListChanged"}),
    ("LC-14 true", {"notifications": True}),
    ("wire §6 wrong type", {"notifications": {"toolsListChanged": "yes"}}),
    ("LC-14 number", {"notifications": {"toolsListChanged": 1}}),
    ("LC-14 null for a flag", {"notifications": {"toolsListChanged": None}}),
    ("LC-14 wrong type of another kind", {"notifications": {"promptsListChanged": "yes"}}),
    ("LC-14 subscriptions a string", {"notifications": {"resourceSubscriptions": "x"}}),
    ("LC-14 subscriptions of numbers", {"notifications": {"resourceSubscriptions": [1]}}),
)
def test_a_malformed_filter_is_refused_before_a_stream_begins(
    watching: ServerProcess, params: dict[str, Any]
) -> None:
    reply = watching.client.ask("subscriptions/listen", params, id=3)
    assert reply.outcome == (400, -32602)
    assert reply.response.media_type == "application/json"
    assert reply.last["id"] == 3


@pytest.mark.parametrize(
    "accept", ["application/json", "application/*", "text/html", "text/event-stream;q=0, */*"]
)
def test_a_client_that_takes_no_stream_is_refused(watching: ServerProcess, accept: str) -> None:
    """ST-16, wire §6 Accept lacks SSE, wire §0.8."""
    reply = watching.client.ask(
        "subscriptions/listen", {"notifications": TOOLS}, {"Accept": accept}
    )
    assert reply.outcome == (406, -31406)


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", None, "text/*"])
def test_a_client_that_takes_a_stream_gets_one(watching: ServerProcess, accept: str | None) -> None:
    """wire §6 still SSE."""
    with watching.client.listening(headers={"Accept": accept}):
        pass


def test_a_quiet_stream_shows_signs_of_life_and_nothing_else(watching: ServerProcess) -> None:
    """wire §6 keep-alive, ST-04 without a proxy: comments, never messages."""
    with watching.client.listening() as stream:
        for _ in range(4):
            assert isinstance(stream.reader.next(2.0), Comment)


def test_a_change_is_heard_with_the_subscriptions_id(watching: ServerProcess, folder: Path) -> None:
    """LC-01, LC-02."""
    with watching.client.listening(id="first") as one, watching.client.listening(id=2) as two:
        write_tool(folder, "heard")
        for stream, id in ((one, "first"), (two, 2)):
            message = stream.next()
            assert message["method"] == CHANGED
            assert subscription(message) == id
            assert "id" not in message


def test_what_was_not_asked_for_is_not_sent(watching: ServerProcess, folder: Path) -> None:
    """wire §6 unrequested kinds, wire §6 progress never on listen."""
    client = watching.client
    with client.listening() as other, client.listen({"promptsListChanged": True}) as stream:
        write_tool(folder, "unheard")
        assert other.next()["method"] == CHANGED
        assert [each.get("method") for each in stream.rest()] == [ACKNOWLEDGED, None]


def test_progress_and_messages_stay_with_their_call(watching: ServerProcess) -> None:
    """wire §6 progress/message."""
    own = meta(logLevel="debug") | {"progressToken": "l"}
    with watching.client.listening(id="l") as stream:
        reply = watching.client.call("talk", meta_=own)
        assert len(reply.messages) == 3
        stream.reader.next_comment()
        stream.reader.next_comment()


def test_two_streams_with_one_id_are_two_streams(watching: ServerProcess, folder: Path) -> None:
    """LC-17."""
    with watching.client.listening(id=1) as one, watching.client.listening(id=1) as two:
        one.close()
        write_tool(folder, "still_heard")
        assert two.next()["method"] == CHANGED


def test_nothing_is_replayed_after_a_gap(watching: ServerProcess, folder: Path) -> None:
    """LC-16: Last-Event-ID is ignored; after the acknowledgement only new changes are told."""
    client = watching.client
    with client.listening() as stream:
        stream.close()
    with client.listening() as other:
        write_tool(folder, "in_the_gap")
        assert other.next()["method"] == CHANGED
    with client.listening(headers={"Last-Event-ID": "5"}) as stream:
        assert isinstance(stream.reader.next(), Comment)
        write_tool(folder, "after_the_gap")
        assert stream.next()["method"] == CHANGED


def test_a_client_that_refetches_at_once_sees_the_change(
    watching: ServerProcess, folder: Path
) -> None:
    """LC-04 within one process."""
    with watching.client.listening() as stream:
        write_tool(folder, "fresh")
        assert stream.next()["method"] == CHANGED
        for _ in range(20):
            assert "fresh" in watching.client.tools()


def test_a_burst_of_changes_is_heard_as_few(watching: ServerProcess, folder: Path) -> None:
    """LC-09: at most one pending notification per stream, and the last state is told."""
    with watching.client.listening() as stream:
        for number in range(30):
            write_tool(folder, f"burst_{number}")
        heard = 0
        while len([name for name in watching.client.tools() if name.startswith("burst_")]) < 30:
            assert stream.next()["method"] == CHANGED
            heard += 1
        assert heard <= 15


def test_a_listener_that_does_not_read_disturbs_nobody(
    watching: ServerProcess, folder: Path
) -> None:
    """LC-09."""
    deaf = watching.client.connect()
    deaf.send(watching.client.request("subscriptions/listen", {"notifications": TOOLS}).encode())
    with watching.client.listening() as stream:
        for number in range(5):
            write_tool(folder, f"loud_{number}")
            assert stream.next()["method"] == CHANGED
    deaf.close()


def test_a_listener_that_has_gone_is_forgotten(watching: ServerProcess) -> None:
    """ST-17, SN-11 in spirit: dead peers leave no socket."""

    def sockets() -> int:
        return len(list(Path(f"/proc/{watching.pid}/fd").iterdir()))

    before = sockets()
    for leave in ("close", "reset") * 10:
        with watching.client.listening() as stream:
            getattr(stream.connection, leave)()
    eventually(lambda: sockets() <= before + 1, "the sockets of dead listeners closed")


def test_beyond_the_limit_a_stream_is_refused_before_it_begins(
    server_factory: ServerFactory,
) -> None:
    """wire §6 capacity, wire §0.4: and a place that is given back can be used."""
    client = server_factory(
        config={"limits": {"listen_streams": 2}, "tools": {"reload": True}}
    ).client
    with client.listening(), client.listening() as second:
        reply = client.ask("subscriptions/listen", {"notifications": TOOLS}, id="third")
        assert reply.outcome == (503, -31503)
        assert int(reply.header("retry-after") or "") >= 1
        assert reply.error["data"]["retryAfterMs"] >= 1000
        assert str(int(reply.header("retry-after") or "")) in reply.error["message"]
        assert reply.last["id"] == "third"
        second.close()

        def free() -> bool:
            return client.ask("subscriptions/listen", {"notifications": {}}).status == 200

        eventually(free, "a place")
        with client.listening():
            assert client.ask("server/discover").status == 200


def test_a_server_whose_tools_do_not_change_says_so(client: McpClient) -> None:
    """LC-07: `reload = false`; listening is then refused, or ended at once."""
    tools = client.ask("server/discover").result["capabilities"]["tools"]
    assert not tools.get("listChanged", False)
    reply = client.ask("subscriptions/listen", {"notifications": TOOLS}, id=1)
    if reply.status == 404:
        assert reply.code == -32601
    else:
        acknowledged, result = reply.messages
        assert acknowledged["params"]["notifications"] == {}
        assert subscription(result) == 1


# -- the end -------------------------------------------------------------------------


def test_shutdown_ends_streams_with_their_result(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """wire §6 graceful end, SH-01, SH-02, ST-17: and the process ends within its grace."""
    write_tool(tmp_path, "a")
    server = server_factory(tmp_path)
    ids = ["L1", 2, "3", 4, "L5"]
    with ExitStack() as stack:
        idle = stack.enter_context(server.client.connect())
        assert server.client.ask("tools/list", connection=idle).status == 200
        streams = [stack.enter_context(server.client.listening(id=id)) for id in ids]
        server.terminate()
        for stream, id in zip(streams, ids, strict=True):
            ends_gracefully(stream, id)
        assert server.wait(8.0) == 0
    assert not [log for log in server.logs() if log.get("level") in ("error", "critical")]


def test_shutdown_lets_a_running_call_finish(server_factory: ServerFactory, tmp_path: Path) -> None:
    """SH-01, SH-04."""
    server = server_factory(config={"tools": {"reload": False}})
    arguments = {"path": str(tmp_path / "notes"), "release": str(tmp_path / "release")}
    params = {"name": "wait_async", "arguments": arguments}
    with server.client.connect() as connection:
        connection.send(server.client.request("tools/call", params).encode())
        eventually_lines(tmp_path / "notes", "started")
        server.terminate()
        (tmp_path / "release").touch()
        message = connection.read_response().json()
        assert message["result"]["content"][0]["text"] == "released"
    assert server.wait(8.0) == 0


def test_shutdown_does_not_wait_for_ever(server_factory: ServerFactory, tmp_path: Path) -> None:
    """SH-01: calls that do not end are left, sync ones included."""
    server = server_factory(
        config={"tools": {"reload": False}, "server": {"shutdown_grace_s": 0.5}}
    )
    connections = []
    for tool in ("wait_async", "wait_sync"):
        arguments = {"path": str(tmp_path / tool), "release": str(tmp_path / "never")}
        params = {"name": tool, "arguments": arguments}
        connections.append(server.client.connect())
        connections[-1].send(server.client.request("tools/call", params).encode())
        eventually_lines(tmp_path / tool, "started")
    server.terminate()
    assert server.wait(8.0) == 0
    for connection in connections:
        connection.close()
