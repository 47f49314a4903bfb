"""Keys of an issuer: fetched, refreshed, rotated, and done without while it is down."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.auth.issuer import RETRY_S
from tests.auth.desk import Clock, accepted, bearer, challenge_of, desk, refusal_of, soon
from tests.support.cases import rows
from tests.support.issuer import OAUTH, OPENID, OPENID_APPENDED, Behaviour, Issuer

GRACE = {"refresh_s": 100, "grace_s": 1000, "cooldown_s": 30, "timeout_s": 10}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(clock: Clock) -> Iterator[Issuer]:
    with Issuer(clock=clock, algorithm="ES256") as issuer:
        yield issuer


def _events(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


async def test_keys_are_fetched_at_the_start_and_once(issuer: Issuer, clock: Clock) -> None:
    with capture_logs() as lines:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            for number in range(50):
                await accepted(authenticator, issuer.token(sub=f"user-{number}"))
    assert issuer.fetches == {"metadata": 1, "keys": 1}
    (line,) = _events(lines, "issuer_keys_refreshed")
    assert (line["issuer"], line["keys"]) == (issuer.url, 1)


async def test_first_callers_wait_for_one_fetch(issuer: Issuer, clock: Clock) -> None:
    async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
        tokens = [issuer.token(sub=f"user-{number}") for number in range(50)]
        await asyncio.gather(*(accepted(authenticator, token) for token in tokens))
    assert issuer.fetches["keys"] == 1


@rows(
    "kinds, path, requests",
    ("OAuth", {OAUTH}, "/realms/x", 1),
    ("OpenID Connect", {OPENID}, "/realms/x", 2),
    ("OpenID Connect after the path", {OPENID_APPENDED}, "/realms/x", 3),
    ("OpenID Connect without a path", {OPENID}, "", 2),
    ("an identifier that ends with a slash", {OAUTH}, "/", 1),
)
async def test_metadata_is_found_wherever_it_may_be(
    clock: Clock, kinds: set[str], path: str, requests: int
) -> None:
    with Issuer(clock=clock, algorithm="ES256", path=path) as issuer:
        issuer.metadata_kinds = {kind.format(path=path.rstrip("/")) for kind in kinds}
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            await accepted(authenticator, issuer.token())
        assert issuer.fetches["metadata"] == requests


async def test_an_address_of_keys_in_the_settings_comes_first(issuer: Issuer, clock: Clock) -> None:
    table = issuer.settings(jwks_url=issuer.jwks_url, discovery=False)
    async with desk(clock, issuers=[table]) as authenticator:
        await accepted(authenticator, issuer.token())
    assert issuer.fetches == {"keys": 1}


class TestRotation:
    async def test_a_new_key_counts_after_one_fetch(self, issuer: Issuer, clock: Clock) -> None:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            old = issuer.token()
            await accepted(authenticator, old)
            clock.passes(30)
            issuer.rotate()
            await accepted(authenticator, issuer.token())
            assert issuer.fetches["keys"] == 2
            # What was signed with the key that is gone counts no longer, remembered or not.
            assert authenticator.known(bearer(old), b"") is None
            assert (await refusal_of(authenticator, old)).http_status == 401

    async def test_a_key_beside_the_old_one_leaves_tokens_remembered(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            old = issuer.token()
            await accepted(authenticator, old)
            clock.passes(30)
            issuer.add_key()
            await accepted(authenticator, issuer.token())
            assert authenticator.known(bearer(old), b"") is not None

    async def test_keys_without_names_are_replaced_as_well(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        issuer.keys.clear()
        issuer.add_key(kid=None)
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            await accepted(authenticator, issuer.token())
            clock.passes(30)
            issuer.keys.clear()
            issuer.add_key(kid=None)
            await accepted(authenticator, issuer.token())
            assert issuer.fetches["keys"] == 2

    async def test_keys_are_refreshed_in_the_background(self, issuer: Issuer, clock: Clock) -> None:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            await accepted(authenticator, issuer.token())
            clock.passes(100)
            issuer.behave(Behaviour.HANG, "keys")
            await accepted(authenticator, issuer.token())  # does not wait for what hangs
            await soon(lambda: issuer.fetches["keys"] == 2, "a second fetch")
            await accepted(authenticator, issuer.token())
            issuer.recover()
        assert issuer.fetches["keys"] == 2

    async def test_a_timer_refreshes_without_any_call(self, issuer: Issuer) -> None:
        async with desk(issuers=[issuer.settings(refresh_s=0.1)]):
            await soon(lambda: issuer.fetches["keys"] >= 3, "three fetches")


class TestUnknownKeys:
    async def test_a_flood_leads_to_one_fetch_per_cooldown(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            await accepted(authenticator, issuer.token())
            clock.passes(30)
            for round_ in (2, 3):
                tokens = [issuer.token(header={"kid": f"{round_}-{n}"}) for n in range(250)]
                valid = [issuer.token(sub=f"user-{n}") for n in range(20)]
                refused, served = await asyncio.gather(
                    asyncio.gather(*(refusal_of(authenticator, token) for token in tokens)),
                    asyncio.gather(*(accepted(authenticator, token) for token in valid)),
                )
                assert {refusal.http_status for refusal in refused} == {401}
                assert len(served) == 20
                assert issuer.fetches["keys"] == round_
                clock.passes(29)
                await refusal_of(authenticator, issuer.token(header={"kid": "later"}))
                assert issuer.fetches["keys"] == round_
                clock.passes(1)

    async def test_valid_tokens_do_not_wait_for_the_fetch_of_a_flood(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            await accepted(authenticator, issuer.token())
            clock.passes(30)
            issuer.behave(Behaviour.HANG, "keys")
            flood = [
                asyncio.create_task(refusal_of(authenticator, issuer.token(header={"kid": str(n)})))
                for n in range(20)
            ]
            await soon(lambda: issuer.fetches["keys"] == 2, "the fetch")
            await accepted(authenticator, issuer.token())
            assert not any(task.done() for task in flood)
            issuer.recover()
            await asyncio.gather(*flood)

    async def test_an_unknown_key_of_an_issuer_that_is_down_is_nobodys_fault(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            await accepted(authenticator, issuer.token())
            clock.passes(30)
            issuer.behave(Behaviour.ERROR)
            refusal = await refusal_of(authenticator, issuer.token(header={"kid": "new"}))
            assert refusal.http_status == 503


BROKEN = rows(
    "behaviour, what, reason",
    ("drops connections", Behaviour.DROP, "metadata", "Error"),
    ("hangs", Behaviour.HANG, "metadata", "within 1 s"),
    ("hangs with its keys", Behaviour.HANG, "keys", "within 1 s"),
    ("500", Behaviour.ERROR, "metadata", "status 500"),
    ("500 for its keys", Behaviour.ERROR, "keys", "status 500"),
    ("no metadata", Behaviour.NOT_FOUND, "metadata", "status 404"),
    ("redirects elsewhere", Behaviour.REDIRECT, "keys", "redirects elsewhere"),
    ("an endless answer", Behaviour.HUGE, "keys", "longer than"),
    ("a login page", Behaviour.HTML, "keys", "no JSON object"),
    ("a list", Behaviour.NO_OBJECT, "keys", "no JSON object"),
    ("an empty object", Behaviour.EMPTY, "keys", "no JWK Set"),
    ("metadata without an issuer", Behaviour.EMPTY, "metadata", "another issuer"),
)


class TestDown:
    @BROKEN
    async def test_cold_it_is_503_and_recovers_by_itself(
        self, issuer: Issuer, clock: Clock, behaviour: Behaviour, what: str, reason: str
    ) -> None:
        issuer.behave(behaviour, what)
        table = issuer.settings(**{**GRACE, "timeout_s": 1 if behaviour is Behaviour.HANG else 10})
        with capture_logs() as lines:
            async with desk(clock, issuers=[table]) as authenticator:
                refusal = await refusal_of(authenticator, issuer.token())
                assert refusal.http_status == 503
                headers = dict(refusal.headers)
                assert headers[b"retry-after"] == str(int(RETRY_S)).encode()
                assert b"www-authenticate" not in headers
                asked = issuer.fetches.total()
                for _ in range(20):
                    assert (await refusal_of(authenticator, issuer.token())).http_status == 503
                assert issuer.fetches.total() == asked  # nobody hammers it
                issuer.recover()
                clock.passes(RETRY_S)
                await accepted(authenticator, issuer.token())
        (line,) = _events(lines, "issuer_unavailable")
        assert reason in line["reason"]
        assert line["keys_count_for_s"] == 0
        assert "secret stack trace" not in str(lines)

    @BROKEN
    async def test_warm_its_keys_go_on_for_the_grace_and_then_503(
        self, issuer: Issuer, clock: Clock, behaviour: Behaviour, what: str, reason: str
    ) -> None:
        table = issuer.settings(**{**GRACE, "timeout_s": 1 if behaviour is Behaviour.HANG else 10})
        with capture_logs() as lines:
            async with desk(clock, issuers=[table]) as authenticator:
                token = issuer.token(exp=clock() + 10_000)
                await accepted(authenticator, token)
                issuer.behave(behaviour, what)
                clock.passes(101)
                await accepted(authenticator, issuer.token())
                await soon(lambda: _events(lines, "issuer_unavailable"), "a warning")
                clock.passes(998)
                await accepted(authenticator, issuer.token())
                assert authenticator.known(bearer(token), b"") is not None
                clock.passes(1)
                # A remembered token is no way around it.
                for shown in (token, issuer.token()):
                    assert authenticator.known(bearer(shown), b"") is None
                    assert (await refusal_of(authenticator, shown)).http_status == 503
                issuer.recover()
                clock.passes(RETRY_S)
                await accepted(authenticator, issuer.token())
        warning = _events(lines, "issuer_unavailable")[0]
        assert reason in warning["reason"]
        assert warning["log_level"] == "warning"
        assert warning["keys_count_for_s"] == 999

    async def test_the_log_reminds_once_a_minute(self, issuer: Issuer, clock: Clock) -> None:
        issuer.behave(Behaviour.ERROR)
        with capture_logs() as lines:
            async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
                for _ in range(13):  # every 10 s for two minutes
                    await refusal_of(authenticator, issuer.token())
                    clock.passes(RETRY_S)
        assert len(_events(lines, "issuer_unavailable")) == 3

    async def test_a_machine_that_is_off(self, clock: Clock) -> None:
        with Issuer(clock=clock, algorithm="ES256") as issuer:
            issuer.stop()
            async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
                assert (await refusal_of(authenticator, issuer.token())).http_status == 503
                issuer.start()
                clock.passes(RETRY_S)
                await accepted(authenticator, issuer.token())

    async def test_one_issuer_that_hangs_does_not_hold_up_another(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        with Issuer(clock=clock, algorithm="ES256") as other:
            issuer.behave(Behaviour.HANG)
            tables = [issuer.settings(**GRACE), other.settings(**GRACE)]
            async with desk(clock, issuers=tables) as authenticator:
                await accepted(authenticator, other.token())
                waiting = asyncio.create_task(refusal_of(authenticator, issuer.token()))
                await accepted(authenticator, other.token())
                assert not waiting.done()
                issuer.recover()
                await waiting

    async def test_stopping_waits_for_nothing(self, issuer: Issuer, clock: Clock) -> None:
        issuer.behave(Behaviour.HANG)
        began = time.monotonic()
        async with desk(clock, issuers=[issuer.settings(**{**GRACE, "timeout_s": 60})]):
            await soon(lambda: issuer.fetches["metadata"], "a request")
        assert time.monotonic() - began < 10


class TestMetadataThatIsRefused:
    @rows(
        "metadata, reason",
        ("another issuer", {"issuer": "https://evil.test"}, "names another issuer"),
        ("keys by http from elsewhere", {"jwks_uri": "http://10.0.0.1/keys"}, "no https URL"),
        ("keys in a file", {"jwks_uri": "file:///etc/passwd"}, "no https URL"),
    )
    async def test_none_of_its_keys_count(
        self, issuer: Issuer, clock: Clock, metadata: Any, reason: str
    ) -> None:
        issuer.metadata = metadata
        with capture_logs() as lines:
            async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
                refusal = await refusal_of(authenticator, issuer.token())
        assert refusal.http_status == 503
        assert issuer.fetches["keys"] == 0
        (line,) = _events(lines, "issuer_metadata_refused")
        assert reason in line["reason"]
        assert "evil.test" not in str(lines)

    async def test_without_an_address_of_keys_there_are_none(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        issuer.metadata = {"jwks_uri": None}
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            assert (await refusal_of(authenticator, issuer.token())).http_status == 503


class TestRedirects:
    async def test_within_its_origin_they_count(self, issuer: Issuer, clock: Clock) -> None:
        issuer.behave(Behaviour.REDIRECT, "other")
        issuer.redirect_to = "/keys"
        table = issuer.settings(jwks_url=issuer.origin + "/moved", discovery=False, **GRACE)
        async with desk(clock, issuers=[table]) as authenticator:
            await accepted(authenticator, issuer.token())
        assert issuer.fetches == {"other": 1, "keys": 1}

    async def test_a_circle_ends(self, issuer: Issuer, clock: Clock) -> None:
        issuer.behave(Behaviour.REDIRECT, "keys")
        issuer.redirect_to = issuer.jwks_url
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            assert (await refusal_of(authenticator, issuer.token())).http_status == 503
        assert issuer.fetches["keys"] == 4

    @pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "user@127.0.0.1"])
    async def test_another_host_of_this_machine_is_elsewhere(
        self, issuer: Issuer, clock: Clock, host: str
    ) -> None:
        issuer.behave(Behaviour.REDIRECT, "keys")
        issuer.redirect_to = issuer.jwks_url.replace("127.0.0.1", host)
        async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
            assert (await refusal_of(authenticator, issuer.token())).http_status == 503
        assert issuer.fetches["keys"] == 1


class TestUnusableKeys:
    async def test_they_are_passed_over_with_one_line(self, issuer: Issuer, clock: Clock) -> None:
        issuer.published = [
            7,
            {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
            {"kty": "RSA", "n": "AQ", "e": "AQAB", "kid": "x" * 300},
            *({"kty": "EC"} for _ in range(50)),
        ]
        with capture_logs() as lines:
            async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
                await accepted(authenticator, issuer.token())
                for _ in range(3):
                    clock.passes(100)
                    await accepted(authenticator, issuer.token())
                await soon(lambda: issuer.fetches["keys"] >= 3, "another fetch")
        (line,) = _events(lines, "issuer_key_unusable")
        assert line["count"] == 53
        assert len(line["keys"]) == 5
        assert max(len(key["kid"] or "") for key in line["keys"]) <= 64
        assert "c2VjcmV0" not in str(lines)

    async def test_a_set_without_any_refuses_tokens(self, issuer: Issuer, clock: Clock) -> None:
        token = issuer.token()
        issuer.keys.clear()
        with capture_logs() as lines:
            async with desk(clock, issuers=[issuer.settings(**GRACE)]) as authenticator:
                refusal = await refusal_of(authenticator, token)
        assert refusal.http_status == 401
        assert challenge_of(refusal)["error"] == "invalid_token"
        assert _events(lines, "issuer_has_no_usable_key")
