"""Who sent a request, as far as that can be trusted."""

import ipaddress
from collections.abc import Sequence

from app.http.responses import Scope
from app.protocol.headers import HeaderMap

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Addresses:
    """Finds the client's address; forwarded headers count only from configured proxies.

    Args:
        trusted: Addresses or networks of the proxies in front.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = tuple(ipaddress.ip_network(network, strict=False) for network in trusted)

    def of(self, scope: Scope, headers: HeaderMap) -> str | None:
        """The address of the client, as the nearest proxy that is trusted saw it.

        None where that proxy says something that is no address: rules about networks must not
        take the proxy for its client.
        """
        client = scope.get("client")
        peer: str | None = client[0] if client else None
        if not self._trusted or peer is None:
            return peer
        address = _address(peer)
        if address is None or not self._is_trusted(address):
            return peer
        forwarded = headers.get(b"x-forwarded-for")
        if forwarded is None:
            return str(address)
        for hop in reversed(forwarded.decode("latin-1").split(",")):
            address = _address(hop.strip())
            if address is None:
                return None
            if not self._is_trusted(address):
                break
        return str(address)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _address(text: str) -> Address | None:
    """An address as proxies write it: alone, or with a port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return None  # a scope may be any text, and means nothing here
        # A socket for both families shows an IPv4 peer as ::ffff:10.0.0.1 (RFC 4291, 2.5.5.2).
        return address.ipv4_mapped or address
    return address
