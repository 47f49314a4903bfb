"""Three replicas that the tests of one module share."""

from collections.abc import Iterator

import pytest

from tests.administration.replicas import Fleet


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Fleet() as fleet:
        yield fleet


@pytest.fixture(autouse=True)
def _nothing_decided(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test has cut is mended, and what it has decided is taken back."""
    yield
    if "fleet" not in request.fixturenames:
        return
    fleet: Fleet = request.getfixturevalue("fleet")
    for replica in fleet.replicas:
        replica.state.line.is_cut = replica.state.wire.is_cut = False
        replica.state.wire.delay_s = 0.0
    decided = fleet[0].status()
    for name in decided["switches"]:
        fleet[0].does("DELETE", f"tools/{name}/switch")
    for replica_id in decided["drained"]:
        fleet[0].does("DELETE", f"replicas/{replica_id}/drain")
    if decided["revoked"]:
        for each in fleet[0].does("GET", "credentials")["credentials"]:
            body = {"issuer": each["issuer"], "id": each["id"]}
            fleet[0].does("POST", "credentials/restore", body)
