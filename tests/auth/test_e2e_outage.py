"""An issuer that is down, hangs or is asked about made-up keys disturbs nobody else."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.auth import office
from tests.auth.office import bearer, whoami
from tests.support.issuer import Behaviour, Issuer
from tests.support.server import ServerFactory, ServerProcess
from tests.support.waiting import eventually

COOLDOWN_S = 0.2
FLOOD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuers:
    """`steady` serves from the start, `late` does not, and `silent` never answers."""

    steady: Issuer
    late: Issuer
    silent: Issuer


@pytest.fixture(scope="module")
def issuers() -> Iterator[Issuers]:
    steady, late, silent = (Issuer(audience=office.RESOURCE, algorithm="ES256") for _ in range(3))
    late.behave(Behaviour.ERROR)
    silent.behave(Behaviour.HANG)
    with steady, late, silent:
        yield Issuers(steady=steady, late=late, silent=silent)


@pytest.fixture(scope="module")
def server(issuers: Issuers, module_server_factory: ServerFactory) -> ServerProcess:
    tables = (
        issuers.steady.settings(),
        issuers.late.settings(cooldown_s=COOLDOWN_S),
        issuers.silent.settings(timeout_s=30),
    )
    return module_server_factory(office.TOOLS, office.config(*tables))


def test_a_token_that_cannot_be_checked_is_not_called_bad(
    server: ServerProcess, issuers: Issuers
) -> None:
    """AU-12, cold: 503 with a time to wait, and it recovers by itself."""
    token = bearer(issuers.late.token())
    reply = server.client.call("whoami", {}, token)
    assert reply.outcome == (503, -31503)
    assert int(reply.header("retry-after") or "") >= 1
    assert reply.header("www-authenticate") is None
    assert server.client.get("/readyz").status == 200
    issuers.late.recover()
    eventually(
        lambda: server.client.call("whoami", {}, token).status == 200, "the issuer's recovery"
    )


def test_who_waits_for_an_issuer_keeps_nobody_else_waiting(
    server: ServerProcess, issuers: Issuers
) -> None:
    client = server.client
    known, unseen = bearer(issuers.steady.token()), bearer(issuers.steady.token(sub="bob"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.call, "whoami", {}, bearer(issuers.silent.token()))
        for _ in range(20):
            assert whoami(client, known)["subject"] == "alice"
        assert whoami(client, unseen)["subject"] == "bob"
        assert not waiting.done()
        issuers.silent.stop()
        assert waiting.result().status == 503
    issuers.silent.start()


def test_made_up_keys_lead_to_one_question(server: ServerProcess, issuers: Issuers) -> None:
    """AU-11."""
    client, issuer = server.client, issuers.steady
    good = bearer(issuer.token())
    before = issuer.fetches["keys"]
    with client.connect() as connection:
        for number in range(FLOOD):
            bad = bearer(issuer.token(header={"kid": f"made-up-{number}"}))
            assert client.call("whoami", {}, bad, connection=connection).status == 401
            assert client.call("whoami", {}, good, connection=connection).status == 200
    assert issuer.fetches["keys"] <= before + 1


def test_keys_that_are_known_outlive_their_issuer(server: ServerProcess, issuers: Issuers) -> None:
    """AU-12, warm: also for tokens that were never seen before."""
    client, issuer = server.client, issuers.steady
    assert whoami(client, bearer(issuer.token()))["subject"] == "alice"
    issuer.stop()
    try:
        assert whoami(client, bearer(issuer.token(sub="carol")))["subject"] == "carol"
    finally:
        issuer.start()
