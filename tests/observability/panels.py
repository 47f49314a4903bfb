"""`python -m tests.observability.panels FILE [SECONDS]`: what the panels of the dashboard show.

A real server under a load that ends in every way, a real Prometheus beside it, and the queries of
each panel over that time, as JSON: the picture in `docs/images/` is drawn from them.
"""

import json
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.observability.deployed import Prometheus, panels
from tests.observability.watched import (
    ADA,
    KEYS,
    Watched,
    call_as_older_client,
    call_in_every_way,
    watched,
)
from tests.support.stores import RedisServer
from tests.support.toolfiles import write, write_tool
from tests.support.waiting import eventually

DEFAULT_S: Final = 240.0
STEP_S: Final = 5
LISTENERS: Final = 12
ROOM: Final = {"limits": {"concurrent_calls": 20, "listen_streams": 20}}
"""So little that the load comes near it."""


def _again(stop: threading.Event, pause_s: Callable[[], float], do: Callable[[], Any]) -> None:
    while not stop.wait(pause_s()):
        do()


def load(server: Watched, stop: threading.Event) -> list[Callable[[], None]]:
    """Each is to run in a thread of its own until it is told to stop."""
    client, began = server.client, time.monotonic()

    def wave() -> float:
        return 0.06 * (1.2 + math.sin((time.monotonic() - began) / 25))

    def good() -> None:
        tool = random.choices(("add", "kept", "picture", "talk"), (6, 3, 1, 1))[0]  # noqa: S311  # a load
        arguments = {"add": {"a": 1}, "kept": {"text": str(time.time_ns() % 8)}}.get(tool, {})
        client.call(tool, arguments, ADA)

    def listen() -> None:
        with client.listening(headers=ADA) as stream:
            while not stop.is_set():
                try:
                    stream.next(1.0)
                except (AssertionError, TimeoutError):
                    continue

    def strangers() -> None:
        if 90 < time.monotonic() - began < 150:
            for _ in range(8):
                client.call("add", {"a": 1}, {"X-API-Key": KEYS["old"]})
                client.call("add", {"a": 1}, {"Authorization": "Bearer wrong"})

    def changes() -> None:
        seconds = int(time.monotonic() - began)
        write_tool(server.tools, "more", str(seconds))
        write(server.tools / "broken.py", "def broken(:\n" if 100 < seconds < 170 else "")

    def slow() -> None:
        client.call("hang_in_thread", {"seconds": 4}, ADA)

    return [
        *(lambda: _again(stop, wave, good),) * 2,
        *(lambda: _again(stop, lambda: 0.5, lambda: call_in_every_way(client)),) * 2,
        *(listen,) * LISTENERS,
        lambda: _again(stop, lambda: 0.5, strangers),
        lambda: _again(stop, lambda: 20.0, changes),
        lambda: _again(stop, lambda: 7.0, slow),
        lambda: _again(stop, lambda: 4.0, lambda: call_as_older_client(server.server)),
    ]


def measure(seconds: float) -> list[dict[str, Any]]:
    """The panels with their series: pairs of POSIX time and value."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="panels-")))
        redis = stack.enter_context(RedisServer())
        server = stack.enter_context(watched(folder / "server", redis, sections=ROOM))
        prometheus = Prometheus(folder, server.admin.port)
        stack.callback(prometheus.stop)
        eventually(lambda: prometheus.values("up == 1"), "it scrapes", 40)
        stop, began = threading.Event(), time.time()
        threads = [threading.Thread(target=each, daemon=True) for each in load(server, stop)]
        for thread in threads:
            thread.start()
        stop.wait(seconds)
        ended = time.time()
        stop.set()
        for thread in threads:
            thread.join(30)
        found = []
        for panel in panels():
            series = []
            for legend, expression in panel.queries:
                data = prometheus.ask(
                    "query_range",
                    query=expression,
                    start=str(began + 2 * STEP_S),
                    end=str(ended),
                    step=str(STEP_S),
                )
                series += [
                    {"legend": legend, "labels": each["metric"], "values": each["values"]}
                    for each in data["result"]
                ]
            found.append(
                {"title": panel.title, "kind": panel.kind, "unit": panel.unit, "series": series}
            )
        return found


if __name__ == "__main__":
    found = measure(float(sys.argv[2]) if len(sys.argv) > 2 else DEFAULT_S)
    Path(sys.argv[1]).write_text(json.dumps(found), "utf-8")
