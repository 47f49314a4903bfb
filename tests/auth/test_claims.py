"""From claims to a principal."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from app.auth.caller import MAX_CLAIMS, MAX_DEPTH, Caller, Seal
from app.auth.claims import MAX_ENTRIES, MAX_ENTRY, caller_of, check_times, claim_at
from app.auth.problems import Refused
from app.settings import IssuerSettings
from tests.support.cases import rows

URL = "https://example.com/roles"


def _caller(claims: Mapping[str, Any], **paths: Any) -> Caller:
    settings = IssuerSettings.model_validate(
        {"issuer": "https://login.example.com", "claims": paths}
    )
    return caller_of({"sub": "alice", **claims}, settings, seal=Seal(), expires_at=None)


@rows(
    "claims, scopes",
    ("text", {"scope": "a b  c"}, {"a", "b", "c"}),
    ("other white space than spaces", {"scope": "a\tb c\u00a0d e\u2003f g\nh i"}, {"i"}),
    ("a list", {"scope": ["a", "b"]}, {"a", "b"}),
    ("the second name", {"scp": "a"}, {"a"}),
    ("the first name wins", {"scope": "a", "scp": "b"}, {"a"}),
    ("null is not there", {"scope": None, "scp": "b"}, {"b"}),
    ("a list of other things", {"scope": ["a", 1, None, ["b"], {"c": 1}]}, {"a"}),
    ("a number", {"scope": 7}, set()),
    ("an object", {"scope": {"a": True}}, set()),
    ("true", {"scope": True}, set()),
    ("words in a list are no scopes", {"scope": ["a b", "c"]}, {"c"}),
    ("no scope tokens", {"scope": ['a"b', "c\\d", "é", "", "e"]}, {"e"}),
    ("none", {}, set()),
)
def test_scopes(claims: Mapping[str, Any], scopes: set[str]) -> None:
    assert _caller(claims).scopes == scopes


@rows(
    "claims, paths, roles",
    ("a name", {"roles": ["a"]}, ["roles"], {"a"}),
    ("a path", {"realm_access": {"roles": ["a"]}}, ["realm_access.roles"], {"a"}),
    ("a URL as a name", {URL: ["a"]}, [URL], {"a"}),
    ("the exact name wins", {"x.y": ["a"], "x": {"y": ["b"]}}, ["x.y"], {"a"}),
    ("a path into text", {"x": "y"}, ["x.y"], set()),
    ("a path into a list", {"x": [{"y": ["a"]}]}, ["x.y"], set()),
    ("a path of empty steps", {"": {"": ["a"]}}, ["."], {"a"}),
    ("words with spaces in a list", {"roles": ["tax adviser"]}, ["roles"], {"tax adviser"}),
    ("a text is one name", {"roles": "tax adviser"}, ["roles"], {"tax adviser"}),
    ("an empty text", {"roles": ""}, ["roles"], set()),
    ("a long text", {"roles": "x " * MAX_ENTRY}, ["roles"], set()),
    ("a number", {"roles": 7}, ["roles"], set()),
)
def test_roles(claims: Mapping[str, Any], paths: list[str], roles: set[str]) -> None:
    assert _caller(claims, roles=paths).roles == roles
    assert _caller(claims, approvals=paths).approvals == roles


@rows(
    "value, expected",
    ("text", "high", "high"),
    ("empty", "", None),
    ("a list", ["high"], None),
    ("a number", 3, None),
    ("longer than any name", "x" * (MAX_ENTRY + 1), None),
)
def test_clearance_and_tenant(value: Any, expected: str | None) -> None:
    caller = _caller({"clearance": value, "tid": value})
    assert (caller.clearance, caller.tenant) == (expected, expected)


def test_lists_are_bounded_in_number_and_length() -> None:
    many = [f"r{n}" for n in range(MAX_ENTRIES + 5)]
    assert len(_caller({"roles": many, "scope": " ".join(many)}).roles) == MAX_ENTRIES
    assert len(_caller({"scope": " ".join(many)}).scopes) == MAX_ENTRIES
    assert _caller({"roles": ["x" * (MAX_ENTRY + 1), "y"]}).roles == {"y"}


@rows(
    "claims, paths",
    ("none", {"sub": None}, {}),
    ("empty", {"sub": ""}, {}),
    ("a number", {"sub": 7}, {}),
    ("a list", {"sub": ["a"]}, {}),
    ("very long", {"sub": "x" * 1025}, {}),
    ("not where the settings say", {}, {"subject": "oid"}),
)
def test_a_token_that_does_not_say_who_it_is_is_refused(
    claims: Mapping[str, Any], paths: Any
) -> None:
    with pytest.raises(Refused, match="who the caller is"):
        _caller(claims, **paths)


def test_the_subject_is_where_the_settings_say() -> None:
    assert _caller({"oid": "bob"}, subject="oid").subject == "bob"
    assert _caller({"user": {"id": "bob"}}, subject="user.id").subject == "bob"


@pytest.mark.parametrize("jti", [7, "", ["x"], "x" * 1025, True])
def test_a_jti_that_no_list_could_name_is_refused(jti: Any) -> None:
    with pytest.raises(Refused, match="jti"):
        _caller({"jti": jti})


def test_claims_can_be_read_and_not_changed() -> None:
    caller = _caller({"a": {"b": [1, {"c": 2}]}})
    assert caller.claims["a"]["b"][1]["c"] == 2
    nodes: list[Any] = [caller.claims, caller.claims["a"], caller.claims["a"]["b"]]
    for node in nodes:
        with pytest.raises(TypeError):
            node["a"] = 1
    assert "claims" not in repr(caller)


def _nested(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


def test_claims_are_bounded_in_depth_and_size() -> None:
    # The claims themselves are one level.
    assert _caller({"deep": _nested(MAX_DEPTH - 1)}).claims["deep"]
    assert _caller({"large": "x" * (MAX_CLAIMS - 100)}).size > MAX_CLAIMS - 100
    for levels in (MAX_DEPTH, 500, 100_000):
        with pytest.raises(Refused, match="nested too deeply"):
            _caller({"deep": _nested(levels)})
    for large in ("x" * MAX_CLAIMS, ["x" * 99] * 700, {"x" * 99 + str(n): n for n in range(700)}):
        with pytest.raises(Refused, match="too large"):
            _caller({"large": large})


def test_a_path_that_leads_nowhere_is_nothing() -> None:
    assert claim_at({"a": {"b": 1}}, "a.b.c") is None
    assert claim_at({}, "a") is None


NOW = 1_000_000.0


@rows(
    "claims, said",
    ("it ended", {"exp": NOW - 31}, "expired"),
    ("it ends with the leeway", {"exp": NOW - 30}, "expired"),
    ("it is not valid yet", {"exp": NOW + 9, "nbf": NOW + 31}, "not valid yet"),
    ("it is of the future", {"exp": NOW + 9, "iat": NOW + 31}, "in the future"),
    ("exp is text", {"exp": str(NOW + 9)}, "not a number"),
    ("exp is true", {"exp": True}, "not a number"),
    ("exp is endless", {"exp": math.inf}, "not a number"),
    ("exp is no number", {"exp": math.nan}, "not a number"),
    ("exp is a list", {"exp": [NOW + 9]}, "not a number"),
    ("nbf is text", {"exp": NOW + 9, "nbf": "0"}, "not a number"),
    ("iat is text", {"exp": NOW + 9, "iat": "0"}, "not a number"),
    ("there is no exp", {}, "has no exp"),
    ("exp is null", {"exp": None}, "has no exp"),
)
def test_times_that_do_not_count(claims: Mapping[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        check_times(claims, NOW, 30.0, need_exp=True)


@rows(
    "claims, expires_at",
    ("within the leeway", {"exp": NOW - 29}, NOW - 29),
    ("fractions", {"exp": NOW + 0.5}, NOW + 0.5),
    ("clocks that differ", {"exp": NOW + 9, "nbf": NOW + 30, "iat": NOW + 30}, NOW + 9),
)
def test_times_that_count(claims: Mapping[str, Any], expires_at: float) -> None:
    assert check_times(claims, NOW, 30.0, need_exp=True) == expires_at


def test_an_answer_of_introspection_may_have_no_end() -> None:
    assert check_times({}, NOW, 30.0, need_exp=False) is None
