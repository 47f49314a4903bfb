"""Keys of this server's own."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.auth.api_keys import all_api_keys, hash_key, is_key, make_key, read_api_keys
from app.auth.problems import UnusableFile
from app.principal import ANONYMOUS
from app.protocol.errors import ProtocolError
from app.protocol.headers import HeaderMap
from tests.auth.desk import Clock, bearer, challenge_of, desk, refusal_of
from tests.support.cases import rows
from tests.support.issuer import Issuer

KEY = make_key("ci-bot")


def _table(key: str = KEY, id: str = "ci-bot", **more: Any) -> dict[str, Any]:
    return {"id": id, "hash": hash_key(key), **more}


def _shown(key: str) -> HeaderMap:
    return HeaderMap([(b"x-api-key", key.encode())])


def test_a_key_says_its_id_and_holds_32_random_bytes() -> None:
    assert re.fullmatch(r"mts_ci-bot_[A-Za-z0-9_-]{43}", KEY)
    assert is_key(KEY.encode())
    assert len({make_key("a") for _ in range(100)}) == 100
    assert hash_key(KEY) == hash_key(KEY.encode())


@pytest.mark.parametrize("headers", [_shown(KEY), bearer(KEY)], ids=["X-API-Key", "Bearer"])
async def test_a_key_is_known_at_once_and_grants_what_the_settings_say(headers: HeaderMap) -> None:
    table = _table(
        scopes=["tools:read"], roles=["ops"], tenant="acme", clearance="high", approvals=["cfo"]
    )
    async with desk(api_keys=[table]) as authenticator:
        principal = authenticator.known(headers, b"")
        assert principal is await authenticator.authenticate(headers, b"")
    assert principal is not None
    assert principal.identity == ("api-key", "ci-bot")
    assert principal.credential_id == "ci-bot"
    assert principal.grants == (
        frozenset({"tools:read"}),
        frozenset({"ops"}),
        "high",
        "acme",
        frozenset({"cfo"}),
        True,
    )


@rows(
    "shown",
    ("another key with this id", make_key("ci-bot")),
    ("an unknown id", make_key("nobody")),
    ("one character changed", KEY[:-1] + ("A" if KEY[-1] != "A" else "B")),
    ("one character more", KEY + "A"),
    ("cut short", KEY[:-1]),
    ("very long", KEY + "A" * 60_000),
    ("no key", "secret"),
    ("the hash", hash_key(KEY)),
    ("in capitals", KEY.upper()),
)
async def test_a_wrong_key_is_refused(shown: str) -> None:
    async with desk(api_keys=[_table()]) as authenticator:
        refusal = await refusal_of(authenticator, _shown(shown))
    assert refusal.http_status == 401
    challenge = challenge_of(refusal)
    assert challenge["error"] == "invalid_token"
    assert "resource_metadata" not in challenge  # there is no issuer to ask
    assert shown not in str(refusal.headers) + refusal.message


@rows(
    "shown",
    ("one character more", KEY + "A"),
    ("cut short", KEY[:-1]),
    ("its beginning alone", "mts_"),
    ("of another form", "mts_CI_BOT.a.b"),
)
async def test_what_begins_as_a_key_is_shown_to_no_issuer(shown: str) -> None:
    with Issuer(algorithm="ES256") as issuer:
        table = issuer.settings(introspection=issuer.introspection_settings())
        async with desk(api_keys=[_table()], issuers=[table]) as authenticator:
            for headers in (_shown(shown), bearer(shown)):
                refusal = await refusal_of(authenticator, headers)
                assert (refusal.http_status, refusal.message) == (401, "The API key is not known.")
                with pytest.raises(ProtocolError):
                    authenticator.known(headers, b"")
        assert issuer.fetches["introspection"] == 0


async def test_a_key_ends_at_its_instant() -> None:
    clock = Clock()
    ends = datetime.fromtimestamp(clock() + 60, UTC).isoformat()
    async with desk(clock, api_keys=[_table(expires_at=ends)]) as authenticator:
        principal = authenticator.known(_shown(KEY), b"")
        assert principal is not None and principal.expires_at == clock() + 60
        clock.passes(59.5)
        assert authenticator.known(_shown(KEY), b"") is principal
        clock.passes(0.5)
        refusal = await refusal_of(authenticator, _shown(KEY))
        assert "expired" in refusal.message


async def test_a_revoked_key_is_refused() -> None:
    async with desk(api_keys=[_table()], revoked=["ci-bot"]) as authenticator:
        assert (await refusal_of(authenticator, _shown(KEY))).http_status == 401


async def test_a_wrong_key_is_refused_even_where_anybody_is_served() -> None:
    async with desk(api_keys=[_table()], allow_unauthenticated=True) as authenticator:
        assert authenticator.known(HeaderMap([]), b"") is ANONYMOUS
        assert (await refusal_of(authenticator, _shown(make_key("ci-bot")))).http_status == 401


class TestAfterAChangeOfTheSettings:
    async def test_who_holds_the_same_key_goes_on_with_its_new_grants(self) -> None:
        async with desk(api_keys=[_table(scopes=["a"])]) as before:
            principal = before.known(_shown(KEY), b"")
            assert principal is not None
            async with desk(api_keys=[_table(scopes=["b"])], previous=before) as now:
                renewed = now.renewed(principal)
        assert renewed is not None and renewed.scopes == {"b"}

    @rows(
        "after",
        ("removed", {"api_keys": [_table(make_key("x"), id="x")]}),
        ("replaced by another with its id", {"api_keys": [_table(make_key("ci-bot"))]}),
        ("revoked", {"api_keys": [_table()], "revoked": ["ci-bot"]}),
        ("expired", {"api_keys": [_table(expires_at="2020-01-01T00:00:00Z")]}),
    )
    async def test_a_key_that_is_gone_counts_no_longer(self, after: dict[str, Any]) -> None:
        async with desk(api_keys=[_table()]) as before:
            principal = before.known(_shown(KEY), b"")
            assert principal is not None
            async with desk(previous=before, **after) as now:
                assert now.renewed(principal) is None

    async def test_nobody_in_particular_goes_on_while_anybody_is_served(self) -> None:
        async with desk() as before, desk(api_keys=[_table()], previous=before) as closed:
            assert before.renewed(ANONYMOUS) is ANONYMOUS
            assert closed.renewed(ANONYMOUS) is None


class TestFile:
    def test_its_keys_count_beside_those_of_the_settings(self, tmp_path: Path) -> None:
        file = tmp_path / "keys.toml"
        file.write_text(f'[[api_keys]]\nid = "a"\nhash = "{hash_key(KEY)}"\nscopes = ["s"]\n')
        (key,) = read_api_keys(file)
        assert (key.id, key.scopes) == ("a", ("s",))
        assert [each.id for each in all_api_keys([], file, ["low"])] == ["a"]

    def test_an_empty_file_has_no_keys(self, tmp_path: Path) -> None:
        file = tmp_path / "keys.toml"
        file.write_text("# none yet\n")
        assert read_api_keys(file) == ()

    @rows(
        "text, said",
        ("no TOML", "id = ", "not valid TOML"),
        ("not UTF-8", b"\xff", "not valid TOML"),
        ("a whole configuration", "[auth]\n", "only [[api_keys]] tables"),
        ("no tables", "api_keys = 1\n", "[[api_keys]]"),
        ("no table", "api_keys = [1]\n", "no. 1"),
        ("a key in place of its hash", f'[[api_keys]]\nid = "a"\nhash = "{KEY}"\n', "sha256:"),
        ("a bad id", '[[api_keys]]\nid = "A B"\nhash = "x"\n', "lower-case letters"),
        ("an unknown member", '[[api_keys]]\nid = "a"\nhash = "x"\nscope = "s"\n', "'a'"),
        ("no hash", '[[api_keys]]\nid = "a"\n', "hash"),
    )
    def test_what_is_wrong_with_it_is_said_without_its_secrets(
        self, tmp_path: Path, text: str | bytes, said: str
    ) -> None:
        file = tmp_path / "keys.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(UnusableFile) as caught:
            read_api_keys(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert said in str(caught.value)
        assert KEY not in str(caught.value)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableFile, match="cannot be read: No such file"):
            read_api_keys(tmp_path / "keys.toml")

    def test_ids_are_unique_over_both(self, tmp_path: Path) -> None:
        file = tmp_path / "keys.toml"
        table = f'[[api_keys]]\nid = "a"\nhash = "{hash_key(KEY)}"\n'
        file.write_text(table)
        with pytest.raises(UnusableFile, match="second API key with the id 'a'"):
            all_api_keys(read_api_keys(file), file, ["low"])
        file.write_text(table + table)
        with pytest.raises(UnusableFile, match="second API key with the id 'a'"):
            read_api_keys(file)

    def test_a_clearance_must_be_known(self, tmp_path: Path) -> None:
        file = tmp_path / "keys.toml"
        file.write_text(f'[[api_keys]]\nid = "a"\nhash = "{hash_key(KEY)}"\nclearance = "top"\n')
        with pytest.raises(UnusableFile, match="none of low, high"):
            all_api_keys([], file, ["low", "high"])
