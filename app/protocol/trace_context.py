"""The trace that a request belongs to, as clients tell it in ``_meta`` or in headers.

Sources: W3C Trace Context level 2, W3C Baggage; Overview, "``_meta``", for the three bare keys.
What is malformed counts as absent, and so does what is larger than anybody needs.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from app.protocol.headers import HeaderMap

MAX_PARENT_CHARACTERS: Final = 512
MAX_STATE_CHARACTERS: Final = 512
MAX_STATE_MEMBERS: Final = 32
MAX_BAGGAGE_CHARACTERS: Final = 8192
MAX_BAGGAGE_VALUE_CHARACTERS: Final = 256

# Version 00 ends with the flags; later ones may go on behind a hyphen. ff is no version.
_PARENT: Final = re.compile(
    r"(?:00|(?!ff)[0-9a-f]{2}(?=.{53}(?:-|\Z)))"
    r"-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})"
)
_VERSION_0_CHARACTERS: Final = 55
_KNOWN_FLAGS: Final = 0x03
_KEY: Final = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_STATE_MEMBER: Final = re.compile(
    rf"({_KEY})=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e])\Z"
)
_BAGGAGE_MEMBER: Final = re.compile(
    r"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*="
    r"[ \t]*([\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*)[ \t]*(?:;.*)?\Z"
)


class TraceContext(NamedTuple):
    """Where a request hangs in its caller's trace.

    Attributes:
        parent: ``traceparent`` in version 00, so that it can be sent on.
        state: ``tracestate``; None: there is none.
    """

    parent: str
    state: str | None = None

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.parent[3:35]

    @property
    def headers(self) -> dict[str, str]:
        """What stands for it in an outgoing request."""
        headers = {"traceparent": self.parent}
        if self.state is not None:
            headers["tracestate"] = self.state
        return headers


def read_parent(value: Any) -> str | None:
    """A ``traceparent`` in version 00; None where it is none.

    Flags that this version does not know are cleared ("Versioning of traceparent").
    """
    if not isinstance(value, str) or not 55 <= len(value) <= MAX_PARENT_CHARACTERS:
        return None
    match = _PARENT.match(value)
    if match is None or (value[:2] == "00" and len(value) != _VERSION_0_CHARACTERS):
        return None
    return f"00-{match[1]}-{int(match[2], 16) & _KNOWN_FLAGS:02x}"


def read_state(value: Any) -> str | None:
    """A ``tracestate``; None where it is none, has nothing in it, or a key twice."""
    if not isinstance(value, str) or len(value) > MAX_STATE_CHARACTERS:
        return None
    members: dict[str, str] = {}
    for member in value.split(","):
        text = member.strip(" \t")
        if not text:  # an empty one is allowed
            continue
        match = _STATE_MEMBER.match(text)
        if match is None or match[1] in members:
            return None
        members[match[1]] = match[2]
    if not members or len(members) > MAX_STATE_MEMBERS:
        return None
    return ",".join(f"{key}={each}" for key, each in members.items())


def context_in_meta(meta: Mapping[str, Any]) -> TraceContext | None:
    """What ``_meta`` says; None: nothing that counts."""
    parent = read_parent(meta.get("traceparent"))
    return None if parent is None else TraceContext(parent, read_state(meta.get("tracestate")))


def context_in_headers(headers: HeaderMap) -> TraceContext | None:
    """What the headers of HTTP say; None: nothing that counts."""
    value = headers.get(b"traceparent")
    if value is None or len(value) > MAX_PARENT_CHARACTERS:
        return None
    parent = read_parent(value.decode("latin-1").strip(" \t"))  # two copies are no parent
    if parent is None:
        return None
    state = headers.get(b"tracestate", b"")
    is_short = len(state) <= MAX_STATE_CHARACTERS
    return TraceContext(parent, read_state(state.decode("latin-1")) if is_short else None)


def read_baggage(value: Any, names: Iterable[str]) -> dict[str, str]:
    """The members of a ``baggage`` that have one of these names; of a name the first.

    Properties of members are dropped, and so are members that are malformed or long.
    """
    wanted = frozenset(names)
    if not wanted or not isinstance(value, str) or len(value) > MAX_BAGGAGE_CHARACTERS:
        return {}
    found: dict[str, str] = {}
    for member in value.split(","):
        match = _BAGGAGE_MEMBER.match(member)
        if match is None or match[1] not in wanted or match[1] in found:
            continue
        text = unquote(match[2])
        if len(text) <= MAX_BAGGAGE_VALUE_CHARACTERS and text.isprintable():
            found[match[1]] = text
    return found
