"""What a refused caller is told."""

from hypothesis import given
from hypothesis import strategies as st

from app.auth.challenge import MAX_SCOPES, Challenge
from app.settings import Settings
from tests.auth.desk import challenge_of
from tests.support.cases import rows

ISSUER = {"issuer": "https://login.example.com"}
POINTER = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"


def _challenge(public_url: str = "https://tools.example.com", **auth: object) -> Challenge:
    return Challenge(Settings.model_validate({"server": {"public_url": public_url}, "auth": auth}))


def test_a_caller_without_credential_is_told_where_to_get_one_and_no_error() -> None:
    refusal = _challenge(issuers=[ISSUER], scopes_supported=["tools:read"]).unauthorized("Who?")
    assert refusal.http_status == 401
    assert challenge_of(refusal) == {"resource_metadata": POINTER, "scope": "tools:read"}


def test_a_wrong_credential_is_an_invalid_token() -> None:
    refusal = _challenge(issuers=[ISSUER]).unauthorized("It expired.", error="invalid_token")
    assert challenge_of(refusal) == {
        "resource_metadata": POINTER,
        "error": "invalid_token",
        "error_description": "It expired.",
    }


def test_missing_scopes_are_named_all_at_once() -> None:
    refusal = _challenge(issuers=[ISSUER], scopes_supported=["x"]).insufficient_scope(["a", "b"])
    assert refusal.http_status == 403
    challenge = challenge_of(refusal)
    assert challenge["error"] == "insufficient_scope"
    assert challenge["scope"] == "a b"
    assert challenge["resource_metadata"] == POINTER


def test_scopes_of_a_call_replace_what_clients_should_ask_for_first() -> None:
    challenge = _challenge(issuers=[ISSUER], scopes_supported=["x"])
    assert challenge_of(challenge.unauthorized("Who?", scopes=["a", "b"]))["scope"] == "a b"


def test_without_an_issuer_there_is_no_pointer_and_still_a_parameter() -> None:
    refusal = _challenge(api_keys=[]).unauthorized("Who?")
    assert challenge_of(refusal) == {"realm": "mcp"}


def test_a_request_that_cannot_be_read_is_an_invalid_request() -> None:
    refusal = _challenge(issuers=[ISSUER]).malformed("Two credentials.")
    assert (refusal.http_status, refusal.code) == (400, -32600)
    assert challenge_of(refusal)["error"] == "invalid_request"


@rows(
    "public_url, pointer",
    ("a path goes after the well-known part", "https://a.example/base", "/base/mcp"),
    ("mcp is not added twice", "https://a.example/mcp", "/mcp"),
    ("a port stays", "https://a.example:8443", "/mcp"),
)
def test_the_pointer_comes_from_the_public_url(public_url: str, pointer: str) -> None:
    url = challenge_of(_challenge(public_url, issuers=[ISSUER]).unauthorized("Who?"))
    assert url["resource_metadata"].endswith("/.well-known/oauth-protected-resource" + pointer)
    assert url["resource_metadata"].startswith(
        public_url.removesuffix("/base").removesuffix("/mcp")
    )


@given(st.text(max_size=400), st.text(max_size=60), st.lists(st.text(max_size=30), max_size=20))
def test_any_text_stays_one_valid_header(message: str, error: str, scopes: list[str]) -> None:
    challenge = _challenge(issuers=[ISSUER])
    for refusal in (
        challenge.unauthorized(message, error=error, scopes=scopes),
        challenge.insufficient_scope(scopes),
        challenge.malformed(message),
    ):
        parameters = challenge_of(refusal)
        assert parameters["resource_metadata"] == POINTER
        assert set(parameters.get("scope", "").split()) <= set(scopes)


def test_a_header_stays_short_however_many_scopes_there_are() -> None:
    refusal = _challenge(issuers=[ISSUER]).insufficient_scope([f"scope-{n}" for n in range(5000)])
    assert len(challenge_of(refusal)["scope"]) <= MAX_SCOPES
