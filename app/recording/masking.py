"""What is taken out of a call before it is kept."""

from collections.abc import Mapping
from typing import Any, Final

from app.guards.redaction import Redactor

UNKEPT_CLAIMS: Final = frozenset(
    {
        *("jti", "sid", "nonce", "at_hash", "c_hash", "s_hash", "cnf"),
        *("iat", "exp", "nbf", "auth_time"),
    }
)
"""Claims that name a token or a session, or say when it counts: none of them is the caller's."""

UNKEPT_MEMBERS: Final = ("_meta", "requestState", "resultType")
"""Members of a result object that are the server's own, or sealed for the client."""


class Mask:
    """Masks the parts of one recording, and remembers of which something was masked."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.masked: list[str] = []

    def data(self, part: str, value: Any) -> Any:
        """Plain JSON data of a part, masked."""
        looked = self._redactor.data(value)
        if looked is not value and part not in self.masked:
            self.masked.append(part)
        return looked


def plain(value: Any) -> Any:
    """A copy of read-only JSON data that encoders know."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def claims_to_keep(claims: Mapping[str, Any]) -> dict[str, Any]:
    """What an issuer says of the caller, and not of the token."""
    return {name: plain(value) for name, value in claims.items() if name not in UNKEPT_CLAIMS}


def result_to_keep(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result object without what is not the tool's."""
    return {name: value for name, value in result.items() if name not in UNKEPT_MEMBERS}
