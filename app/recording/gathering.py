"""From a call that has ended to its recording: masked, bounded, and without any credential."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from app.guards.redaction import Redactor
from app.guards.spans import Kind
from app.principal import Principal
from app.protocol.jsonrpc import loads_encoded
from app.protocol.schema import RequestId, RequestMeta
from app.recording.comparing import digest
from app.recording.masking import Mask, claims_to_keep, result_to_keep
from app.recording.recording import (
    INPUTS,
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
MAX_MESSAGE: Final = 1000
LEAVE: Final = ("result", "claims", "capabilities", "answers", "arguments")
"""What is left out of a recording that is too large, in this order, until it is not."""


class TooLarge(Exception):
    """A recording that is too large whatever is left out of it."""


class Finished(NamedTuple):
    """A call that has ended, as it waits to be recorded: nothing in it can change any more.

    Attributes:
        tool: Its name.
        tool_version: None: there was no such tool.
        fingerprint: Of the catalog.
        began: POSIX time.
        outcome: As in the log.
        arguments: The object that the client sent, encoded.
        answers: To the tool's questions, by key, encoded.
        capabilities: What the client declared, encoded.
        needs_page: Whether a user entered something on a page.
        result: The encoded result object; None: there is none.
        refusal: What answered it in place of a result.
        error_id: What a generic error told the caller.
        timeout_ms: The deadline that the client asked for.
    """

    request_id: RequestId
    tool: str
    tool_version: bytes | None
    fingerprint: str
    principal: Principal
    address: str | None
    began: float
    duration_s: float
    outcome: str
    meta: RequestMeta
    arguments: bytes = b"{}"
    answers: bytes = b"{}"
    capabilities: bytes = b"{}"
    needs_page: bool = False
    result: bytes | None = None
    refusal: Refusal | None = None
    error_id: str | None = None
    timeout_ms: int | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it keeps while it waits."""
        result = self.result or b""
        return sum(map(len, (self.arguments, self.answers, self.capabilities, result)))


class Gatherer:
    """Makes recordings.

    Args:
        kinds: What is masked.
        locales: As of ``Redactor``.
        max_bytes: Of the JSON form of a recording.
        release: Of this server.
    """

    def __init__(
        self, kinds: Sequence[Kind], *, locales: Sequence[str], max_bytes: int, release: str
    ) -> None:
        self._redactor = Redactor(kinds, locales=locales)
        self._kinds, self._locales = tuple(kinds), tuple(locales)
        self._max_bytes = max_bytes
        self._release = release

    def gather(self, finished: Finished, id: str) -> bytes:
        """The JSON form of the recording of a call.

        Raises:
            TooLarge: It is.
            TypeError, ValueError: Something in it has no JSON form.
        """
        encoded = {
            "arguments": finished.arguments,
            "answers": finished.answers,
            "capabilities": finished.capabilities,
            "result": finished.result or b"null",
        }
        # What is too large by itself is not even looked through.
        omitted = {name: len(part) for name, part in encoded.items() if len(part) > self._max_bytes}
        parts: dict[str, Any] = {
            name: None if name in omitted else loads_encoded(part) for name, part in encoded.items()
        }
        parts["claims"] = claims_to_keep(finished.principal.claims)
        if parts["result"] is not None:
            parts["result"] = result_to_keep(parts["result"])
        mask = Mask(self._redactor)
        kept = {name: mask.data(name, part) for name, part in parts.items()}
        while True:
            recording = self._recording(finished, id, kept, omitted, mask.masked)
            data = encode(recording)
            if len(data) <= self._max_bytes:
                return data
            name = next((each for each in LEAVE if kept[each]), None)
            if name is None:
                raise TooLarge
            kept[name], omitted[name] = None, len(encoded.get(name, b""))

    def _recording(
        self,
        finished: Finished,
        id: str,
        kept: Mapping[str, Any],
        omitted: Mapping[str, int],
        masked: Sequence[str],
    ) -> Recording:
        meta, client, refusal = finished.meta, finished.meta.client_info, finished.refusal
        version, result = finished.tool_version, finished.result
        said = None
        if client is not None:
            said = Client(name=self._text(client.name), version=self._text(client.version))
        if refusal is not None:
            message = self._redactor.text(refusal.message[:MAX_MESSAGE])
            refusal = refusal.model_copy(update={"message": message})
        return Recording(
            id=id,
            release=self._release,
            called_at=datetime.fromtimestamp(finished.began, UTC),
            duration_ms=round(max(0.0, finished.duration_s) * 1000, 3),
            request=Request(
                tool=finished.tool,
                arguments=kept["arguments"],
                protocol_version=meta.protocol_version,
                capabilities=kept["capabilities"] or {},
                client=said,
                log_level=meta.log_level,
                timeout_ms=finished.timeout_ms,
            ),
            answers=kept["answers"],
            needs_page=finished.needs_page,
            caller=_caller(finished, kept["claims"]),
            catalog=CatalogRecord(
                fingerprint=finished.fingerprint,
                tool_version=None if version is None else version.hex(),
            ),
            outcome=finished.outcome,
            result=kept["result"],
            result_digest=digest(loads_encoded(result)) if result and "result" in omitted else None,
            error=refusal,
            error_id=finished.error_id,
            omitted=dict(omitted),
            redaction=Redaction(
                kinds=self._kinds,
                locales=self._locales,
                # What is left out was not changed, and what was changed is not there.
                masked=tuple(each for each in masked if each not in omitted or each in INPUTS),
            ),
        )

    def _text(self, text: str) -> str:
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
