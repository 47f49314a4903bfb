"""What is put on record of a call. No value of an argument, no result, no credential.

The members of a record are put together from parts that were encoded before: most callers call
again, and so do most tools. Encoding the whole each time would cost as much as everything else.
"""

import time
from typing import Final, TypeVar

import orjson

from app.audit.chain import Hasher
from app.auth.caller import Caller
from app.methods.answers import Sender
from app.methods.observing import Ended, encoded_arguments
from app.observability.logs import printable
from app.principal import Principal
from app.protocol.inbound import Call
from app.protocol.schema import RequestId
from app.registry.tool import Tool

MAX_NAME: Final = 128
MAX_WHO: Final = 256
MAX_ID: Final = 64
MAX_ADDRESS: Final = 64
REMEMBERED: Final = 1024
"""Callers and endings whose members are kept."""

_NULL: Final = b"null"
K = TypeVar("K")


class Instants:
    """POSIX times as ISO 8601 in UTC; the text of a second is made once."""

    def __init__(self) -> None:
        self._second = -1
        self._text = b""

    def encoded(self, now: float) -> bytes:
        """With microseconds and ``Z``."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%06dZ" % (self._text, (now - second) * 1_000_000)


class Recorder:
    """Makes records: the members of a JSON object, without its braces.

    Args:
        key: Of the digests of arguments: who does not have it cannot find out arguments by
            hashing guesses.
    """

    def __init__(self, key: bytes) -> None:
        self._digest = Hasher(key).hex
        self._instants = Instants()
        self._who: dict[tuple[Principal, str | None], bytes] = {}
        self._decided: dict[tuple[Tool | None, str | None, str], bytes] = {}
        self._revisions: dict[str, bytes] = {}

    def call(self, ended: Ended, now: float, link: int | None) -> bytes:
        """How a call ended.

        Args:
            now: POSIX time.
            link: The number that its intent has, where there is one.
        """
        error = ended.error
        key = (ended.tool, ended.rule, ended.outcome)
        decided = self._decided.get(key) if error is None else None
        if decided is None:
            decided = _decided(ended)
            if error is None and ended.tool is not None:  # or there are as many as names
                self._kept(self._decided, key, decided)
        record = b'%b,"duration_ms":%.3f' % (
            self._begin(now, b"call", decided, ended.call, ended),
            ended.duration_s * 1000,
        )
        if error is not None:
            record += b',"code":%d' % error.code
        if ended.error_id is not None:
            record += b',"error_id":%b' % encoded(ended.error_id)
        if ended.attempt > 1:
            record += b',"attempt":%d' % ended.attempt
        if ended.cached is not None:
            record += b',"cached":%b' % encoded(ended.cached)
        return record if link is None else b'%b,"intent":%d' % (record, link)

    def intent(
        self, tool: Tool, call: Call, sender: Sender, *, rule: str, now: float, link: int
    ) -> bytes:
        """That a call is about to run."""
        decided = b'%b,"decision":"allow","rule":%b' % (_what(tool, call), short(rule, MAX_NAME))
        return b'%b,"intent":%d' % (
            self._begin(now, b"intent", decided, call, sender),
            link,
        )

    def gap(self, now: float, lost: int) -> bytes:
        """That so many records are lost."""
        return b'"time":"%b","kind":"gap","lost":%d' % (self._instants.encoded(now), lost)

    def _begin(
        self,
        now: float,
        kind: bytes,
        decided: bytes,
        call: Call,
        who: Sender | Ended,
    ) -> bytes:
        arguments = who.arguments if type(who) is Ended else encoded_arguments(call)
        id, meta = call.id, call.meta
        trace = meta.trace_parent
        caller = who.principal, who.address
        by = self._who.get(caller)
        if by is None:
            by = self._kept(self._who, caller, _who(who))
        return (
            b'"time":"%b","kind":"%b",%b,%b,"arguments":"%b","request_id":%b,"trace_id":%b,'
            b'"revision":%b'
        ) % (
            self._instants.encoded(now),
            kind,
            by,
            decided,
            self._digest(arguments),
            b"%d" % id if type(id) is int and id.bit_length() < 64 else _id(id),
            _NULL if trace is None else b'"%b"' % trace[3:35].encode(),
            self._revisions.get(meta.protocol_version) or self._revision(meta.protocol_version),
        )

    def _revision(self, version: str) -> bytes:
        return self._kept(self._revisions, version, short(version or None, MAX_ID))

    @staticmethod
    def _kept(kept: dict[K, bytes], key: K, value: bytes) -> bytes:
        if len(kept) >= REMEMBERED:
            kept.clear()
        kept[key] = value
        return value


def encoded(value: object) -> bytes:
    """JSON, of texts of ours."""
    return orjson.dumps(value)


def short(text: str | None, limit: int) -> bytes:
    """A text of somebody else's as JSON: bounded, and without control characters."""
    return _NULL if text is None else encoded(printable(text, limit))


def _who(who: Sender | Ended) -> bytes:
    principal = who.principal
    credential = principal.credential_id
    if credential is None and isinstance(principal, Caller):
        credential = principal.token_digest
    return b'"issuer":%b,"subject":%b,"tenant":%b,"credential":%b,"address":%b' % (
        short(principal.issuer, MAX_WHO),
        short(principal.subject, MAX_WHO),
        short(principal.tenant, MAX_WHO),
        short(credential, MAX_WHO),
        short(who.address, MAX_ADDRESS),
    )


def _what(tool: Tool | None, call: Call) -> bytes:
    """The tool, by the name that the client gave; its version, if there is such a tool."""
    name = call.params.get("name")
    named = short(name, MAX_NAME) if isinstance(name, str) else _NULL
    version = _NULL if tool is None else encoded(tool.version.hex())
    return b'"tool":%b,"version":%b' % (named, version)


def _decided(ended: Ended) -> bytes:
    """The tool, what was decided about the call, and its outcome."""
    error, rule = ended.error, ended.rule
    if error is not None and error.setting is not None:
        rule = error.setting
    return b'%b,"decision":"%b","rule":%b,"outcome":%b' % (
        _what(ended.tool, ended.call),
        _decision(ended),
        short(rule, MAX_NAME),
        encoded(ended.outcome),
    )


def _decision(ended: Ended) -> bytes:
    """What was decided about the call: what became of it is its outcome."""
    if ended.tool is not None and ended.error is None:
        return b"allow"
    if ended.outcome == "denied":
        return b"deny"
    if ended.outcome == "limited":
        return b"limit"
    if ended.tool is not None:
        return b"allow"
    return b"hide" if ended.rule is not None else b"none"


def _id(id: RequestId) -> bytes:
    return encoded(printable(str(id), MAX_ID))
