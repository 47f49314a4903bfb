"""What is remembered, what a change of the settings leaves, and what a revocation ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.auth.api_keys import hash_key, make_key
from app.auth.authenticator import Authenticator
from app.auth.problems import UnusableFile
from app.auth.remembered import Entry, Remembered
from app.auth.revocation import Revocations
from app.principal import ANONYMOUS, Principal
from app.protocol.headers import HeaderMap
from tests.auth.desk import Clock, accepted, bearer, desk, refusal_of, settings_of
from tests.support.cases import rows
from tests.support.issuer import Behaviour, Issuer

NOTHING = HeaderMap([])
KEY = make_key("ci")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(clock: Clock) -> Iterator[Issuer]:
    with Issuer(clock=clock, algorithm="ES256") as issuer:
        yield issuer


@rows(
    "headers, query",
    ("nothing", NOTHING, b""),
    ("a token", bearer("x"), b""),
    ("two credentials", HeaderMap([(b"authorization", b"Bearer a"), (b"x-api-key", b"b")]), b""),
    ("a token in the query", NOTHING, b"access_token=x"),
)
async def test_where_nothing_is_configured_credentials_are_ignored(
    headers: HeaderMap, query: bytes
) -> None:
    async with desk() as authenticator:
        assert authenticator.known(headers, query) is ANONYMOUS
        assert await authenticator.authenticate(headers, query) is ANONYMOUS


async def test_callers_without_credential_are_served_where_the_settings_say_so(
    issuer: Issuer, clock: Clock
) -> None:
    auth: dict[str, Any] = {"issuers": [issuer.settings()], "allow_unauthenticated": True}
    async with desk(clock, **auth) as authenticator:
        for headers in (NOTHING, HeaderMap([(b"authorization", b"Basic abc")])):
            assert authenticator.known(headers, b"") is ANONYMOUS
            assert await authenticator.authenticate(headers, b"") is ANONYMOUS
        assert (await refusal_of(authenticator, "garbage")).http_status == 401


class TestRemembered:
    async def test_a_token_is_known_from_its_first_use_to_its_end(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings(leeway_s=30)]) as authenticator:
            token = issuer.token(exp=clock() + 60)
            assert authenticator.known(bearer(token), b"") is None
            principal = await accepted(authenticator, token)
            assert authenticator.known(bearer(token), b"") is principal
            # However it is spelled, it is the same token.
            spelled = HeaderMap([(b"authorization", b"bearer   " + token.encode()), (b"a", b"1")])
            assert authenticator.known(spelled, b"x=1") is principal
            clock.passes(60)
            assert authenticator.known(bearer(token), b"") is None
            # In the leeway it counts, and is checked each time.
            again = await accepted(authenticator, token)
            assert again is not principal
            assert authenticator.known(bearer(token), b"") is None
            clock.passes(30)
            assert (await refusal_of(authenticator, token)).http_status == 401

    async def test_two_tokens_of_one_subject_are_one_identity(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as authenticator:
            first = await accepted(authenticator, issuer.token())
            second = await accepted(authenticator, issuer.token())
        assert first is not second and first.identity == second.identity

    async def test_other_ways_to_show_it_are_judged_as_ever(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as authenticator:
            token = issuer.token()
            await accepted(authenticator, token)
            lines = [(b"authorization", b"Bearer " + token.encode())]
            for headers, query, status in (
                (HeaderMap([*lines, (b"x-api-key", b"k")]), b"", 400),
                (HeaderMap(lines * 2), b"", 400),
                (HeaderMap(lines), b"access_token=x", 400),
                (HeaderMap([(b"x-api-key", token.encode())]), b"", 401),
            ):
                assert (await refusal_of(authenticator, headers, query)).http_status == status

    def test_it_is_bounded_in_number_and_bytes(self, issuer: Issuer, clock: Clock) -> None:
        source = Authenticator(settings_of(issuers=[issuer.settings()])).sources[issuer.url]

        def entry(size: int) -> Entry:
            principal: Any = Principal(issuer="a", subject="b")
            return Entry(principal, source, clock() + 60, 0, size)

        memory = Remembered(max_tokens=3, max_bytes=100)
        for number in range(5):
            memory.put(b"%d" % number, entry(10))
        assert [memory.get(b"%d" % n, clock()) is not None for n in range(5)] == [0, 0, 1, 1, 1]
        memory.put(b"large", entry(90))
        assert len(memory) == 2
        memory.put(b"larger", entry(101))
        assert len(memory) == 0

    async def test_a_short_token_with_large_claims_is_large(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        table = issuer.settings(introspection=issuer.introspection_settings())
        async with desk(clock, issuers=[table]) as authenticator:
            authenticator.remembered = Remembered(max_bytes=50_000)
            tokens = [issuer.opaque_token(large="x" * 20_000) for _ in range(4)]
            for token in tokens:
                await accepted(authenticator, token)
            known = [authenticator.known(bearer(token), b"") is not None for token in tokens]
            assert known == [False, False, True, True]


class TestAfterAChangeOfTheSettings:
    async def test_an_issuer_with_equal_settings_keeps_keys_and_tokens(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as before:
            token = issuer.token()
            principal = await accepted(before, token)
            auth: dict[str, Any] = {"issuers": [issuer.settings()], "scopes_supported": ["a"]}
            async with desk(clock, previous=before, **auth) as now:
                assert now.known(bearer(token), b"") is principal
                assert before.known(bearer(token), b"") is principal  # while both answer
                await before.stop()
                issuer.behave(Behaviour.ERROR)
                await accepted(now, issuer.token(sub="bob"))
                assert now.renewed(principal) is principal
        assert issuer.fetches["keys"] == 1

    async def test_the_issuer_lives_as_long_as_who_took_it_over(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        table = issuer.settings(refresh_s=10, cooldown_s=1)
        async with desk(clock, issuers=[table]) as before:
            await accepted(before, issuer.token())
            async with desk(clock, issuers=[table], previous=before) as now:
                await before.stop()
                clock.passes(10)
                issuer.rotate()
                await accepted(now, issuer.token())
        assert issuer.fetches["keys"] == 2

    @rows(
        "change",
        ("other claims", {"claims": {"scopes": ["permissions"]}}),
        ("other algorithms", {"algorithms": ["ES256"]}),
        ("another audience", {"audiences": ["x"]}),
        ("another leeway", {"leeway_s": 1}),
    )
    async def test_an_issuer_that_changed_is_asked_anew(
        self, issuer: Issuer, clock: Clock, change: dict[str, Any]
    ) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as before:
            token = issuer.token()
            principal = await accepted(before, token)
            table = issuer.settings(**change)
            async with desk(clock, issuers=[table], previous=before) as now:
                assert now.renewed(principal) is None
                assert now.known(bearer(token), b"") is None
                renewed = await accepted(now, token)
                assert now.renewed(renewed) is renewed

    async def test_another_public_url_is_another_audience(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as before:
            token = issuer.token()
            principal = await accepted(before, token)
            settings = settings_of(issuers=[issuer.settings()])
            server = settings.server.model_copy(update={"public_url": "https://new.example"})
            settings = settings.model_copy(update={"server": server})
            now = Authenticator(settings, previous=before, clock=clock)
            await now.start()
            assert now.renewed(principal) is None
            assert (await refusal_of(now, token)).http_status == 401
            await now.stop()

    @rows(
        "after",
        ("no issuer", {}),
        ("its token revoked", {"revoked": ["token-1"]}),
        ("keys alone", {"api_keys": [{"id": "ci", "hash": hash_key(KEY)}]}),
    )
    async def test_who_came_from_what_is_gone_counts_no_longer(
        self, issuer: Issuer, clock: Clock, after: dict[str, Any]
    ) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as before:
            token = issuer.token(jti="token-1")
            principal = await accepted(before, token)
            if "revoked" in after:
                after = {**after, "issuers": [issuer.settings()]}
            async with desk(clock, previous=before, **after) as now:
                assert now.renewed(principal) is None
                if after:
                    assert (await refusal_of(now, token)).http_status == 401

    async def test_a_token_that_ended_counts_no_longer(self, issuer: Issuer, clock: Clock) -> None:
        async with desk(clock, issuers=[issuer.settings()]) as authenticator:
            principal = await accepted(authenticator, issuer.token(exp=clock() + 60))
            assert authenticator.renewed(principal) is principal
            clock.passes(60)
            assert authenticator.renewed(principal) is None

    async def test_a_principal_of_nobody_here_does_not_count(self, issuer: Issuer) -> None:
        async with desk(issuers=[issuer.settings()]) as authenticator:
            stranger = Principal(issuer=issuer.url, subject="alice")
            assert authenticator.renewed(stranger) is None
            assert authenticator.renewed(ANONYMOUS) is None


class TestKeysFile:
    async def test_its_keys_count_without_the_network(
        self, issuer: Issuer, clock: Clock, tmp_path: Path
    ) -> None:
        file = tmp_path / "keys.json"
        file.write_text(json.dumps(issuer.jwks()))
        table = issuer.settings(keys_file=str(file))
        async with desk(clock, issuers=[table]) as before:
            token = issuer.token()
            principal = await accepted(before, token)
            unknown = issuer.token(header={"kid": "x"})
            assert (await refusal_of(before, unknown)).http_status == 401
            async with desk(clock, issuers=[table], previous=before) as same:
                assert same.renewed(principal) is principal
                issuer.rotate()
                file.write_text(json.dumps(issuer.jwks()))
                async with desk(clock, issuers=[table], previous=same) as now:
                    assert now.renewed(principal) is None
                    assert (await refusal_of(now, token)).http_status == 401
                    await accepted(now, issuer.token())
        assert issuer.fetches.total() == 0

    def test_one_that_cannot_be_used_stops_the_start(self, issuer: Issuer, tmp_path: Path) -> None:
        table = issuer.settings(keys_file=str(tmp_path / "none.json"))
        with pytest.raises(UnusableFile, match=r"none\.json: cannot be read"):
            Authenticator(settings_of(issuers=[table]))
        with pytest.raises(UnusableFile, match=r"none\.toml: cannot be read"):
            Authenticator(settings_of(api_keys_file=str(tmp_path / "none.toml")))


class TestRevoked:
    async def test_in_the_settings(self, issuer: Issuer, clock: Clock) -> None:
        auth: dict[str, Any] = {"issuers": [issuer.settings()], "revoked": ["token-1"]}
        async with desk(clock, **auth) as authenticator:
            refusal = await refusal_of(authenticator, issuer.token(jti="token-1"))
            assert (refusal.http_status, refusal.message) == (401, "The credential was revoked.")
            await accepted(authenticator, issuer.token(jti="token-2"))

    async def test_by_an_administrator_from_that_moment_on(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        revocations = Revocations()
        auth: dict[str, Any] = {"issuers": [issuer.settings()]}
        async with desk(clock, revocations=revocations, **auth) as authenticator:
            token, other = issuer.token(jti="token-1"), issuer.token(jti="token-2")
            principal = await accepted(authenticator, token)
            await accepted(authenticator, other)
            assert revocations.replace([(issuer.url, "token-1")])
            authenticator.forget_revoked()
            assert authenticator.known(bearer(token), b"") is None
            assert authenticator.renewed(principal) is None
            assert authenticator.known(bearer(other), b"") is not None
            for shown in (token, issuer.token(jti="token-1")):
                refusal = await refusal_of(authenticator, shown)
                assert (refusal.http_status, refusal.message) == (
                    401,
                    "The credential was revoked.",
                )
            assert len(authenticator.remembered) == 1

    async def test_of_another_issuer_or_without_an_id_is_another_credential(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        revocations = Revocations()
        auth: dict[str, Any] = {"issuers": [issuer.settings()]}
        async with desk(clock, revocations=revocations, **auth) as authenticator:
            revocations.replace([("https://other.example.com", "token-1"), ("api-key", "token-1")])
            await accepted(authenticator, issuer.token(jti="token-1"))
            await accepted(authenticator, issuer.token())

    async def test_an_api_key_and_back_again(self, clock: Clock) -> None:
        revocations = Revocations()
        auth: dict[str, Any] = {"api_keys": [{"id": "ci", "hash": hash_key(KEY)}]}
        async with desk(clock, revocations=revocations, **auth) as authenticator:
            holder = authenticator.known(bearer(KEY), b"")
            assert holder is not None
            assert revocations.replace([("api-key", "ci")])
            assert authenticator.renewed(holder) is None
            assert (await refusal_of(authenticator, KEY)).message == "The credential was revoked."
            assert not revocations.replace([])
            assert authenticator.known(bearer(KEY), b"") is holder

    async def test_what_was_revoked_while_settings_change_is_not_taken_over(
        self, issuer: Issuer, clock: Clock
    ) -> None:
        revocations = Revocations()
        auth: dict[str, Any] = {"issuers": [issuer.settings()]}
        async with desk(clock, revocations=revocations, **auth) as before:
            token = issuer.token(jti="token-1")
            await accepted(before, token)
            revocations.replace([(issuer.url, "token-1")])
            async with desk(clock, previous=before, revocations=revocations, **auth) as after:
                assert after.known(bearer(token), b"") is None
                assert (await refusal_of(after, token)).http_status == 401
