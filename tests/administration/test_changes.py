"""One change anywhere: told once, everywhere, and never before it can be seen."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import pytest

from app.state.memory import MemoryStore
from tests.administration.replicas import KEYS, Fleet, Replica
from tests.support.client import Stream
from tests.support.sse import Comment
from tests.support.waiting import eventually

CHANGED: Final = "notifications/tools/list_changed"
SOON_S: Final = 2.0
LISTS: Final = 20


class Listener:
    """Somebody who listens on one replica, and fetches the list at once when it is told."""

    def __init__(self, stack: ExitStack, replica: Replica, fleet: Fleet, **how: Any) -> None:
        self.stream: Stream = stack.enter_context(replica.client.listening(**how))
        self._fleet = fleet

    def is_told(self) -> tuple[float, list[set[str]]]:
        """When it was told, and what lists from all replicas in turn said just then."""
        message = self.stream.next(SOON_S + 2)
        told_at = time.monotonic()
        assert message["method"] == CHANGED
        count = len(self._fleet)
        return told_at, [self._fleet[number % count].names() for number in range(LISTS)]

    def is_left_alone(self, signs: int = 3) -> None:
        """Signs of life, and nothing else."""
        for _ in range(signs):
            assert isinstance(self.stream.reader.next(2.0), Comment)


def listeners(stack: ExitStack, fleet: Fleet, each: int = 2) -> list[Listener]:
    return [Listener(stack, replica, fleet) for replica in fleet.replicas for _ in range(each)]


@pytest.mark.parametrize("delay_s", [0.0, 0.15])
def test_six_listeners_are_told_once_and_find_the_change_wherever_they_look(
    fleet: Fleet, delay_s: float
) -> None:
    # A replica that hears late applies late: nobody may be told before it has.
    fleet[2].state.wire.delay_s = delay_s
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        six = listeners(stack, fleet)
        waiting = [pool.submit(each.is_told) for each in six]
        began = time.monotonic()
        answer = fleet[1].does("PATCH", "tools/beta/switch", {"enabled": False})
        assert answer["complete"] and answer["missing"] == [] and answer["lasting"]
        for told in waiting:
            at, lists = told.result()
            assert at - began < SOON_S
            assert lists == [{"alpha", "gamma"}] * LISTS
        for each in six:
            each.is_left_alone()


def test_a_replica_that_never_applies_it_holds_listeners_up_for_a_second_alone(
    fleet: Fleet,
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        listener = Listener(stack, fleet[0], fleet)
        fleet[2].state.line.is_cut = fleet[2].state.wire.is_cut = True
        began = time.monotonic()
        told = pool.submit(listener.is_told)
        response = fleet[0].ask("PATCH", "tools/beta/switch", {"enabled": False})
        assert 0.9 < told.result()[0] - began < SOON_S
        assert response.status_code == 202
        (missing,) = response.json()["missing"]
        assert missing.startswith(fleet[2].id)
        assert fleet[2].names() == {"alpha", "beta", "gamma"}


def test_who_cannot_see_the_tool_is_told_nothing(fleet: Fleet) -> None:
    with ExitStack() as stack:
        fleet[0].does("PUT", "tools/alpha/switch", {"tenants": ["acme"]})
        ada = Listener(stack, fleet[1], fleet, headers={"X-API-Key": KEYS["ada"]})
        eve = Listener(stack, fleet[2], fleet, headers={"X-API-Key": KEYS["eve"]})
        fleet[0].does("PATCH", "tools/alpha/switch", {"enabled": False})
        ada.is_told()
        eve.is_left_alone()


def test_without_the_bus_a_change_is_found_and_told(fleet: Fleet) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        for replica in fleet.replicas:
            replica.state.wire.is_cut = True
        listener = Listener(stack, fleet[1], fleet)
        began = time.monotonic()
        told = pool.submit(listener.is_told)
        fleet[0].ask("PATCH", "tools/beta/switch", {"enabled": False})
        at, lists = told.result()
        assert at - began < SOON_S
        assert lists == [{"alpha", "gamma"}] * LISTS
        listener.is_left_alone()


@pytest.mark.parametrize("changes", [True, False])
def test_after_a_lost_line_listeners_are_told_once_if_anything_changed(
    fleet: Fleet, changes: bool
) -> None:
    with ExitStack() as stack:
        listener = Listener(stack, fleet[1], fleet)
        fleet[1].state.line.is_cut = fleet[1].state.wire.is_cut = True
        if changes:
            fleet[0].ask("PATCH", "tools/beta/switch", {"enabled": False})
            fleet[0].ask("PATCH", "tools/gamma/switch", {"enabled": False})
        listener.is_left_alone()
        fleet[1].state.line.is_cut = False
        fleet.run(fleet[1].state.wire.mend)
        if changes:
            assert listener.is_told()[1] == [{"alpha"}] * LISTS
        listener.is_left_alone()


def test_a_change_and_its_opposite_while_the_line_was_lost_are_nothing_to_tell(
    fleet: Fleet,
) -> None:
    with ExitStack() as stack:
        listener = Listener(stack, fleet[1], fleet)
        fleet[1].state.line.is_cut = fleet[1].state.wire.is_cut = True
        fleet[0].ask("PATCH", "tools/beta/switch", {"enabled": False})
        revision = fleet[0].ask("DELETE", "tools/beta/switch").json()["revision"]
        fleet[1].state.line.is_cut = False
        fleet.run(fleet[1].state.wire.mend)
        eventually(lambda: fleet[1].status()["revision"] == revision, "the document is followed")
        listener.is_left_alone()


def test_what_administrators_change_at_the_same_time_is_all_there(fleet: Fleet) -> None:
    with ThreadPoolExecutor(9) as pool:

        def change(number: int) -> int:
            body = {"percent": 100, "tenants": [f"t-{number}"]}
            name = ("alpha", "beta", "gamma")[number % 3]
            path = f"tools/{name}/switch"
            if number < 3:
                return int(fleet[number].does("PUT", path, body)["revision"])
            revoke = {"issuer": "api-key", "id": "eve"}
            what = "revoke" if number % 2 else "restore"
            return int(fleet[number % 3].ask("POST", f"credentials/{what}", revoke).is_success)

        done = [pool.submit(change, number) for number in range(9)]
        revisions = [each.result() for each in done][:3]
    assert len(set(revisions)) == 3
    switches = fleet[2].status()["switches"]
    assert {name: each["tenants"] for name, each in switches.items()} == {
        "alpha": ["t-0"],
        "beta": ["t-1"],
        "gamma": ["t-2"],
    }


def test_a_store_that_was_flushed_gets_its_document_back(fleet: Fleet) -> None:
    fleet[0].does("PATCH", "tools/beta/switch", {"enabled": False})
    with ExitStack() as stack:
        listener = Listener(stack, fleet[1], fleet)
        fleet.flush()
        # A change right then builds on what was there before.
        answer = fleet[2].does("PATCH", "tools/gamma/switch", {"enabled": False})
        assert set(fleet[2].status()["switches"]) == {"beta", "gamma"}
        assert listener.is_told()[1] == [{"alpha"}] * LISTS
        fleet.flush()
        listener.is_left_alone()
    assert fleet[0].status()["revision"] == answer["revision"]
    eventually(lambda: len(fleet.control) == 2, "the document is written back")


def test_nothing_is_changed_where_the_store_cannot_be_reached(fleet: Fleet) -> None:
    fleet[0].state.line.is_cut = True
    response = fleet[0].ask("PATCH", "tools/beta/switch", {"enabled": False})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    assert fleet[0].names() == {"alpha", "beta", "gamma"}
    eventually(lambda: fleet[0].status()["problem"], "the problem shows")
    fleet[0].state.line.is_cut = False
    eventually(lambda: fleet[0].status()["problem"] is None, "the problem is over")


def test_a_decision_survives_the_fleet() -> None:
    control = MemoryStore()
    with Fleet({}, control=control) as before:
        before[0].does("PATCH", "tools/beta/switch", {"enabled": False})
        before[0].does("POST", "credentials/revoke", {"issuer": "api-key", "id": "eve"})
    with Fleet({}, control=control) as after:
        assert after[0].names() == {"alpha", "gamma"}
        assert after[0].client.ask("tools/list", headers={"X-API-Key": KEYS["eve"]}).status == 401
        assert after[0].client.ask("tools/list", headers={"X-API-Key": KEYS["bob"]}).status == 200


def test_lines_of_a_log_say_who_changed_what(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet[0].does("PATCH", "tools/beta/switch", {"enabled": False})
    text = "".join(capsys.readouterr())
    assert "administered" in text and "root" in text and "beta" in text


def test_a_burst_of_changes_is_told_at_the_latest_after_its_time(fleet: Fleet) -> None:
    with ExitStack() as stack:
        listener = Listener(stack, fleet[1], fleet)
        stop = threading.Event()

        def churn() -> None:
            on = False
            while not stop.is_set():
                fleet[0].ask("PATCH", "tools/gamma/switch", {"enabled": on})
                on = not on

        fleet[0].does("PATCH", "tools/beta/switch", {"enabled": False})
        thread = threading.Thread(target=churn)
        thread.start()
        try:
            assert listener.stream.next(SOON_S)["method"] == CHANGED
        finally:
            stop.set()
            thread.join()
