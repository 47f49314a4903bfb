"""The refusals of HTTP, with what a client needs to become known.

Sources: RFC 6750, section 3; RFC 9728, section 5.1; Authorization, "Error Handling".
"""

import math
import re
from collections.abc import Sequence
from typing import Final, TypeVar

from app.auth.metadata import metadata_url
from app.protocol.errors import (
    Forbidden,
    InvalidRequest,
    ProtocolError,
    Unauthorized,
    Unavailable,
)
from app.settings import Settings

MAX_TEXT: Final = 300
"""Characters of one value; proxies bound the size of a header."""
MAX_SCOPES: Final = 4000

_NOT_QUOTABLE: Final = re.compile(r"[^\x20\x21\x23-\x5B\x5D-\x7E]")
_Refusal = TypeVar("_Refusal", bound=ProtocolError)
_NOT_SCOPE: Final = re.compile(r"[^\x21\x23-\x5B\x5D-\x7E]")


class Challenge:
    """Builds refusals; what never changes of the header is worked out once."""

    def __init__(self, settings: Settings) -> None:
        url = metadata_url(settings)
        self._pointer = [f'resource_metadata="{quotable(url, len(url))}"'] if url else []
        self._scopes = settings.auth.scopes_supported

    def unauthorized(
        self,
        message: str,
        *,
        error: str | None = None,
        scopes: Sequence[str] = (),
        found: str = "missing",
    ) -> Unauthorized:
        """401.

        Args:
            message: For the body, and for ``error_description`` where there is an ``error``.
            error: ``invalid_token``, where a credential was shown; else None: a client that
                showed none is told no error (RFC 6750, section 3.1).
            scopes: What the call needs; default: what clients should ask for first.
            found: What was found of the credential, in one word for the metrics.
        """
        header = self._header(scopes or self._scopes, error, message)
        return _about(Unauthorized(message, headers=[header]), found)

    def insufficient_scope(self, scopes: Sequence[str]) -> Forbidden:
        """403 for a caller that may come back with more scopes.

        Args:
            scopes: All that the call needs, those included that the caller has: a client asks
                for what it reads here, and would lose those that are left out.
        """
        message = (
            "The credential does not have every scope that this call needs: "
            + " ".join(scopes)
            + "."
            if scopes
            else "The credential does not permit this call."
        )
        header = self._header(scopes, "insufficient_scope", message)
        refusal = Forbidden(message, data={"scopes": list(scopes)}, headers=[header])
        return _about(refusal, "denied")

    def forbidden(self, message: str) -> Forbidden:
        """403 for a caller whom no further scope would help."""
        return _about(Forbidden(message, headers=[self._header((), None, message)]), "denied")

    def malformed(self, message: str) -> InvalidRequest:
        """400 for a request whose credentials cannot be read."""
        header = self._header((), "invalid_request", message)
        return _about(InvalidRequest(message, headers=[header]), "malformed")

    def unavailable(self, message: str, retry_after_s: float) -> Unavailable:
        """503: the credential may be right, and nobody can say now."""
        refusal = Unavailable(message, retry_after_s=max(1, math.ceil(retry_after_s)))
        return _about(refusal, "unavailable")

    def _header(
        self, scopes: Sequence[str], error: str | None, description: str
    ) -> tuple[bytes, bytes]:
        parameters = list(self._pointer)
        scope = _scope_value(scopes)
        if scope:
            parameters.append(f'scope="{scope}"')
        if error is not None:
            parameters.append(f'error="{quotable(error)}"')
            parameters.append(f'error_description="{quotable(description)}"')
        # A scheme needs a parameter (RFC 6750, section 3).
        value = "Bearer " + ", ".join(parameters or ['realm="mcp"'])
        return b"www-authenticate", value.encode("ascii")


def _about(refusal: _Refusal, found: str) -> _Refusal:
    refusal.credential = found
    return refusal


def quotable(text: str, limit: int = MAX_TEXT) -> str:
    """Text that can stand between double quotes in a header, whatever it was before."""
    return _NOT_QUOTABLE.sub("?", text[:limit].replace('"', "'").replace("\\", "/"))


def _scope_value(scopes: Sequence[str]) -> str:
    kept: list[str] = []
    length = 0
    for scope in scopes:
        if not scope or _NOT_SCOPE.search(scope):
            continue
        length += len(scope) + 1
        if length > MAX_SCOPES:
            break
        kept.append(scope)
    return " ".join(kept)
