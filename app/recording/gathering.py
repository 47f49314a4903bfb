"""From a call that has ended to its recording: masked, bounded, and without any credential."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from app.execution.asking import State
from app.guards.redaction import Redactor
from app.principal import Principal
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call
from app.protocol.jsonrpc import dumps, loads_encoded
from app.recording.comparing import digest
from app.recording.masking import Mask, claims_to_keep, result_to_keep
from app.recording.recording import (
    CallerRecord,
    CatalogRecord,
    Client,
    Recording,
    Redaction,
    Refusal,
    Request,
    encode,
)

MAX_CLIENT_TEXT: Final = 128
DROPPED_FIRST: Final = ("result", "claims", "capabilities", "answers", "arguments")
"""What leaves a recording that is too large, until it is not."""

OpenState = Callable[[str, str, Mapping[str, Any], Principal], State | None]
"""``requestState``, tool, arguments and caller -> what the state holds; None: nothing."""


class TooLarge(Exception):
    """A recording that is too large whatever is left out of it."""


class Finished(NamedTuple):
    """A call that has ended.

    Attributes:
        tool: Its name.
        tool_version: None: there was no such tool.
        began: POSIX time.
        result: The encoded result object.
        error: What answered it in place of a result.
    """

    call: Call
    tool: str
    tool_version: bytes | None
    fingerprint: str
    principal: Principal
    address: str | None
    began: float
    duration_s: float
    outcome: str
    result: bytes | None = None
    error: ProtocolError | None = None
    error_id: str | None = None
    timeout_ms: int | None = None


class Gatherer:
    """Makes recordings.

    Args:
        kinds: What is masked.
        locales: As of ``Redactor``.
        max_bytes: Of the JSON form of a recording.
        release: Of this server.
        open_state: Opens what calls bring back from earlier rounds.
    """

    def __init__(
        self,
        kinds: Sequence[Any],
        *,
        locales: Sequence[str],
        max_bytes: int,
        release: str,
        open_state: OpenState,
    ) -> None:
        self._redactor = Redactor(kinds, locales=locales)
        self._kinds, self._locales = tuple(kinds), tuple(locales)
        self._max_bytes = max_bytes
        self._release = release
        self._open_state = open_state

    def gather(self, finished: Finished, id: str) -> bytes:
        """The JSON form of the recording of a call.

        Raises:
            TooLarge: It is.
            TypeError, ValueError: Something in it has no JSON form.
        """
        mask = Mask(self._redactor)
        call, meta = finished.call, finished.call.meta
        arguments = call.params.get("arguments") or {}
        answers, needs_page = self._answers(finished, arguments)
        result = None if not finished.result else loads_encoded(finished.result)
        parts = {
            "arguments": arguments,
            "answers": answers,
            "claims": claims_to_keep(finished.principal.claims),
            "capabilities": dict(meta.client_capabilities),
            "result": None if result is None else result_to_keep(result),
        }
        # What is too large by itself is not even looked through.
        sizes = {name: len(dumps(part)) for name, part in parts.items()}
        omitted = {name: size for name, size in sizes.items() if size > self._max_bytes}
        kept = {
            name: None if name in omitted else mask.data(name, part) for name, part in parts.items()
        }
        client = meta.client_info
        while True:
            recording = Recording(
                id=id,
                release=self._release,
                called_at=datetime.fromtimestamp(finished.began, UTC),
                duration_ms=round(finished.duration_s * 1000, 3),
                request=Request(
                    tool=finished.tool,
                    arguments=kept["arguments"],
                    protocol_version=meta.protocol_version,
                    capabilities=kept["capabilities"] or {},
                    client=None
                    if client is None
                    else Client(name=self._short(client.name), version=self._short(client.version)),
                    log_level=meta.log_level,
                    timeout_ms=finished.timeout_ms,
                ),
                answers=kept["answers"],
                needs_page=needs_page,
                caller=_caller(finished, kept["claims"]),
                catalog=CatalogRecord(
                    fingerprint=finished.fingerprint,
                    tool_version=None
                    if finished.tool_version is None
                    else finished.tool_version.hex(),
                ),
                outcome=finished.outcome,
                result=kept["result"],
                result_digest=digest(result) if "result" in omitted and result else None,
                error=None if finished.error is None else self._refusal(finished.error),
                error_id=finished.error_id,
                omitted=omitted,
                redaction=Redaction(
                    kinds=self._kinds, locales=self._locales, masked=tuple(mask.masked)
                ),
            )
            encoded = encode(recording)
            if len(encoded) <= self._max_bytes:
                return encoded
            largest = next((name for name in DROPPED_FIRST if kept[name]), None)
            if largest is None:
                raise TooLarge
            kept[largest], omitted[largest] = None, sizes[largest]

    def _answers(
        self, finished: Finished, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Answers by key, those of this round and of earlier ones; and whether pages were used."""
        params = finished.call.params
        answers: dict[str, Any] = {}
        needs_page = False
        token, responses = params.get("requestState"), params.get("inputResponses")
        if isinstance(token, str):
            state = self._open_state(token, finished.tool, arguments, finished.principal)
            if state is not None:
                answers |= {key: answer for key, (_, answer) in state.answers.items()}
                needs_page = bool(state.pages)
        if isinstance(responses, dict):
            new = {key: each for key, each in responses.items() if isinstance(each, dict)}
            answers = {**new, **answers}  # an answer of an earlier round cannot be replaced
        return answers, needs_page

    def _refusal(self, error: ProtocolError) -> Refusal:
        return Refusal(code=error.code, message=self._redactor.text(error.message[:1000]))

    def _short(self, text: str) -> str:
        return self._redactor.text(text[:MAX_CLIENT_TEXT])


def _caller(finished: Finished, claims: dict[str, Any] | None) -> CallerRecord:
    principal = finished.principal
    return CallerRecord(
        issuer=principal.issuer,
        subject=principal.subject,
        tenant=principal.tenant,
        scopes=tuple(sorted(principal.scopes)),
        roles=tuple(sorted(principal.roles)),
        clearance=principal.clearance,
        approvals=tuple(sorted(principal.approvals)),
        claims=claims,
        address=finished.address,
    )
