"""Tokens that say nothing by themselves (RFC 7662)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.auth.desk import Clock, accepted, bearer, challenge_of, desk, refusal_of
from tests.support.cases import rows
from tests.support.issuer import RESOURCE, Behaviour, Issuer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(clock: Clock) -> Iterator[Issuer]:
    with Issuer(clock=clock, algorithm="ES256") as issuer:
        yield issuer


def _table(issuer: Issuer, *, timeout_s: float = 10, **introspection: Any) -> dict[str, Any]:
    asks = issuer.introspection_settings(**introspection)
    return issuer.settings(introspection=asks, timeout_s=timeout_s)


@rows(
    "answer",
    ("as usual", {}),
    ("no token type", {"token_type": None}),
    ("its type in another case", {"token_type": "BEARER"}),
    ("no iss", {"iss": None}),
    ("no exp", {"exp": None}),
    ("the audience among others", {"aud": ["x", RESOURCE + "/"]}),
)
async def test_a_token_that_its_issuer_vouches_for(
    issuer: Issuer, clock: Clock, answer: dict[str, Any]
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        token = issuer.opaque_token(scope="a b", **answer)
        principal = await accepted(authenticator, token)
        assert principal.identity == (issuer.url, "alice")
        assert principal.scopes == {"a", "b"}
        assert authenticator.known(bearer(token), b"") is principal


@rows(
    "answer",
    ("not active", {"active": False}),
    ("active as text", {"active": "true"}),
    ("active as 1", {"active": 1}),
    ("no active", {"active": None}),
    ("no aud", {"aud": None}),
    ("aud of another service", {"aud": "https://other.example"}),
    ("iss of another", {"iss": "https://other.example"}),
    ("expired", {"exp": 1}),
    ("exp as text", {"exp": "9999999999"}),
    ("not valid yet", {"nbf": 9_999_999_999}),
    ("no sub", {"sub": None}),
    ("another type", {"token_type": "DPoP"}),
)
async def test_a_token_that_does_not_count(
    issuer: Issuer, clock: Clock, answer: dict[str, Any]
) -> None:
    token = issuer.opaque_token(**answer)
    with capture_logs() as lines:
        async with desk(clock, issuers=[_table(issuer)]) as authenticator:
            refusal = await refusal_of(authenticator, token)
            assert refusal.http_status == 401
            assert challenge_of(refusal)["error"] == "invalid_token"
            await refusal_of(authenticator, token)
            assert issuer.fetches["introspection"] == 1  # asked about once, for a while
    assert token[:8] not in str(lines) + str(refusal.headers) + refusal.message


async def test_an_issuer_for_this_server_alone_need_not_say_for_whom(
    issuer: Issuer, clock: Clock
) -> None:
    async with desk(clock, issuers=[_table(issuer, dedicated=True)]) as authenticator:
        await accepted(authenticator, issuer.opaque_token(aud=None))
        other = issuer.opaque_token(aud="https://other.example")
        assert (await refusal_of(authenticator, other)).http_status == 401


@rows(
    "exp_in_s, counts_for_s",
    ("the answer's time", 3600, 60),
    ("its exp, if that is sooner", 20, 20),
)
async def test_an_answer_is_remembered_until(
    issuer: Issuer, clock: Clock, exp_in_s: int, counts_for_s: int
) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        token = issuer.opaque_token(exp=clock() + exp_in_s)
        await accepted(authenticator, token)
        clock.passes(counts_for_s - 1)
        await accepted(authenticator, token)
        assert issuer.fetches["introspection"] == 1
        issuer.opaque.clear()
        clock.passes(1)
        assert (await refusal_of(authenticator, token)).http_status == 401
        assert issuer.fetches["introspection"] == 2


async def test_requests_with_one_token_share_one_question(issuer: Issuer, clock: Clock) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        token = issuer.opaque_token()
        await asyncio.gather(*(accepted(authenticator, token) for _ in range(50)))
    assert issuer.fetches["introspection"] == 1


async def test_a_caller_that_leaves_takes_no_answer_along(issuer: Issuer, clock: Clock) -> None:
    async with desk(clock, issuers=[_table(issuer)]) as authenticator:
        token = issuer.opaque_token()
        leaves = asyncio.create_task(accepted(authenticator, token))
        stays = asyncio.create_task(accepted(authenticator, token))
        await asyncio.sleep(0)
        leaves.cancel()
        await stays
    assert leaves.cancelled()


@rows(
    "behaviour, event",
    ("hangs", Behaviour.HANG, "introspection_unavailable"),
    ("500", Behaviour.ERROR, "introspection_unavailable"),
    ("drops connections", Behaviour.DROP, "introspection_unavailable"),
    ("redirects", Behaviour.REDIRECT, "introspection_unavailable"),
    ("an endless answer", Behaviour.HUGE, "introspection_unavailable"),
    ("a login page", Behaviour.HTML, "introspection_unavailable"),
)
async def test_without_an_answer_it_is_503(
    issuer: Issuer, clock: Clock, behaviour: Behaviour, event: str
) -> None:
    issuer.redirect_to = issuer.introspection_url
    table = _table(issuer, timeout_s=1 if behaviour is Behaviour.HANG else 10)
    with capture_logs() as lines:
        async with desk(clock, issuers=[table]) as authenticator:
            token = issuer.opaque_token()
            await accepted(authenticator, token)
            issuer.behave(behaviour, "introspection")
            clock.passes(60)
            for _ in range(3):
                assert (await refusal_of(authenticator, token)).http_status == 503
            assert issuer.fetches["introspection"] == 2  # others do not queue for it
            issuer.recover()
            clock.passes(2)
            await accepted(authenticator, token)
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [event]


async def test_wrong_credentials_of_ours_are_an_error_in_the_log(
    issuer: Issuer, clock: Clock
) -> None:
    with capture_logs() as lines:
        table = _table(issuer, client_secret="wrong-secret")
        async with desk(clock, issuers=[table]) as authenticator:
            refusal = await refusal_of(authenticator, issuer.opaque_token())
    assert refusal.http_status == 503
    (line,) = [line for line in lines if line["event"] == "introspection_refused"]
    assert (line["log_level"], line["reason"]) == ("error", "status 401")
    assert "wrong-secret" not in str(lines)


class TestWhoIsAsked:
    async def test_a_jwt_is_checked_here(self, issuer: Issuer, clock: Clock) -> None:
        async with desk(clock, issuers=[_table(issuer)]) as authenticator:
            await accepted(authenticator, issuer.token())
        assert issuer.fetches["introspection"] == 0

    @rows(
        "settings, metadata",
        ("no discovery", {"discovery": False}, {}),
        ("metadata without keys", {}, {"jwks_uri": None}),
    )
    async def test_a_jwt_of_an_issuer_without_keys_is_asked_about(
        self, issuer: Issuer, clock: Clock, settings: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        issuer.metadata = metadata
        table = _table(issuer, url=issuer.introspection_url) | settings
        token = issuer.token()
        issuer.opaque[token] = {"active": True, **issuer.claims()}
        async with desk(clock, issuers=[table]) as authenticator:
            await accepted(authenticator, token)
            assert (await refusal_of(authenticator, issuer.token())).http_status == 401
        assert issuer.fetches["introspection"] == 2
        assert issuer.fetches["keys"] == 0

    async def test_no_issuer_but_the_one_that_is_configured_for_it(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        with Issuer(clock=clock, algorithm="ES256") as other:
            tables = [other.settings(), _table(issuer)]
            async with desk(clock, issuers=tables) as authenticator:
                assert (await accepted(authenticator, issuer.opaque_token())).issuer == issuer.url
                assert (await refusal_of(authenticator, other.opaque_token())).http_status == 401
            assert other.fetches["introspection"] == 0

    async def test_one_that_has_no_address_cannot_be_asked(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        issuer.metadata = {"introspection_endpoint": None}
        async with desk(clock, issuers=[_table(issuer)]) as authenticator:
            assert (await refusal_of(authenticator, issuer.opaque_token())).http_status == 401

    async def test_none_whose_metadata_cannot_be_had(self, issuer: Issuer, clock: Clock) -> None:
        issuer.behave(Behaviour.ERROR, "metadata")
        async with desk(clock, issuers=[_table(issuer)]) as authenticator:
            assert (await refusal_of(authenticator, issuer.opaque_token())).http_status == 503
