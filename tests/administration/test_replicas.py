"""What administrators do with replicas and credentials, wherever they ask."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.fleet.keeping import DOCUMENT, EPOCH
from app.fleet.members import MAX_BEAT, MAX_MEMBERS
from tests.administration.replicas import KEYS, Fleet
from tests.support.issuer import Issuer
from tests.support.toolfiles import write_tool
from tests.support.waiting import eventually

SOON_S = 2.0


class TestRollouts:
    def test_a_caller_has_the_tool_on_every_replica_or_on_none(self, fleet: Fleet) -> None:
        fleet[0].does("PUT", "tools/alpha/switch", {"percent": 50})
        for key in (*KEYS, None):
            found = {frozenset(replica.names(key)) for replica in fleet.replicas}
            assert len(found) == 1, key

    def test_a_tenant_has_it_and_others_do_not(self, fleet: Fleet) -> None:
        fleet[1].does("PUT", "tools/alpha/switch", {"tenants": ["acme"]})
        for replica in fleet.replicas:
            assert "alpha" in replica.names("ada")
            for key in ("bob", "eve", None):
                assert "alpha" not in replica.names(key)
            called = replica.client.call("alpha", {}, {"X-API-Key": KEYS["ada"]})
            assert called.text == "alpha"

    def test_a_tool_that_is_off_is_unknown_in_the_same_words(self, fleet: Fleet) -> None:
        unknown = fleet[1].client.call("nobody", {})
        fleet[0].does("PATCH", "tools/alpha/switch", {"enabled": False})
        off = fleet[1].client.call("alpha", {})
        assert off.outcome == unknown.outcome
        assert off.error["message"] == unknown.error["message"].replace("nobody", "alpha")

    def test_what_was_said_before_comes_back_with_the_tool(self, fleet: Fleet) -> None:
        path = "tools/alpha/switch"
        fleet[0].does("PUT", path, {"percent": 0, "tenants": ["acme"]})
        fleet[1].does("PATCH", path, {"enabled": False})
        assert "alpha" not in fleet[2].names("ada")
        fleet[2].does("PATCH", path, {"enabled": True})
        assert "alpha" in fleet[0].names("ada")
        assert "alpha" not in fleet[0].names("eve")
        fleet[0].does("DELETE", path)
        assert fleet[1].does("GET", path) == {"tool": "alpha", "switch": None}


class TestRevoked:
    def test_a_key_is_refused_and_its_listener_ended_on_all_replicas(self, fleet: Fleet) -> None:
        eve, bob = ({"X-API-Key": KEYS[name]} for name in ("eve", "bob"))
        assert fleet[1].names("eve")
        with (
            fleet[1].client.listening(headers=eve) as ended,
            fleet[2].client.listening(headers=bob) as other,
        ):
            began = time.monotonic()
            fleet[0].does("POST", "credentials/revoke", {"issuer": "api-key", "id": "eve"})
            assert [message.get("method") for message in ended.rest(SOON_S)] == [None]
            assert time.monotonic() - began < SOON_S
            for replica in fleet.replicas:
                assert replica.client.ask("tools/list", headers=eve).status == 401
                assert replica.names("bob")
            other.reader.next_comment(2.0)
        listed = fleet[2].does("GET", "credentials")
        assert listed["count"] == 1
        assert listed["credentials"] == [{"issuer": "api-key", "id": "eve", "expires_at": None}]
        fleet[2].does("POST", "credentials/restore", {"issuer": "api-key", "id": "eve"})
        assert fleet[0].names("eve")

    @pytest.mark.parametrize(
        "body",
        [
            {"issuer": "api-key", "id": "evee"},
            {"issuer": "https://nobody.example.com", "id": "x"},
        ],
    )
    def test_what_would_revoke_nothing_is_refused(self, fleet: Fleet, body: dict[str, Any]) -> None:
        response = fleet[0].ask("POST", "credentials/revoke", body)
        assert response.status_code == 404
        assert "nothing to revoke" in response.json()["error"]
        assert fleet[0].ask("POST", "credentials/restore", body).status_code == 404


def test_a_token_is_refused_and_its_listener_ended_on_all_replicas() -> None:
    with Issuer(algorithm="ES256") as issuer:
        config = {
            "server": {"public_url": "http://127.0.0.1:8000"},
            "auth": {"issuers": [issuer.settings()]},
        }
        with Fleet(config, config) as fleet:
            token, other = issuer.token(jti="token-1"), issuer.token(jti="token-2")
            shown = {"Authorization": f"Bearer {token}"}
            for replica in fleet.replicas:
                assert replica.client.ask("tools/list", headers=shown).status == 200
            with fleet[1].client.listening(headers=shown) as ended:
                body = {"issuer": issuer.url, "id": "token-1"}
                answer = fleet[0].does("POST", "credentials/revoke", body)
                assert ended.rest(SOON_S)
            assert answer["expires_at"] > time.strftime("%Y")
            for replica in fleet.replicas:
                assert replica.client.ask("tools/list", headers=shown).status == 401
                goes_on = {"Authorization": f"Bearer {other}"}
                assert replica.client.ask("tools/list", headers=goes_on).status == 200


class TestDrain:
    def test_a_replica_is_drained_by_whichever_is_asked(self, fleet: Fleet) -> None:
        fleet[0].does("POST", f"replicas/{fleet[2].id}/drain")
        assert fleet[2].client.get("/readyz").status == 503
        assert fleet[1].client.get("/readyz").status == 200
        assert fleet[2].names()  # what comes all the same is served
        shown = {each["replica"]: each["draining"] for each in fleet[1].status()["fleet"]}
        assert shown == {each.id: each is fleet[2] for each in fleet.replicas}
        fleet[1].does("DELETE", f"replicas/{fleet[2].id}/drain")
        assert fleet[2].client.get("/readyz").status == 200

    def test_only_a_replica_that_is_there(self, fleet: Fleet) -> None:
        response = fleet[0].ask("POST", "replicas/nobody/drain")
        assert response.status_code == 404
        assert fleet[1].id in response.json()["error"]
        assert fleet[0].ask("DELETE", f"replicas/{fleet[1].id}/drain").status_code == 404


def test_a_reload_reaches_all_replicas(tmp_path: Path) -> None:
    write_tool(tmp_path, "old")
    config = {"tools": {"directory": tmp_path, "reload": False}}
    with Fleet(config, config) as fleet, fleet[1].client.listening() as stream:
        write_tool(tmp_path, "new")
        answer = fleet[0].does("POST", "reload")
        assert answer["complete"]
        for replica in fleet.replicas:
            assert replica.names() == {"old", "new"}
        assert stream.next(SOON_S)["method"] == "notifications/tools/list_changed"
        # A file that hangs holds up nothing else.
        hangs = "import threading\nfrom app import tool\nthreading.Event().wait(8)\n"
        (tmp_path / "hangs.py").write_text(hangs, "utf-8")
        with ThreadPoolExecutor(1) as pool:
            reload = pool.submit(fleet[0].ask, "POST", "reload")
            eventually(lambda: fleet[1].fleet.control.reloads == 2, "the reload has begun")
            fleet[1].does("PATCH", "tools/old/switch", {"enabled": False})
            assert fleet[0].names() == {"new"}
            assert reload.result().status_code == 202
            assert len(reload.result().json()["missing"]) == 2


class TestDisagreement:
    def test_other_settings_are_warned_of_once_and_show(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with Fleet({}, {"execution": {"timeout_s": 7}}) as fleet:
            status = fleet[0].status()
            assert not status["agree"]
            assert [each.partition(":")[0] for each in status["disagreements"]] == ["configuration"]
            fingerprints = {each["configuration"] for each in status["fleet"]}
            assert len(fingerprints) == 2

            said = ""

            def is_warned() -> bool:
                nonlocal said
                said += capsys.readouterr().out
                return said.count("fleet_disagrees") == 2  # once by each

            eventually(is_warned, "both have warned")
            time_up = threading.Event()
            time_up.wait(1.5)  # longer than a heartbeat: nothing more is said
            assert is_warned()

    def test_those_who_agree_say_nothing(self, fleet: Fleet) -> None:
        status = fleet[0].status()
        assert status["agree"] and status["one_catalog"] and status["one_revision"]
        assert len({each["configuration"] for each in status["fleet"]}) == 1
        assert status["lasting"] and status["problem"] is None and status["ready"]

    def test_keys_that_others_do_not_have_show(self) -> None:
        newer = {"secrets": {"keys": ["n" * 32, "k" * 32]}}
        with Fleet({}, newer) as fleet:
            kinds = [each.partition(":")[0] for each in fleet[0].status()["disagreements"]]
            assert kinds == ["keys"]


class TestHostileBus:
    def test_what_the_bus_says_leaves_replicas_as_they_are(self, fleet: Fleet) -> None:
        bus = fleet[0].state.wire
        junk = [b"", b"\xff" * 100, b"[]", b"{}", b"null", b"9" * 5000, b"1:zz", b"{" * MAX_BEAT]
        before = fleet[1].fleet.control

        def shout() -> None:
            for topic in ("fleet:control", "fleet:members"):
                for message in junk * 20:
                    bus._bus._hearers[topic][1](message)
            for number in range(300):
                bus._bus._hearers["fleet:control"][1](b"%d:%b" % (number + 1000, b"ab" * 8))

        fleet.run(shout)
        assert len(fleet[1].status()["fleet"]) == 3
        assert fleet[1].fleet.control == before
        assert fleet[1].names() == {"alpha", "beta", "gamma"}

    def test_made_up_members_hold_nothing_up_for_long(self, fleet: Fleet) -> None:
        bus = fleet[0].state.wire._bus
        honest = fleet[0].fleet._member()

        def invent() -> None:
            said = orjson.loads(honest.encode())
            for number in range(MAX_MEMBERS + 10):
                message = orjson.dumps({**said, "replica": "made-up", "pid": number, "revision": 0})
                bus._hearers["fleet:members"][1](message)

        fleet.run(invent)
        began = time.monotonic()
        with fleet[1].client.listening() as stream:
            assert fleet[0].ask("PATCH", "tools/beta/switch", {"enabled": False}).is_success
            assert stream.next(SOON_S)["method"]
        assert time.monotonic() - began < SOON_S + 1
        eventually(lambda: len(fleet[1].status()["fleet"]) == 3, "the made-up ones are forgotten")


def test_garbage_in_the_store_is_told_and_left_alone(fleet: Fleet) -> None:
    fleet[0].does("PATCH", "tools/beta/switch", {"enabled": False})
    fleet.wait_for(fleet.control.set(DOCUMENT, b"garbage", ttl_s=60))
    fleet.wait_for(fleet.control.delete(EPOCH))
    eventually(lambda: fleet[0].status()["problem"], "the problem shows")
    response = fleet[0].ask("PATCH", "tools/alpha/switch", {"enabled": False})
    assert response.status_code == 503
    assert "not what this server wrote" in response.json()["error"]
    assert fleet[0].names() == {"alpha", "gamma"}
    fleet.flush()
    eventually(lambda: fleet[0].status()["problem"] is None, "the document is written back")


def test_a_full_document_takes_no_more(fleet: Fleet) -> None:
    full = {("api-key", f"gone-{n}"): None for n in range(10_000)}
    change = fleet[0].fleet.change
    fleet.wait_for(change(lambda before: replace(before, revoked=full)))
    eventually(lambda: fleet[2].status()["revoked"] == len(full), "it is full")
    response = fleet[1].ask("POST", "credentials/revoke", {"issuer": "api-key", "id": "eve"})
    assert response.status_code == 409
    assert "room for 10000" in response.json()["error"]
    listed = fleet[2].does("GET", "credentials")
    assert (listed["count"], len(listed["credentials"])) == (10_000, 1000)
    fleet.wait_for(change(lambda before: replace(before, revoked={})))
    eventually(lambda: fleet[0].status()["revoked"] == 0, "it is empty again")


def test_tools_are_listed_with_what_was_said_of_them(fleet: Fleet) -> None:
    fleet[0].does("PATCH", "tools/beta/switch", {"enabled": False})
    tools = {tool["name"]: tool for tool in fleet[1].does("GET", "tools")["tools"]}
    assert set(tools) == {"alpha", "beta", "gamma"}
    assert tools["alpha"] == {"name": "alpha", "loaded": True, "served": True, "switch": None}
    assert not tools["beta"]["served"] and tools["beta"]["loaded"]
