"""The keys of an issuer: what is usable of a JWK Set, and which key a token needs.

Sources: RFC 7517; RFC 8725, sections 3.1 to 3.3: a key is bound to the algorithms of its kind,
and what a token says about its algorithm only chooses among them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt

from app.auth.problems import Refused
from app.observability.logs import printable

MAX_KEYS: Final = 200
MAX_KID: Final = 512
"""Characters of a key's id, in a key set and in the header of a token alike."""
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
"""A longer one makes each signature expensive to check."""

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: Final[Mapping[tuple[str, str | None], Sequence[str]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""What a key can check, by type and curve. Symmetric keys are not here, and never used."""
_ALL: Final = frozenset(name for names in _ALGORITHMS.values() for name in names)
_SAME: Final = {"Ed25519": "EdDSA", "Ed448": "EdDSA"}  # RFC 9864 has names of its own for them
_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class NoKeySet(ValueError):
    """A document is no JWK Set."""


class Unusable(NamedTuple):
    """A key that was left out, for the log."""

    kid: str | None
    reason: str


class _Odd(Exception):
    """Why a key cannot be used."""


class KeySet:
    """The usable keys of one issuer; immutable.

    Attributes:
        unusable: Keys that should have been usable.
        marks: What tells two keys apart.
    """

    def __init__(self, keys: Iterable[Any], algorithms: Iterable[str]) -> None:
        allowed = frozenset(algorithms)
        named: dict[tuple[str, str], jwt.PyJWK] = {}
        kids: set[str] = set()
        by_algorithm: dict[str, list[jwt.PyJWK]] = {}
        marks: set[tuple[Any, ...]] = set()
        unusable: list[Unusable] = []
        for key in list(keys)[:MAX_KEYS]:
            try:
                usable = _built(key, _algorithms_of(key) & allowed)
            except _Odd as odd:
                unusable.append(Unusable(_shown_kid(key), str(odd)))
                continue
            if not usable:
                continue  # it is for something else
            kid = key.get("kid")
            marks.add((kid, *(key.get(member) for member in _PUBLIC)))
            for algorithm, each in usable.items():
                by_algorithm.setdefault(algorithm, []).append(each)
                if kid is not None:
                    kids.add(kid)
                    named.setdefault((kid, algorithm), each)
        self._named, self._kids, self._by_algorithm = named, frozenset(kids), by_algorithm
        self.unusable = tuple(unusable)
        self.marks = frozenset(marks)

    def __len__(self) -> int:
        return len(self.marks)

    def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key that a token names, or None where there is none yet.

        Raises:
            Refused: Fetching the set again cannot help.
        """
        if kid is not None:
            key = self._named.get((kid, algorithm))
            if key is None and kid in self._kids:
                raise Refused("The token's algorithm is not that of the key it names.")
            return key
        fitting = self._by_algorithm.get(algorithm, ())
        if len(fitting) > 1:
            raise Refused("The token does not say which key signed it (kid), and several may have.")
        return fitting[0] if fitting else None


def parse_key_set(document: Any, algorithms: Iterable[str]) -> KeySet:
    """The keys of a JWK Set (RFC 7517, section 5).

    Raises:
        NoKeySet: It is none.
    """
    keys = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(keys, list):
        raise NoKeySet("it is no JWK Set: an object with a list named keys")
    return KeySet(keys, algorithms)


def _algorithms_of(key: Any) -> frozenset[str]:
    """What a key may check; nothing, where it is made for something else."""
    if not isinstance(key, Mapping):
        raise _Odd("is no object")
    kid = key.get("kid")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= MAX_KID):
        raise _Odd("has a kid that is no short text")
    use, operations = key.get("use"), key.get("key_ops")
    if use not in (None, "sig") or (isinstance(operations, list) and "verify" not in operations):
        return frozenset()
    if key.keys() & _PRIVATE:
        raise _Odd("is symmetric or private: whoever reads it could make tokens")
    kind, curve = key.get("kty"), key.get("crv")
    fitting: Sequence[str] = ()
    if isinstance(kind, str) and isinstance(curve, str | None):
        fitting = _ALGORITHMS.get((kind, None if kind == "RSA" else curve), ())
    if not fitting:
        raise _Odd("is of a type or curve that is not supported")
    own = key.get("alg")
    if own is None:
        return frozenset(fitting)
    if not isinstance(own, str):
        raise _Odd("has an alg that is no text")
    own = _SAME.get(own, own)
    if own in _ALL and own not in fitting:
        raise _Odd("has an alg that does not fit its type")
    return frozenset({own} & set(fitting))


def _built(key: Mapping[str, Any], algorithms: frozenset[str]) -> Mapping[str, jwt.PyJWK]:
    """One key by each algorithm."""
    public = {member: key[member] for member in _PUBLIC if key.get(member) is not None}
    if algorithms and not all(isinstance(value, str) for value in public.values()):
        raise _Odd("is malformed")
    try:
        built = {algorithm: jwt.PyJWK(public, algorithm) for algorithm in sorted(algorithms)}
    except Exception:  # noqa: BLE001  # whatever is wrong with one key, the others count
        raise _Odd("is malformed") from None
    if built and key["kty"] == "RSA":
        bits = next(iter(built.values())).key.key_size
        if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
            raise _Odd(f"has {bits} bits; {MIN_RSA_BITS} to {MAX_RSA_BITS} are accepted")
    return built


def _shown_kid(key: Any) -> str | None:
    kid = key.get("kid") if isinstance(key, Mapping) else None
    return printable(kid) if isinstance(kid, str) else None
