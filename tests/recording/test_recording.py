"""What is kept of a call: its form, what is masked and left out, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.principal import Principal, read_only
from app.recording.gathering import TooLarge
from app.recording.recording import FORMAT, Recording, Refusal, Unusable, decode, encode
from tests.guards.planted import LOCALES, PLANTED
from tests.recording.making import ADA, ID, failure, finished, gatherer, recorded
from tests.support.cases import rows

_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_KEYS, _JSON, max_size=4)


@settings(deadline=None)
@given(_OBJECTS, st.dictionaries(_KEYS, _OBJECTS, max_size=3), _OBJECTS)
def test_a_recording_is_read_as_it_was_written(
    arguments: dict[str, Any], answers: dict[str, Any], structured: dict[str, Any]
) -> None:
    result = {"content": [], "structuredContent": structured, "isError": False}
    recording = recorded(
        finished(arguments=arguments, answers=answers, result=result, outcome="ok")
    )

    assert decode(encode(recording)) == recording
    if not recording.redaction.masked:
        assert recording.request.arguments == arguments
        assert recording.answers == answers
        assert recording.result == result


def test_a_number_beyond_64_bits_keeps_its_digits() -> None:
    recording = recorded(finished(arguments={"n": 12345678901234567890123}))

    assert recording.request.arguments == {"n": 12345678901234567890123}


def test_it_says_all_that_is_needed_to_run_the_call_again() -> None:
    recording = recorded(finished(timeout_ms=500, answers={"sure": {"action": "accept"}}))

    assert recording.model_dump(mode="json", exclude={"redaction"}) == {
        "kind": "mcp-tool-server recording",
        "format": FORMAT,
        "id": ID,
        "release": "1.2.3",
        "called_at": "2026-07-28T12:00:00.250000Z",
        "duration_ms": 12.5,
        "request": {
            "tool": "divide",
            "arguments": {"a": 1, "b": 0},
            "protocol_version": "2026-07-28",
            "capabilities": {"elicitation": {}},
            "client": {"name": "inspector", "version": "1"},
            "log_level": None,
            "timeout_ms": 500,
        },
        "answers": {"sure": {"action": "accept"}},
        "needs_page": False,
        "caller": {
            "issuer": "https://login.example.com",
            "subject": "ada",
            "tenant": "acme",
            "scopes": ["notes:read"],
            "roles": [],
            "clearance": None,
            "approvals": [],
            "claims": {},
            "address": "192.0.2.7",
        },
        "catalog": {"fingerprint": "f" * 64, "tool_version": "01" * 32},
        "outcome": "tool_error",
        "result": {
            "content": [{"type": "text", "text": "b must not be 0"}],
            "isError": True,
        },
        "result_digest": None,
        "error": None,
        "error_id": None,
        "omitted": {},
    }


_ALL = [each for kind in PLANTED.values() for each in kind]
_PLACES = ("arguments", "answers", "capabilities", "claims", "result")


def _with(place: str, text: str) -> bytes:
    inside = {"note": f"see {text} there", "list": [{"deep": text}]}
    call = finished()
    match place:
        case "arguments":
            call = finished(arguments=inside)
        case "answers":
            call = finished(answers={"q": {"action": "accept", "content": inside}})
        case "capabilities":
            call = finished(capabilities={"experimental": inside})
        case "claims":
            principal = Principal(issuer="i", subject="s", claims=read_only(inside))
            call = call._replace(principal=principal)
        case "result":
            result = {**failure(f"failed for {text}"), "structuredContent": inside}
            call = finished(result=result)
    return gatherer(locales=LOCALES).gather(call, ID)


@pytest.mark.parametrize("place", _PLACES)
def test_no_secret_and_no_personal_data_is_kept(place: str) -> None:
    for planted, gone in _ALL:
        data = _with(place, planted)

        assert gone not in json.dumps(json.loads(data), ensure_ascii=False), planted
        assert decode(data).redaction.masked == (place,), planted


@settings(deadline=None)
@given(st.sampled_from(_ALL), st.sampled_from(_PLACES), st.text(" .,;-", max_size=6))
def test_nor_wherever_else_it_is_written(planted: tuple[str, str], place: str, around: str) -> None:
    text, gone = planted

    data = _with(place, f"{around} {text} {around}")

    assert gone not in json.dumps(json.loads(data), ensure_ascii=False)


@pytest.mark.parametrize("name", ["password", "apiKey", "client_secret", "access_token"])
def test_nor_what_stands_beside_a_name_for_it(name: str) -> None:
    recording = recorded(finished(arguments={name: "opaque-and-without-form"}))

    assert "opaque" not in encode(recording).decode()
    assert recording.has_masked_input


def test_nothing_of_the_token_is_kept() -> None:
    of_token = {"jti": "id-of-token", "sid": "session-7", "nonce": "n-0", "exp": 1}
    claims = read_only({"sub": "ada", "department": "loans", **of_token})
    principal = Principal(issuer="i", subject="ada", credential_id="id-of-token", claims=claims)

    recording = recorded(finished()._replace(principal=principal))

    assert recording.caller.claims == {"sub": "ada", "department": "loans"}
    assert b"id-of-token" not in encode(recording)


def test_what_is_sealed_for_the_client_is_not_kept() -> None:
    result = {"resultType": "input_required", "inputRequests": {}, "requestState": "sealed"}

    recording = recorded(finished(result=result, outcome="input_required"))

    assert recording.result == {"inputRequests": {}}


def test_a_refusal_is_kept_in_place_of_a_result() -> None:
    refusal = Refusal(code=-32602, message="Unknown tool: x for joe@example.com")
    call = finished(outcome="protocol_error")._replace(result=None, refusal=refusal)

    recording = recorded(call)

    assert recording.result is None
    assert recording.error is not None
    assert recording.error.code == -32602
    assert "joe" not in recording.error.message


LONG = "word " * 4000


@rows(
    "changed, omitted, kept",
    ("a long result", {"result": failure(LONG)}, {"result"}, {"arguments"}),
    ("long arguments", {"arguments": {"text": LONG}}, {"arguments"}, {"result"}),
    (
        "each fits, and both do not",
        {"arguments": {"text": LONG[:9000]}, "result": failure(LONG[:9000])},
        {"result"},
        {"arguments"},
    ),
    ("long answers", {"answers": {"q": {"content": LONG}}}, {"answers"}, {"arguments", "result"}),
)
def test_what_is_too_large_is_left_out_and_said(
    changed: dict[str, Any], omitted: set[str], kept: set[str]
) -> None:
    data = gatherer(16_000).gather(finished(**changed), ID)
    recording = decode(data)
    parts = {"arguments": recording.request.arguments, "result": recording.result}

    assert len(data) <= 16_000
    assert set(recording.omitted) == omitted
    assert {name for name in kept & set(parts) if parts[name] is None} == set()
    assert (recording.result_digest is None) is ("result" not in omitted)


@settings(deadline=None)
@given(st.integers(0, 40_000), st.integers(0, 40_000), st.integers(0, 40_000))
def test_no_recording_is_larger_than_allowed(arguments: int, answers: int, result: int) -> None:
    call = finished(
        arguments={"a": "x " * (arguments // 2)},
        answers={"q": {"a": "y " * (answers // 2)}},
        result=failure("z " * (result // 2)),
    )

    assert len(gatherer(16_000).gather(call, ID)) <= 16_000


def test_a_caller_with_very_many_scopes_is_not_recorded() -> None:
    scopes = frozenset(f"scope-{number}" for number in range(1000))
    principal = Principal(issuer="i", subject="s", scopes=scopes)

    with pytest.raises(TooLarge):
        gatherer(8_000).gather(finished()._replace(principal=principal), ID)


def _changed(**members: Any) -> bytes:
    whole = json.loads(encode(recorded()))
    return json.dumps({**whole, **members}).encode()


@rows(
    "data, said",
    ("nothing", b"", "no recording"),
    ("not JSON", b"\x00\x01", "no recording"),
    ("cut short", _changed()[:-20], "cut short"),
    ("other JSON", b'{"a": 1}', "no recording of an mcp-tool-server"),
    ("a list", b"[]", "no recording of an mcp-tool-server"),
    ("another kind", _changed(kind="other"), "no recording of an mcp-tool-server"),
    ("of a newer release", _changed(format=2), "made by a newer release (format 2; this one"),
    ("of no release", _changed(format=0), "format is not known"),
    ("a format that is none", _changed(format="1"), "format is not known"),
    ("a member too many", _changed(extra=1), "extra: Extra inputs"),
    ("a member of another type", _changed(called_at="soon"), "called_at"),
    ("an id that is none", _changed(id="../../etc/passwd"), "id: String should match"),
    ("a country that is none", _changed(redaction={"kinds": [], "locales": ["xx"]}), "redaction"),
    ("very deep", b"[" * 100_000, "no recording"),
    ("deep inside", _changed(answers={"a": "b"}), "answers.a"),
)
def test_what_is_no_recording_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(Unusable) as caught:
        decode(data)

    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_refusal_repeats_nothing_of_the_file() -> None:
    with pytest.raises(Unusable) as caught:
        decode(_changed(outcome=["hunter2"]))

    assert "hunter2" not in str(caught.value)


def test_two_recordings_of_one_call_are_equal() -> None:
    one, other = recorded(), recorded()

    assert isinstance(one, Recording)
    assert one == other
    assert recorded(finished()._replace(principal=ADA)) == one
