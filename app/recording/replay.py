"""Runs recorded calls again, by the path that every call takes, and says what has changed."""

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, Final, NamedTuple

from app.execution.execution import Execution, Outcome
from app.execution.results import INVALID_ARGUMENTS
from app.guards.redaction import Redactor
from app.methods.answers import Reply, Sender
from app.methods.record import outcome_of
from app.methods.tools import TIMEOUT_KEY, CallTool
from app.policy.rules import normal_annotations
from app.principal import Principal, read_only
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call
from app.protocol.jsonrpc import loads_encoded
from app.protocol.schema import Implementation, RequestMeta
from app.recording.comparing import comparable, difference, digest
from app.recording.recording import Recording, Refusal
from app.registry.catalog import Catalog
from app.registry.views import Offer

MASKED_INPUT: Final = "masked input"
"""What is said of a call whose arguments or answers are not as they were."""


class Verdict(StrEnum):
    SAME = "same"
    CHANGED = "changed"
    ALLOWED = "newly allowed"
    REFUSED = "newly refused"
    ERROR = "error"
    SKIPPED = "skipped"

    @property
    def differs(self) -> bool:
        return self not in (Verdict.SAME, Verdict.SKIPPED)


class Ended(NamedTuple):
    """How a call ended, now or then.

    Attributes:
        refusal: What refused it, before its tool ran; None: it ran.
        error_id: What a generic error told the caller.
    """

    outcome: str
    result: dict[str, Any] | None = None
    refusal: str | None = None
    error_id: str | None = None


class Replayed(NamedTuple):
    """What became of a recorded call.

    Attributes:
        now: None: it was not run, and nothing refuses it.
        notes: In words: why, and what to consider.
        diff: Of the results, where both ran.
    """

    recording: Recording
    verdict: Verdict
    now: Ended | None
    notes: tuple[str, ...] = ()
    diff: str = ""


class Replayer:
    """Runs recorded calls against the tools and rules of a service, one after the other.

    Args:
        allow_effects: Whether tools run too that do not declare themselves read-only.
        ignored: Members of structured content that do not count.
    """

    def __init__(
        self,
        call_tool: CallTool,
        catalog: Callable[[], Catalog],
        *,
        allow_effects: bool,
        ignored: Collection[str] = (),
    ) -> None:
        self._call_tool = call_tool
        self._catalog = catalog
        self._allow_effects = allow_effects
        self._ignored = frozenset(ignored)

    async def replay(self, recording: Recording, at: float) -> Replayed:
        """Run one call again, or say why not.

        Args:
            at: POSIX time at which rules decide; the service must be told the same.
        """
        notes = _notes(recording)
        if recording.request.arguments is None:
            notes.append("its arguments were too large to be kept")
            return Replayed(recording, Verdict.SKIPPED, None, tuple(notes))
        sender = Sender(_principal(recording), None, recording.caller.address)
        call = _call(recording)
        then, now = _ended_then(recording), self._refused(call, sender)
        if now is None:
            offer = self._catalog().view(sender.principal, at).offers[recording.request.tool]
            if recording.catalog.tool_version not in (None, offer.tool.version.hex()):
                notes.append("another version of the tool")
            if then.refusal is not None:
                return Replayed(recording, Verdict.ALLOWED, None, tuple(notes))
            why_not = self._why_not(recording, offer)
            if why_not is not None:
                return Replayed(recording, Verdict.SKIPPED, None, (*notes, why_not))
            now = await self._run(call, sender)
        return self._judge(recording, then, now, tuple(notes))

    def _refused(self, call: Call, sender: Sender) -> Ended | None:
        try:
            reply = self._call_tool.check(call, sender)
        except ProtocolError as error:
            return _refused_by(error)
        return None if reply is None else _replied(reply)

    def _why_not(self, recording: Recording, offer: Offer) -> str | None:
        """Why a call that nothing refuses is not run; None: it is."""
        is_bound, tool = not self._allow_effects, offer.tool
        reads_only = normal_annotations(tool.annotations).get("readOnlyHint") is True
        reasons = {
            "its user entered something on a page, which is never kept": recording.needs_page,
            "its answers were too large to be kept": recording.answers is None,
            "its caller had gone, so there is nothing to compare with": (
                recording.outcome == Outcome.CANCELLED
            ),
            "it may have effects: --allow-effects runs it": is_bound and not reads_only,
            "hooks of the tools folder stand around it: --allow-effects runs them": (
                is_bound and bool(offer.hooks.files)
            ),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    async def _run(self, call: Call, sender: Sender) -> Ended:
        try:
            answer = self._call_tool(call, sender)
            if not isinstance(answer, Reply | Execution):
                answer = await answer
            if isinstance(answer, Reply):
                return _replied(answer)
            while answer.result is None:
                await answer.wait()
                answer.take_notifications()
        except ProtocolError as error:
            return _refused_by(error)
        if answer.refusal is not None:
            return _refused_by(answer.refusal)
        return Ended(answer.outcome, loads_encoded(answer.result), error_id=answer.error_id)

    def _judge(
        self, recording: Recording, then: Ended, now: Ended, notes: tuple[str, ...]
    ) -> Replayed:
        if then.refusal is None and now.refusal is not None:
            return Replayed(recording, Verdict.REFUSED, now, (*notes, now.refusal))
        if now.outcome == Outcome.INTERNAL_ERROR != then.outcome:
            return Replayed(recording, Verdict.ERROR, now, notes)
        if then.refusal is not None and now.refusal is not None:
            diff = difference(then.refusal, now.refusal)
        else:
            diff = self._difference(recording, then, now)
        if then.outcome == now.outcome and not diff:
            return Replayed(recording, Verdict.SAME, now, notes)
        return Replayed(recording, Verdict.CHANGED, now, notes, diff)

    def _difference(self, recording: Recording, then: Ended, now: Ended) -> str:
        """How the results differ; what is new is masked as the recording is."""
        if now.result is None:
            return ""
        if recording.result_digest is not None:
            is_same = digest(now.result) == recording.result_digest
            return "" if is_same else "(the recorded result was too large to be kept)"
        if then.result is None:
            return ""
        redaction = recording.redaction
        redactor = Redactor(redaction.kinds, locales=redaction.locales)
        masked = redactor.data(comparable(now.result))
        return difference(comparable(then.result, self._ignored), comparable(masked, self._ignored))


def _notes(recording: Recording) -> list[str]:
    return [MASKED_INPUT] if recording.has_masked_input else []


def _principal(recording: Recording) -> Principal:
    caller = recording.caller
    return Principal(
        issuer=caller.issuer,
        subject=caller.subject,
        tenant=caller.tenant,
        scopes=frozenset(caller.scopes),
        roles=frozenset(caller.roles),
        clearance=caller.clearance,
        approvals=frozenset(caller.approvals),
        claims=read_only(caller.claims or {}),
    )


def _call(recording: Recording) -> Call:
    request = recording.request
    params: dict[str, Any] = {"name": request.tool, "arguments": request.arguments}
    if recording.answers:
        params["inputResponses"] = recording.answers
    raw = {} if request.timeout_ms is None else {TIMEOUT_KEY: request.timeout_ms}
    client = request.client
    meta = RequestMeta(
        request.protocol_version,
        request.capabilities,
        None if client is None else Implementation(client.name, client.version),
        request.log_level,
        None,
        None,
        raw,
    )
    return Call(1, "tools/call", params, meta)


def _ended_then(recording: Recording) -> Ended:
    error, result = recording.error, recording.result
    refusal = None if error is None else _words(error)
    if refusal is None and result is not None:
        refusal = _argument_error(result)
    return Ended(recording.outcome, result, refusal, recording.error_id)


def _refused_by(error: ProtocolError) -> Ended:
    return Ended(outcome_of(error), refusal=_words(Refusal.of(error)))


def _replied(reply: Reply) -> Ended:
    result = loads_encoded(reply.result)
    return Ended(reply.outcome, result, _argument_error(result))


def _words(refusal: Refusal) -> str:
    return f"{refusal.message} ({refusal.code})"


def _argument_error(result: dict[str, Any]) -> str | None:
    """What a result says of bad arguments; None: it says something else."""
    content = result.get("content")
    if result.get("isError") is not True or not isinstance(content, list) or not content:
        return None
    text = content[0].get("text") if isinstance(content[0], dict) else None
    return text if isinstance(text, str) and text.startswith(INVALID_ARGUMENTS) else None
