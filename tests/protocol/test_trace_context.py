"""W3C Trace Context and Baggage: what counts, and that nothing else is sent on."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.protocol.headers import HeaderMap
from app.protocol.trace_context import (
    TraceContext,
    context_in_headers,
    context_in_meta,
    read_baggage,
    read_parent,
    read_state,
)
from tests.support.cases import rows

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
SENT_ON = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[0-3]\Z")


@rows(
    "sent, seen",
    ("as it should be", PARENT, PARENT),
    ("not sampled", f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
    ("a random trace id", f"00-{TRACE}-{SPAN}-03", f"00-{TRACE}-{SPAN}-03"),
    ("flags of the future", f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-03"),
    ("a later version", f"cc-{TRACE}-{SPAN}-01", PARENT),
    ("a later version with more", f"cc-{TRACE}-{SPAN}-01-what-the-future", PARENT),
    ("a later version with more and no hyphen", f"cc-{TRACE}-{SPAN}-01.what", None),
    ("version 00 with more", f"{PARENT}-what", None),
    ("version 00 with a hyphen", f"{PARENT}-", None),
    ("version ff", f"ff-{TRACE}-{SPAN}-01", None),
    ("upper case", PARENT.upper(), None),
    ("a trace of zeros", f"00-{'0' * 32}-{SPAN}-01", None),
    ("a span of zeros", f"00-{TRACE}-{'0' * 16}-01", None),
    ("too short", PARENT[:-1], None),
    ("a line break behind", PARENT + "\n", None),
    ("blanks around", f" {PARENT} ", None),
    ("too long", f"cc-{TRACE}-{SPAN}-01-" + "x" * 500, None),
    ("other digits", f"00-{TRACE[:-1]}\u0663-{SPAN}-01", None),
    ("empty", "", None),
    ("a number", 1, None),
    ("nothing", None, None),
    ("a list", [PARENT], None),
)
def test_a_parent_counts_if_it_is_well_formed(sent: Any, seen: str | None) -> None:
    assert read_parent(sent) == seen


@rows(
    "sent, seen",
    ("one member", "rojo=00f067aa0ba902b7", "rojo=00f067aa0ba902b7"),
    ("several", "a=1,b=2", "a=1,b=2"),
    ("blanks and empty members", " a=1 ,, b=2\t,", "a=1,b=2"),
    ("keys of tenants", "0t@system=x,a_-*/b=~", "0t@system=x,a_-*/b=~"),
    ("blanks within a value", "a=x y", "a=x y"),
    ("a key twice", "a=1,a=2", None),
    ("upper case", "A=1", None),
    ("no key", "=1", None),
    ("no value", "a=", None),
    ("no sign", "a", None),
    ("two signs", "a=b=c", None),
    ("a control character", "a=\x1b", None),
    ("a line break", "a=1\n", None),
    ("not ASCII", "a=\xe9", None),
    ("33 members", ",".join(f"k{number}=v" for number in range(33)), None),
    ("32 members", ",".join(f"k{number}=v" for number in range(32)), "whole"),
    ("513 characters", "a=" + "x" * 511, None),
    ("a long value", "a=" + "x" * 257, None),
    ("only empty members", ",,", None),
    ("empty", "", None),
    ("a number", 7, None),
)
def test_a_state_counts_if_all_of_it_is_well_formed(sent: Any, seen: str | None) -> None:
    assert read_state(sent) == (sent if seen == "whole" else seen)


@rows(
    "sent, seen",
    ("one of those", "tier=gold", {"tier": "gold"}),
    ("others", "user=1,tier=gold,x=y", {"tier": "gold"}),
    ("blanks", " tier\t= gold , id =7", {"tier": "gold", "id": "7"}),
    ("properties", "tier=gold;p=1;q", {"tier": "gold"}),
    ("encoded", "tier=a%20b%2C%C3%BC", {"tier": "a b,ü"}),
    ("a plus", "tier=a+b", {"tier": "a+b"}),
    ("twice", "tier=1,tier=2", {"tier": "1"}),
    ("no value", "tier=", {"tier": ""}),
    ("no sign", "tier", {}),
    ("another case", "Tier=1", {}),
    ("blanks within", "tier=a b", {}),
    ("quotes", 'tier="a"', {}),
    ("not ASCII", "tier=ü", {}),
    ("a line break", "tier=a\nb", {}),
    ("an encoded line break", "tier=a%0d%0ab", {}),
    ("an encoded control character", "tier=%1b", {}),
    ("bytes that are no text", "tier=%ff", {"tier": "\ufffd"}),
    ("a long value", "tier=" + "x" * 257, {}),
    ("a value as long as may be", "tier=" + "x" * 256, {"tier": "x" * 256}),
    ("too long", "tier=1," + "x" * 8192, {}),
    ("a number", 7, {}),
)
def test_of_baggage_the_keys_count_that_are_let_through(sent: Any, seen: dict[str, str]) -> None:
    assert read_baggage(sent, ["tier", "id"]) == seen
    assert read_baggage(sent, []) == {}


def test_a_state_counts_beside_a_parent_alone() -> None:
    good = {"traceparent": PARENT, "tracestate": "a=1"}
    assert context_in_meta(good) == TraceContext(PARENT, "a=1")
    assert context_in_meta({**good, "tracestate": "A"}) == TraceContext(PARENT, None)
    assert context_in_meta({**good, "traceparent": "x"}) is None


@rows(
    "raw, seen",
    ("both", [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=1")], "a=1"),
    ("blanks around", [(b"traceparent", b" \t" + PARENT.encode() + b" ")], None),
    (
        "a state in two headers",
        [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")],
        "a=1,b=2",
    ),
)
def test_headers_say_the_same(raw: list[tuple[bytes, bytes]], seen: str | None) -> None:
    assert context_in_headers(HeaderMap(raw)) == TraceContext(PARENT, seen)


@rows(
    "raw",
    ("nothing", []),
    ("a state alone", [(b"tracestate", b"a=1")]),
    ("two parents", [(b"traceparent", PARENT.encode())] * 2),
    ("raw bytes", [(b"traceparent", b"\xff" * 55)]),
)
def test_headers_that_say_nothing(raw: list[tuple[bytes, bytes]]) -> None:
    assert context_in_headers(HeaderMap(raw)) is None


pieces = st.sampled_from(
    [TRACE, SPAN, "00", "01", "ff", "-", "0" * 16, "\n", " ", "é", "A", "=", ","]
)
texts = st.one_of(st.text(), st.lists(pieces, max_size=12).map("".join))


@given(texts)
def test_whatever_comes_what_is_sent_on_is_well_formed(text: str) -> None:
    parent, state = read_parent(text), read_state(text)
    assert parent is None or SENT_ON.match(parent)
    assert parent is None or read_parent(parent) == parent
    assert state is None or (state.isascii() and state.isprintable() and read_state(state) == state)
    for key, value in read_baggage(f"tier={text}", ["tier"]).items():
        assert key == "tier"
        assert value.isprintable()
        assert len(value) <= 256
