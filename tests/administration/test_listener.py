"""What the administrative listener says to those who may, and to everybody else."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.applications import Starlette

from app.admin.access import WRONG
from app.admin.serving import MAX_BODY_BYTES, bind_admin
from app.auth.api_keys import make_key
from app.server import create_app
from app.settings import Settings
from tests.administration.replicas import ADMIN_KEY, CONFIG, KEYS, Fleet, Replica
from tests.support.cases import rows

STRANGER = make_key("root")
SWITCH = "tools/alpha/switch"
ROUTES = (
    ("GET", "status"),
    ("GET", "tools"),
    ("GET", SWITCH),
    ("PUT", SWITCH),
    ("PATCH", SWITCH),
    ("DELETE", SWITCH),
    ("POST", "reload"),
    ("POST", "replicas/x/drain"),
    ("DELETE", "replicas/x/drain"),
    ("GET", "credentials"),
    ("POST", "credentials/revoke"),
    ("POST", "credentials/restore"),
    ("GET", "nothing"),
    ("TRACE", "status"),
    ("OPTIONS", "status"),
)


@pytest.fixture(scope="module")
def patient() -> Iterator[Replica]:
    """A replica of its own: wrong keys are counted."""
    with Fleet({}) as fleet:
        yield fleet[0]


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_nobody_without_a_key_learns_anything(fleet: Fleet, route: tuple[str, str]) -> None:
    response = fleet[0].ask(*route, key=None)
    assert response.status_code in (401, 429)
    assert response.headers["content-type"] == "application/json"


@rows(
    "headers, status",
    ("another key of the same name", {"Authorization": f"Bearer {STRANGER}"}, 401),
    ("a key of a caller", {"X-API-Key": KEYS["ada"]}, 401),
    ("garbage", {"Authorization": "Bearer a,b"}, 400),
    ("another scheme", {"Authorization": "Basic cm9vdDpyb290"}, 401),
    ("two keys", {"Authorization": f"Bearer {ADMIN_KEY}", "X-API-Key": ADMIN_KEY}, 400),
    ("a foreign host", {"Authorization": f"Bearer {ADMIN_KEY}", "Host": "evil.example.com"}, 421),
    ("a page", {"Authorization": f"Bearer {ADMIN_KEY}", "Origin": "https://evil.example.com"}, 403),
    ("no page", {"Authorization": f"Bearer {ADMIN_KEY}", "Origin": "null"}, 403),
    ("the right key", {"X-API-Key": ADMIN_KEY}, 200),
)
def test_who_may_not_is_refused(patient: Replica, headers: dict[str, str], status: int) -> None:
    response = patient.ask("GET", "status", key=None, headers=headers)
    assert response.status_code == status
    assert ("www-authenticate" in response.headers) is (status == 401)
    assert "access-control-allow-origin" not in response.headers
    if status != 200:
        assert set(response.json()) == {"error"}


def test_a_key_in_the_address_is_refused(patient: Replica) -> None:
    response = patient.ask("GET", f"status?access_token={ADMIN_KEY}", key=None)
    assert response.status_code == 401


def test_a_caller_of_tools_cannot_use_an_administrators_key(fleet: Fleet) -> None:
    assert fleet[0].client.ask("tools/list", headers={"X-API-Key": ADMIN_KEY}).status == 401


def test_wrong_keys_are_restrained_and_the_right_one_is_not() -> None:
    with Fleet({}) as fleet:
        statuses = [fleet[0].ask("GET", "status", key=STRANGER).status_code for _ in range(25)]
        assert statuses == [401] * WRONG + [429] * (25 - WRONG)
        assert fleet[0].ask("GET", "status").status_code == 200


def test_health_needs_no_key(fleet: Fleet) -> None:
    response = fleet[0].ask("GET", "healthz", key=None)
    assert (response.status_code, response.text) == (200, "ok\n")


@rows(
    "method, path, body, said",
    ("percent 101", "PUT", SWITCH, {"percent": 101}, "percent: "),
    ("percent below zero", "PUT", SWITCH, {"percent": -1}, "percent: "),
    ("a half percent", "PUT", SWITCH, {"percent": 0.5}, "percent: "),
    ("a percentage in words", "PUT", SWITCH, {"percent": "10"}, "percent: "),
    ("enabled in words", "PATCH", SWITCH, {"enabled": "no"}, "enabled: "),
    ("a misspelt member", "PUT", SWITCH, {"percentage": 10}, "known are: enabled, percent"),
    ("a tenant with control characters", "PUT", SWITCH, {"tenants": ["a\nb"]}, "tenants.0: "),
    ("an endless tenant", "PUT", SWITCH, {"tenants": ["a" * 257]}, "tenants.0: "),
    ("many tenants", "PUT", SWITCH, {"tenants": ["a"] * 201}, "tenants: "),
    ("a list", "PUT", SWITCH, [1], "must be a JSON object"),
    ("nothing to revoke", "POST", "credentials/revoke", {}, "issuer: "),
    ("an id with control characters", "POST", "credentials/revoke",
     {"issuer": "api-key", "id": "a\x1b[31m"}, "id: "),
    ("an end without a zone", "POST", "credentials/revoke",
     {"issuer": "api-key", "id": "eve", "expires_at": "2027-01-01T00:00:00"}, "expires_at: "),
    ("words for a reload", "POST", "reload", {"now": True}, "known are: none"),
)  # fmt: skip
def test_a_body_that_does_not_fit_is_explained(
    fleet: Fleet, method: str, path: str, body: Any, said: str
) -> None:
    response = fleet[0].ask(method, path, body)
    assert response.status_code == 400
    assert said in response.json()["error"]


@rows(
    "data, headers, status",
    ("no JSON", b"{", {}, 400),
    ("not UTF-8", b'{"enabled": "\xff"}', {}, 400),
    ("nested deeply", b"[" * 300 + b"]" * 300, {}, 400),
    ("a form", b"enabled=false", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ("compressed", b"{}", {"Content-Encoding": "gzip"}, 415),
    ("huge", b" " * (MAX_BODY_BYTES + 1), {}, 413),
)
def test_bytes_that_do_not_fit_are_refused(
    fleet: Fleet, data: bytes, headers: dict[str, str], status: int
) -> None:
    headers = {"Content-Type": "application/json", **headers}
    response = fleet[0].ask("PUT", SWITCH, headers=headers, content=data)
    assert response.status_code == status
    assert set(response.json()) == {"error"}


def test_a_huge_body_that_says_no_size_is_refused_as_well(fleet: Fleet) -> None:
    def pieces() -> Any:
        for _ in range(3):
            yield b" " * MAX_BODY_BYTES

    headers = {"Content-Type": "application/json"}
    response = fleet[0].ask("PUT", SWITCH, headers=headers, content=pieces())
    assert response.status_code == 413


@pytest.mark.parametrize(
    "name", ["nobody", "alpha%0A", "alpha%2F..", "%00", "a" * 4000, "%F0%9F%90%9F", "alph"]
)
def test_a_tool_that_is_not_there_is_not_found(fleet: Fleet, name: str) -> None:
    response = fleet[0].ask("PUT", f"tools/{name}/switch", {"enabled": False})
    assert response.status_code == 404
    if name == "alph":
        assert 'Did you mean "alpha"?' in response.json()["error"]
    assert len(response.text) < 300


def test_another_method_is_told_which_ones_there_are(fleet: Fleet) -> None:
    response = fleet[0].ask("POST", SWITCH, {})
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) >= {"GET", "PUT", "PATCH", "DELETE"}


def test_a_head_that_never_ends_is_cut_off(fleet: Fleet) -> None:
    parts = urlsplit(fleet[0].admin)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /admin/v1/status HTTP/1.1\r\nX: " + b"a" * 600_000)
        assert b" 431 " in connection.recv(200)


def test_a_decision_that_ends_with_this_process_says_so() -> None:
    settings = Settings.model_validate(CONFIG)
    listener = bind_admin(settings.admin)
    assert listener is not None
    host, port = listener.getsockname()[:2]
    app = create_app(settings, admin=listener)

    async def ask() -> httpx2.Response:
        async with app._lifespan(Starlette()), httpx2.AsyncClient(trust_env=False) as client:
            return await client.patch(
                f"http://{host}:{port}/admin/v1/{SWITCH}",
                headers={"X-API-Key": ADMIN_KEY},
                json={"enabled": False},
            )

    response = asyncio.run(ask())
    assert response.status_code == 200
    assert response.json()["lasting"] is False


async def test_a_port_that_is_taken_leaves_nothing_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings.model_validate({**CONFIG, "admin": {**CONFIG["admin"], "port": port}})
        app, before = create_app(settings), asyncio.all_tasks()
        with pytest.raises(OSError, match="in use"):
            async with app._lifespan(Starlette()):
                pass
    assert app.service is None
    assert asyncio.all_tasks() == before
