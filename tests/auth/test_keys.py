"""What is usable of a JWK Set, and which key a token needs."""

from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from app.auth.keys import MAX_KEYS, KeySet, NoKeySet, parse_key_set
from app.auth.problems import Refused, UnusableFile
from app.auth.source import static_keys
from app.settings import IssuerSettings
from tests.support.cases import rows
from tests.support.issuer import SigningKey

ALL = ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
RSA_JWK = SigningKey("RS256", "r", 1).jwk
EC_JWK = SigningKey("ES256", "e", 1).jwk
PLAIN_RSA = {"kty": "RSA", "n": RSA_JWK["n"], "e": RSA_JWK["e"]}


def _small(bits: int) -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits).public_key()
    return jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True)


@rows(
    "key, reason",
    ("no object", "key", "is no object"),
    ("symmetric", {"kty": "oct", "k": "c2VjcmV0", "kid": "x"}, "symmetric or private"),
    ("private RSA", {**RSA_JWK, "d": "AQAB"}, "symmetric or private"),
    ("private EC", {**EC_JWK, "d": "AQAB"}, "symmetric or private"),
    ("no type", {"n": "a", "e": "b"}, "type or curve"),
    ("an unknown type", {"kty": "AKP", "pub": "x"}, "type or curve"),
    ("a type that is no text", {"kty": ["RSA"]}, "type or curve"),
    ("an unknown curve", {**EC_JWK, "crv": "secp256k1"}, "type or curve"),
    ("no curve", {"kty": "EC", "x": "a", "y": "b"}, "type or curve"),
    ("RSA for ES256", {**RSA_JWK, "alg": "ES256"}, "does not fit"),
    ("P-256 for ES384", {**EC_JWK, "alg": "ES384"}, "does not fit"),
    ("an alg that is no text", {**RSA_JWK, "alg": 1}, "alg that is no text"),
    ("no modulus", {"kty": "RSA", "e": "AQAB"}, "malformed"),
    ("a modulus that is no text", {**PLAIN_RSA, "n": 7}, "malformed"),
    ("a list for a member of others", {**RSA_JWK, "x": [1]}, "malformed"),
    ("an object for a coordinate", {**EC_JWK, "y": {"a": 1}}, "malformed"),
    ("a number for a member of others", {**RSA_JWK, "y": 7}, "malformed"),
    ("coordinates of no point", {**EC_JWK, "x": EC_JWK["y"]}, "malformed"),
    ("an exponent of 1", {**PLAIN_RSA, "e": "AQ"}, "malformed"),
    ("1024 bits", _small(1024), "has 1024 bits"),
    ("a kid that is no text", {**RSA_JWK, "kid": 7}, "kid"),
    ("an endless kid", {**RSA_JWK, "kid": "x" * 600}, "kid"),
)
def test_an_unusable_key_is_left_out_and_the_others_count(key: Any, reason: str) -> None:
    keys = KeySet([key, EC_JWK], ALL)
    assert keys.find("e", "ES256") is not None
    assert len(keys) == 1
    (unusable,) = keys.unusable
    assert reason in unusable.reason
    assert len(unusable.kid or "") <= 64


@rows(
    "key",
    ("for encryption", {**RSA_JWK, "use": "enc"}),
    ("for signing alone", {**RSA_JWK, "key_ops": ["sign"]}),
    ("for an algorithm that is not accepted", {**RSA_JWK, "alg": "RS512"}),
    ("for an algorithm of encryption", {**RSA_JWK, "alg": "RSA-OAEP"}),
)
def test_a_key_for_something_else_is_passed_over_in_silence(key: Any) -> None:
    keys = KeySet([key], ALL)
    assert (len(keys), keys.unusable) == (0, ())
    assert keys.find("r", "RS256") is None


@rows(
    "key, algorithm, usable",
    ("RSA for RS256", PLAIN_RSA, "RS256", True),
    ("RSA for PS256 if nothing else is said", PLAIN_RSA, "PS256", True),
    ("an alg of its own binds it", {**PLAIN_RSA, "alg": "RS256"}, "PS256", False),
    ("not what the issuer may not use", PLAIN_RSA, "RS512", False),
    ("P-384 for ES384", SigningKey("ES384", None, 1).jwk, "ES384", True),
    ("P-384 for ES256", SigningKey("ES384", None, 1).jwk, "ES256", False),
    ("P-521 for ES512", SigningKey("ES512", None, 1).jwk, "ES512", True),
    ("Ed25519", SigningKey("EdDSA", None, 1).jwk, "EdDSA", True),
    ("its newer name", {**SigningKey("EdDSA", None, 1).jwk, "alg": "Ed25519"}, "EdDSA", True),
    ("members without a value", {**PLAIN_RSA, "crv": None, "x": None}, "RS256", True),
    ("verify among key_ops", {**PLAIN_RSA, "key_ops": ["verify"]}, "RS256", True),
)
def test_a_key_checks_what_fits_it(key: Any, algorithm: str, usable: bool) -> None:
    found = KeySet([key], ALL).find(None, algorithm)
    assert (found is not None) is usable
    assert found is None or found.algorithm_name == algorithm


def test_a_kid_of_a_key_for_another_algorithm_is_refused_for_good() -> None:
    with pytest.raises(Refused, match="not that of the key"):
        KeySet([EC_JWK], ALL).find("e", "RS256")


def test_without_kid_one_fitting_key_counts_and_two_do_not() -> None:
    assert KeySet([RSA_JWK, EC_JWK], ALL).find(None, "RS256") is not None
    with pytest.raises(Refused, match="does not say which key"):
        KeySet([RSA_JWK, SigningKey("RS256", "r2", 2).jwk], ALL).find(None, "RS256")


def test_of_two_keys_with_one_kid_the_first_counts() -> None:
    second = {**SigningKey("RS256", "r", 2).jwk}
    found = KeySet([RSA_JWK, second], ALL).find("r", "RS256")
    assert found is not None
    assert found.key.public_numbers() == jwt.PyJWK(RSA_JWK).key.public_numbers()


def test_a_set_is_bounded() -> None:
    keys = KeySet([{**EC_JWK, "kid": str(n)} for n in range(MAX_KEYS + 5)], ALL)
    assert len(keys) == MAX_KEYS


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": None}, "keys"])
def test_what_is_no_key_set(document: Any) -> None:
    with pytest.raises(NoKeySet):
        parse_key_set(document, ALL)


@rows(
    "content, said",
    ("no JSON", b"{", "not valid JSON"),
    ("no set", b"[]", "no JWK Set"),
    ("no key", b'{"keys": []}', "has no key for the algorithms"),
    ("a symmetric key", b'{"keys": [{"kty": "oct", "k": "c2Vj"}]}', "symmetric or private"),
    ("a key with an odd member", orjson.dumps({"keys": [{**RSA_JWK, "x": [1]}]}), "malformed"),
    ("a key for others", orjson.dumps({"keys": [{**RSA_JWK, "alg": "RS512"}]}), "has no key"),
)
def test_what_is_wrong_with_a_keys_file_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(content)
    settings = IssuerSettings(issuer="https://login.example.com", keys_file=file)
    with pytest.raises(UnusableFile, match=said) as caught:
        static_keys(settings)
    assert str(caught.value).startswith(f"{file}: ")
    file.unlink()
    with pytest.raises(UnusableFile, match="cannot be read"):
        static_keys(settings)
