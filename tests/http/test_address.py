"""The client's address, on which rules about networks and the log rely."""

from app.http.address import Addresses
from app.protocol.headers import HeaderMap
from tests.support.cases import rows

PROXY = "10.0.0.1"


@rows(
    "peer, forwarded, address",
    ("no proxy", "192.0.2.1", None, "192.0.2.1"),
    ("a stranger who forwards", "192.0.2.1", "203.0.113.9", "192.0.2.1"),
    ("a proxy", PROXY, "203.0.113.9", "203.0.113.9"),
    ("a proxy that says nothing", PROXY, None, PROXY),
    ("a proxy behind a proxy", PROXY, "203.0.113.9, 10.0.0.2", "203.0.113.9"),
    ("what a client made up", PROXY, "10.9.9.9, 203.0.113.9", "203.0.113.9"),
    ("all are proxies", PROXY, "10.0.0.3, 10.0.0.2", "10.0.0.3"),
    ("with a port", PROXY, "203.0.113.9:4711", "203.0.113.9"),
    ("IPv6", PROXY, "2001:db8::1", "2001:db8::1"),
    ("IPv6 with a port", PROXY, "[2001:db8::1]:99", "2001:db8::1"),
    ("IPv6 in brackets", PROXY, "[2001:db8::1]", "2001:db8::1"),
    ("an IPv4 client by IPv6", PROXY, "::ffff:203.0.113.9", "203.0.113.9"),
    ("a proxy by a socket for both", "::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
    ("a client by a socket for both", "::ffff:192.0.2.1", None, "::ffff:192.0.2.1"),
    ("no word", PROXY, "unknown", None),
    ("an obfuscated name", PROXY, "_hidden", None),
    ("nothing at the end", PROXY, "203.0.113.9,", None),
    ("an IPv6 scope", PROXY, "fe80::1%eth0", None),
    ("another spelling", PROXY, "0x7f.1", None),
    ("a socket without addresses", None, "203.0.113.9", None),
)
def test_the_address_is_what_the_nearest_trusted_proxy_saw(
    peer: str | None, forwarded: str | None, address: str | None
) -> None:
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    scope = {"client": None if peer is None else (peer, 4711)}

    assert Addresses(["10.0.0.0/8"]).of(scope, HeaderMap(headers)) == address
