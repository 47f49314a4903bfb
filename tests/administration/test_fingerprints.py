"""Fingerprints of settings: equal where it counts, and silent about secrets."""

from typing import Any

import pytest

from app.fleet.fingerprints import configuration_fingerprint, key_fingerprints
from app.protocol.sealed import KeyRing
from app.settings import Settings
from tests.support.cases import rows

KEYS = KeyRing([b"k" * 32])
TOOL: dict[str, Any] = {"settings": {"token": "s3cret", "nested": {"b": [1], "a": 2}}}
ASKS = {"client_id": "me", "client_secret": "hush"}
ISSUER = {"issuer": "https://login.example.com", "introspection": ASKS}
BASE: dict[str, Any] = {
    "server": {"public_url": "https://tools.example.com"},
    "auth": {
        "issuers": [ISSUER],
        "scope_hierarchy": {"b": ["a"], "d": ["c"]},
    },
    "policies": [{"tools": ["a"], "requires": {"roles": ["x"]}}],
    "overrides": {"a": TOOL, "fine.b": {"title": "B"}},
}


def fingerprint(changes: dict[str, Any] | None = None, keys: KeyRing = KEYS) -> str:
    return configuration_fingerprint(Settings.model_validate({**BASE, **(changes or {})}), keys)


@rows(
    "changes",
    ("where it listens", {"server": {**BASE["server"], "port": 1, "host": "::1"}}),
    ("where its tools are", {"tools": {"directory": "/elsewhere"}}),
    ("how it logs", {"logging": {"level": "debug"}}),
    ("its keys, which are compared by themselves", {"secrets": {"keys": ["x" * 32]}}),
    ("the order of tables", {"overrides": dict(reversed(BASE["overrides"].items()))}),
    ("the order in what a tool reads",
     {"overrides": {**BASE["overrides"],
                    "a": {"settings": {"nested": {"a": 2, "b": [1]}, "token": "s3cret"}}}}),
)  # fmt: skip
def test_replicas_may_differ_in_this(changes: dict[str, Any]) -> None:
    assert fingerprint(changes) == fingerprint()


@rows(
    "changes",
    ("its name", {"server": {**BASE["server"], "name": "other"}}),
    ("a rule", {"policies": []}),
    ("a deadline", {"execution": {"timeout_s": 1}}),
    ("a secret", {"auth": {**BASE["auth"], "issuers": [
        {**ISSUER, "introspection": {**ASKS, "client_secret": "psst"}}]}}),
    ("a scope", {"auth": {**BASE["auth"], "scope_hierarchy": {"b": ["a"]}}}),
    ("what a tool reads", {"overrides": {"a": {"settings": {"token": "other"}}}}),
)  # fmt: skip
def test_but_not_in_this(changes: dict[str, Any]) -> None:
    assert fingerprint(changes) != fingerprint()


def test_secrets_are_in_it_under_a_key_alone() -> None:
    assert fingerprint(keys=KeyRing([b"x" * 32])) != fingerprint()
    plain: dict[str, Any] = {"auth": {}, "overrides": {}}
    assert fingerprint(plain, KeyRing([b"x" * 32])) == fingerprint(plain)


def test_keys_have_fingerprints_in_their_order() -> None:
    one, two = key_fingerprints(KeyRing([b"k" * 32, b"x" * 32]))
    assert (two, one) == key_fingerprints(KeyRing([b"x" * 32, b"k" * 32]))
    assert one != two


@pytest.mark.parametrize("text", ["s3cret", "hush", "k" * 32])
def test_no_secret_shows(text: str) -> None:
    assert text not in fingerprint() + "".join(key_fingerprints(KEYS))
