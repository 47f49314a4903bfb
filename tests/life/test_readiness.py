"""What `/readyz` and `/healthz` say, and the drain of an administrator."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.cli.exits import Exit
from app.cli.main import add_all_commands
from app.http.health import Readiness
from app.http.serving import make_server
from app.server import App, create_app
from app.settings import ServerSettings, Settings
from tests.support.client import McpClient
from tests.support.http1 import Request, Response, strict_json
from tests.support.stores import RedisServer
from tests.support.waiting import eventually

TOOLS: Final = Path(__file__).parent / "tools"
WINDOW_S: Final = 0.6


@asynccontextmanager
async def serving(**sections: Any) -> AsyncIterator[tuple[App, McpClient]]:
    """A server in this process, which a test can drain as an administrator does."""
    settings = Settings.model_validate(
        {
            "server": {"port": 0, "drain_s": WINDOW_S},
            "tools": {"directory": str(TOOLS), "reload": True},
            "limits": {"rates": [], "list_rates": []},
            **sections,
        }
    )
    app = create_app(settings)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = make_server(app, settings.server, on_listening=lambda _, at: port.set_result(at))
    task = asyncio.create_task(server.serve())
    try:
        yield app, McpClient("127.0.0.1", await port)
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 15)


async def ready(client: McpClient) -> tuple[int, Mapping[str, Any]]:
    """Status and what is said of this server, without what is said of the fleet."""
    response = await asyncio.to_thread(client.get, "/readyz")
    body = response.json()
    return response.status, {key: body[key] for key in ("ready", "reasons")}


async def test_a_drained_server_serves_on_and_can_be_taken_back() -> None:
    async with serving() as (app, client):
        with await asyncio.to_thread(client.connect) as connection:

            async def listed() -> Response:
                reply = await asyncio.to_thread(client.ask, "tools/list", connection=connection)
                return reply.response

            assert (await listed()).header("connection") is None
            app.begin_drain()
            app.begin_drain()
            assert await ready(client) == (
                503,
                {"ready": False, "reasons": ["The server is drained."]},
            )
            last = await listed()
            assert (last.status, last.header("connection")) == (200, "close")
        app.end_drain()
        app.end_drain()
        assert await ready(client) == (200, {"ready": True, "reasons": []})
        response = await asyncio.to_thread(client.ask, "tools/list")
        assert response.header("connection") is None


async def test_listeners_of_a_drained_server_are_told_and_those_of_one_taken_back_stay() -> None:
    async with serving() as (app, client):

        def listen(entered: asyncio.Event, loop: asyncio.AbstractEventLoop) -> list[Any]:
            with client.listening() as stream:
                loop.call_soon_threadsafe(entered.set)
                return stream.rest()

        def begin() -> tuple[asyncio.Future[list[Any]], asyncio.Event]:
            entered, loop = asyncio.Event(), asyncio.get_running_loop()
            return asyncio.ensure_future(asyncio.to_thread(listen, entered, loop)), entered

        stays, entered = begin()
        await entered.wait()
        app.begin_drain()
        app.end_drain()
        ended, _ = await asyncio.wait({stays}, timeout=WINDOW_S)
        assert not ended
        comes, entered = begin()
        await entered.wait()
        app.begin_drain()
        for listener in (stays, comes):
            (message,) = await asyncio.wait_for(listener, WINDOW_S + 5)
            assert message["result"]["resultType"] == "complete"
        wanted = {"notifications": {"toolsListChanged": True}}
        refused = await asyncio.to_thread(client.ask, "subscriptions/listen", wanted)
        assert (refused.status, refused.header("retry-after")) == (503, "1")


async def test_readiness_needs_a_state_that_is_required_and_says_so() -> None:
    """A server starts without it, and becomes ready by itself once it can be reached."""
    with RedisServer() as redis:
        redis.stop()
        reason = "The shared state cannot be used; the log says why."
        async with serving(state={"url": redis.url, "required": True}) as (app, client):
            assert await ready(client) == (503, {"ready": False, "reasons": [reason]})
            assert (await asyncio.to_thread(client.get, "/healthz")).status == 200
            app.begin_drain()
            assert (await ready(client))[1]["reasons"] == ["The server is drained.", reason]
            app.end_drain()
            await asyncio.to_thread(redis.start)

            def is_ready() -> bool:
                return client.get("/readyz").status == 200

            await asyncio.to_thread(eventually, is_ready, "it is ready")


async def test_readiness_does_not_need_a_state_that_is_not_required() -> None:
    with RedisServer() as redis:
        redis.stop()
        async with serving(state={"url": redis.url}) as (app, client):
            assert app.service is not None and app.service.state.problem
            assert await ready(client) == (200, {"ready": True, "reasons": []})


async def test_readiness_tells_whether_the_fleet_is_alike() -> None:
    with RedisServer() as redis:
        async with serving(state={"url": redis.url}) as (app, client):
            assert app.service is not None
            body = (await asyncio.to_thread(client.get, "/readyz")).json()
            assert app.replica not in str(body)  # anybody may read it: it names no machine
            assert app.service.registry.catalog.fingerprint.startswith(body["catalog"])
            assert (body["members"], body["agree"], body["disagreements"]) == (1, True, [])


async def test_health_prints_the_reasons() -> None:
    async with serving() as (app, client):
        url = f"http://{client.authority}"

        def health() -> Any:
            return CliRunner().invoke(add_all_commands(), ["health", "--url", url])

        assert (await asyncio.to_thread(health)).exit_code == Exit.OK
        app.begin_drain()
        result = await asyncio.to_thread(health)
        assert result.exit_code == Exit.PROBLEMS
        assert "answered 503: The server is drained." in result.output


async def test_a_process_has_a_name_of_its_own_unless_it_is_given_one() -> None:
    settings = Settings()
    names = {create_app(settings).replica for _ in range(10)}
    assert len(names) == 10
    assert create_app(settings, replica="a-1").replica == "a-1"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Request(method="GET", path="", headers=[("Host", "_")]), id="another host"),
        pytest.param(Request(method="GET", path="", headers=[]), id="no host"),
        pytest.param(
            Request(method="GET", path="", headers=[("Host", "x"), ("Authorization", "Bearer z")]),
            id="a credential that does not count",
        ),
        pytest.param(
            Request(method="GET", path="", headers=[("Host", "x"), ("Origin", "null")]),
            id="another origin",
        ),
        pytest.param(Request(method="HEAD", path="", headers=[("Host", "x")]), id="HEAD"),
    ],
)
def test_a_probe_is_answered_however_it_asks(
    client: McpClient, path: str, request_: Request
) -> None:
    asked = Request(method=request_.method, path=path, headers=request_.headers)
    with client.connect() as connection:
        connection.send(asked.encode())
        response = connection.read_response(to=asked.method)
    assert response.status == 200
    assert response.header("cache-control") == "no-store"
    assert bool(response.body) is (asked.method == "GET")


@given(
    st.booleans(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.none() | st.integers(0, 9) | st.lists(st.text())),
)
def test_a_readiness_is_one_json_object(ready: bool, reasons: list[str], detail: Any) -> None:
    said = strict_json(Readiness(ready, tuple(reasons), detail).encoded())
    assert list(said)[:2] == ["ready", "reasons"]
    assert said == {**detail, "ready": ready, "reasons": reasons}


def test_probes_leave_no_line(client: McpClient, server: Any) -> None:
    mark = server.log_mark()
    client.get("/readyz")
    client.get("/healthz")
    client.ask("tools/list")
    eventually(lambda: server.log_mark() > mark, "the line of the request")
    assert len(server.logs()[mark:]) == 1


@pytest.mark.parametrize(
    ("settings", "window_s"),
    [
        ({}, 0.0),
        ({"fleet": True}, 5.0),
        ({"drain_s": 3}, 3.0),
        ({"fleet": True, "drain_s": 0}, 0.0),
    ],
)
def test_a_window_is_there_where_somebody_looks_at_readiness(
    settings: dict[str, Any], window_s: float
) -> None:
    assert ServerSettings.model_validate(settings).drain_window_s == window_s
