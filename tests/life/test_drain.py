"""SIGTERM in a fleet: what was under way, and what comes while others learn of it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.life.watching import Watch, reasons, watches
from tests.sessions.conversation import Conversation
from tests.support.client import Reply, Stream, read_reply
from tests.support.schema import META
from tests.support.server import ServerProcess
from tests.support.waiting import eventually, eventually_lines

TOOLS: Final = Path(__file__).parent / "tools"
WINDOW_S: Final = 2.0
GRACE_S: Final = 1.0
LISTENERS: Final = 40
CONFIG: Final[dict[str, Any]] = {
    "server": {"drain_s": WINDOW_S, "shutdown_grace_s": GRACE_S},
    "legacy": {"ask_timeout_s": 60},
}


@dataclass
class Goodbye:
    """All that was seen while one server ended.

    Attributes:
        begun: When SIGTERM was sent, of `time.monotonic()`; the POSIX time of it is `begun_at`.
    """

    code: int = -1
    took_s: float = 0.0
    watched: dict[str, Watch] = field(default_factory=dict)
    listeners: list[tuple[float, list[dict[str, Any]]]] = field(default_factory=list)
    begun: float = 0.0
    begun_at: float = 0.0
    late_listener: Reply | None = None
    on_idle: Reply | None = None
    idle_was_closed: bool = False
    released: Reply | None = None
    given_up: Reply | None = None
    asked: tuple[float, list[dict[str, Any]]] = 0.0, []
    session_stream_ended: float = 0.0
    logs: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def goodbye(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Goodbye]:
    """One server that was told to end while much was under way."""
    folder = tmp_path_factory.mktemp("goodbye")
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(TOOLS, CONFIG))
        yield _say_goodbye(server, folder, stack)


def _say_goodbye(server: ServerProcess, folder: Path, stack: ExitStack) -> Goodbye:
    client, seen = server.client, Goodbye()
    pool = stack.enter_context(ThreadPoolExecutor(LISTENERS + 8))
    streams = [
        stack.enter_context(client.listening(id=f"L{number}")) for number in range(LISTENERS)
    ]
    idle = stack.enter_context(client.connect())
    assert client.ask("tools/list", connection=idle).status == 200
    calls = []
    for name in ("released", "never"):
        arguments = {"path": str(folder / f"{name}.notes"), "release": str(folder / name)}
        connection = stack.enter_context(client.connect(20))
        params = {"name": "wait", "arguments": arguments}
        connection.send(client.request("tools/call", params).encode())
        eventually_lines(folder / f"{name}.notes", "started")
        calls.append(connection)
    old = stack.enter_context(Conversation([server]))
    old.open()
    question = pool.submit(_ask, old, folder / "ask.notes", lambda: seen.begun)
    eventually_lines(folder / "ask.notes", "started")
    listening = threading.Event()
    session = pool.submit(_listen, old, listening, lambda: seen.begun)
    assert listening.wait(10)

    seen.watched = watches(client)
    seen.begun, seen.begun_at = time.monotonic(), time.time()
    server.terminate()
    for watch in seen.watched.values():
        stack.enter_context(watch)
    ends = [pool.submit(_rest, stream, seen.begun) for stream in streams]
    eventually(lambda: client.get("/readyz").status == 503, "it is not ready")
    wanted = {"notifications": {"toolsListChanged": True}}
    seen.late_listener = client.ask("subscriptions/listen", wanted, id=1)
    seen.on_idle = client.ask("tools/list", connection=idle)
    seen.idle_was_closed = idle.expect_end() == b""
    (folder / "released").touch()
    seen.released = read_reply(calls[0], "tools/call")
    seen.listeners = [end.result() for end in ends]
    seen.asked = question.result()
    seen.session_stream_ended = session.result()
    seen.given_up = read_reply(calls[1], "tools/call")
    seen.code = server.wait()
    seen.took_s = time.monotonic() - seen.begun
    seen.logs = server.logs()
    return seen


def _rest(stream: Stream, begun: float) -> tuple[float, list[dict[str, Any]]]:
    messages = stream.rest()
    return time.monotonic() - begun, messages


def _ask(old: Conversation, notes: Path, begun: Any) -> tuple[float, list[dict[str, Any]]]:
    """A call whose question nobody answers: what came on its stream."""
    params = {"name": "ask", "arguments": {"path": str(notes)}}
    with old.stream("tools/call", params) as (_, events):
        messages = [event.message for event in events if event.message is not None]
    return time.monotonic() - begun(), messages


def _listen(old: Conversation, listening: threading.Event, begun: Any) -> float:
    with old.get() as (_, events):
        listening.set()
        assert [event for event in events if event.message is not None] == []
    return time.monotonic() - float(begun())


def test_it_ends_by_itself_with_code_0_and_no_error_in_the_log(goodbye: Goodbye) -> None:
    """SH-01, with listeners, an idle connection and running calls."""
    assert goodbye.code == 0
    assert WINDOW_S < goodbye.took_s < WINDOW_S + GRACE_S + 2
    assert [log for log in goodbye.logs if log.get("level") in ("error", "critical")] == []
    assert not [log for log in goodbye.logs if "exception" in log]


@pytest.mark.parametrize(
    ("path", "status"), [("/readyz", 503), ("/healthz", 200), ("tools/list", 200)]
)
def test_every_request_of_the_window_is_served(goodbye: Goodbye, path: str, status: int) -> None:
    """SH-04."""
    begun = goodbye.begun
    answers = goodbye.watched[path].during(begun + 0.2, begun + WINDOW_S - 0.1)
    assert len(answers) >= 10
    assert {None if each is None else each.status for each in answers} == {status}


def test_readiness_turns_off_at_once_and_says_why(goodbye: Goodbye) -> None:
    answers = goodbye.watched["/readyz"].answers
    assert answers[0].status == 503 or answers[1].status == 503
    assert reasons(answers[1]) == (False, ["The server is about to stop."])
    assert answers[1].header("cache-control") == "no-store"


def test_the_socket_closes_when_the_window_is_over(goodbye: Goodbye) -> None:
    for watch in goodbye.watched.values():
        assert watch.seen[-1].response is None
        assert WINDOW_S - 0.1 < watch.seen[-1].at - goodbye.begun < WINDOW_S + 1


def test_answers_of_the_window_are_the_last_ones_of_their_connections(goodbye: Goodbye) -> None:
    for watch in goodbye.watched.values():
        assert {answer.header("connection") for answer in watch.answers[1:]} == {"close"}
    assert goodbye.on_idle is not None and goodbye.on_idle.status == 200
    assert goodbye.on_idle.header("connection") == "close"
    assert goodbye.idle_was_closed


def test_a_running_call_ends_with_its_result(goodbye: Goodbye) -> None:
    assert goodbye.released is not None
    assert goodbye.released.text == "released"
    assert goodbye.released.header("connection") == "close"


def test_a_call_that_outlasts_the_grace_is_told_so(goodbye: Goodbye) -> None:
    assert goodbye.given_up is not None
    assert goodbye.given_up.text == "The server is shutting down; the call was stopped."


def test_each_listener_is_told_goodbye_once(goodbye: Goodbye) -> None:
    """SH-02."""
    for number, (_, messages) in enumerate(goodbye.listeners):
        id = f"L{number}"
        meta = {f"{META}subscriptionId": id}
        (message,) = messages
        assert (message["id"], message["result"]["resultType"]) == (id, "complete")
        assert message["result"]["_meta"].items() >= meta.items()


def test_listeners_end_one_after_another_once_a_balancer_knows(goodbye: Goodbye) -> None:
    """By the clock of the log: readers of 40 streams take turns and see some of them late."""
    assert min(end for end, _ in goodbye.listeners) > WINDOW_S / 2 - 0.05, "it was sent here again"
    lines = [log for log in goodbye.logs if log.get("method") == "subscriptions/listen"]
    ended = sorted(
        datetime.fromisoformat(log["timestamp"]).timestamp() - goodbye.begun_at
        for log in lines
        if log["outcome"] == "ok"
    )
    assert len(ended) == LISTENERS
    assert ended[0] > WINDOW_S / 2 - 0.05 and ended[-1] < WINDOW_S + 0.5
    early = [end for end in ended if end < WINDOW_S * 3 / 4]
    assert LISTENERS / 4 <= len(early) <= LISTENERS * 3 / 4, ended


def test_a_new_listener_is_sent_elsewhere(goodbye: Goodbye) -> None:
    assert goodbye.late_listener is not None
    assert goodbye.late_listener.status == 503
    assert goodbye.late_listener.header("retry-after") == "1"
    assert "about to stop" in goodbye.late_listener.error["message"]


def test_the_stream_of_an_older_session_ends_within_the_window_too(goodbye: Goodbye) -> None:
    assert WINDOW_S / 2 - 0.05 < goodbye.session_stream_ended < WINDOW_S + 0.5


def test_a_question_waits_for_its_user_in_the_window_and_no_longer(goodbye: Goodbye) -> None:
    """The grace after it is for work: nobody could answer here any more."""
    ended, (question, withdrawn, result) = goodbye.asked
    assert question["method"] == "elicitation/create"
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == question["id"]
    assert result["result"]["isError"]
    assert "about to stop" in result["result"]["content"][0]["text"]
    assert WINDOW_S - 0.05 < ended < WINDOW_S + 0.5
