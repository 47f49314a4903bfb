"""What is kept of a call so that it can be run again, and its JSON form.

The form has a number. A release reads the forms that it knows and refuses every other one: what
it does not understand of a recording could be what matters.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from app.guards.redaction import Redactor
from app.guards.spans import Kind
from app.protocol.errors import ProtocolError
from app.protocol.jsonrpc import dumps, loads_encoded

FORMAT: Final = 1
KIND: Final = "mcp-tool-server recording"


class Unusable(Exception):
    """A recording that cannot be used here. The text says why and repeats nothing of it."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Client(_Part):
    """Who the client said it is."""

    name: str
    version: str


class Request(_Part):
    """The call as it was asked for.

    Attributes:
        arguments: None: they were not kept; see ``Recording.omitted``.
        capabilities: What the client said it can do.
        timeout_ms: The deadline that the client asked for.
    """

    tool: str
    arguments: dict[str, Any] | None
    protocol_version: str
    capabilities: dict[str, Any] = Field(default_factory=dict)
    client: Client | None = None
    log_level: str | None = None
    timeout_ms: int | None = None


class CallerRecord(_Part):
    """Who called, without credential: what rules and tools look at.

    Attributes:
        claims: Without those that name a token or a session; None: they were not kept.
        address: Of the client, for rules about networks.
    """

    issuer: str | None = None
    subject: str | None = None
    tenant: str | None = None
    scopes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    clearance: str | None = None
    approvals: tuple[str, ...] = ()
    claims: dict[str, Any] | None = Field(default_factory=dict)
    address: str | None = None


class CatalogRecord(_Part):
    """What was served.

    Attributes:
        fingerprint: Of all definitions.
        tool_version: Of the tool's code, definition and settings; None: there was no such tool.
    """

    fingerprint: str
    tool_version: str | None = None


class Refusal(_Part):
    """The error that answered the call."""

    code: int
    message: str

    @classmethod
    def of(cls, error: ProtocolError) -> "Refusal":
        return cls(code=error.code, message=error.message)


class Redaction(_Part):
    """What was looked for, and where something was masked.

    Attributes:
        masked: Parts of the recording that are not as they were.
    """

    kinds: tuple[Kind, ...]
    locales: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        Redactor(self.kinds, locales=self.locales)
        return self


class Recording(_Part):
    """One call.

    Attributes:
        id: 16 hexadecimal digits: the error id that the caller was told, where there was one.
        release: Of the server.
        called_at: When the rules decided about it.
        answers: To the tool's questions, of this round and of earlier ones, by key.
        needs_page: Whether a user entered something on a page: that is never kept.
        outcome: As in the log.
        result: The result object without ``_meta`` and ``requestState``; None: there was none, or
            it was not kept.
        result_digest: SHA-256 of what is compared of a result that was too large to be kept.
        error: What answered the call in place of a result.
        omitted: Bytes of each part that was too large to be kept.
    """

    kind: Literal["mcp-tool-server recording"] = KIND
    format: Literal[1] = FORMAT
    id: str = Field(pattern=r"^[0-9a-f]{16}$")
    release: str
    called_at: AwareDatetime
    duration_ms: float = Field(ge=0)
    request: Request
    answers: dict[str, dict[str, Any]] | None = Field(default_factory=dict)
    needs_page: bool = False
    caller: CallerRecord = CallerRecord()
    catalog: CatalogRecord
    outcome: str
    result: dict[str, Any] | None = None
    result_digest: str | None = None
    error: Refusal | None = None
    error_id: str | None = None
    omitted: dict[str, int] = Field(default_factory=dict)
    redaction: Redaction

    @property
    def has_masked_input(self) -> bool:
        """Whether what would be run again is not what was run."""
        return not INPUTS.isdisjoint(self.redaction.masked)


INPUTS: Final = frozenset({"arguments", "answers", "claims", "capabilities"})


def encode(recording: Recording) -> bytes:
    """The JSON form.

    Raises:
        TypeError, ValueError: Something in it has none.
    """
    return dumps(recording.model_dump(mode="json"))


def decode(data: bytes) -> Recording:
    """A recording from its JSON form.

    Raises:
        Unusable: It is none, or of a form that this release does not read.
    """
    try:
        value = loads_encoded(data)
    except (ValueError, RecursionError):
        raise Unusable("it is no recording: not JSON, or cut short") from None
    if not isinstance(value, Mapping) or value.get("kind") != KIND:
        raise Unusable("it is no recording of an mcp-tool-server")
    check_format(value.get("format"))
    try:
        return Recording.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise Unusable(f"it is no whole recording: {where}: {first['msg'][:200]}") from None


def check_format(number: object) -> None:
    """Whether this release reads a form.

    Raises:
        Unusable: It does not.
    """
    if type(number) is int and number > FORMAT:
        raise Unusable(
            f"it was made by a newer release (format {number}; this one reads {FORMAT}): "
            "replay it with that release"
        )
    if type(number) is not int or number != FORMAT:
        raise Unusable(f"its format is not known; this release reads format {FORMAT}")
