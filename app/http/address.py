"""Who sent a request, as far as that can be trusted."""

import ipaddress
from collections.abc import Sequence

from app.http.responses import Scope
from app.protocol.headers import HeaderMap


class Addresses:
    """Finds the client's address; forwarded headers count only from configured proxies.

    Args:
        trusted: Addresses or networks of the proxies in front.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = tuple(ipaddress.ip_network(network, strict=False) for network in trusted)

    def of(self, scope: Scope, headers: HeaderMap) -> str | None:
        """The address of the client, or of the nearest hop that cannot be looked behind."""
        client = scope.get("client")
        peer: str | None = client[0] if client else None
        if not self._trusted or peer is None or not self._is_trusted(peer):
            return peer
        hops = headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")
        for hop in reversed(hops):
            address = hop.strip()
            if not _is_address(address):
                return peer
            peer = address
            if not self._is_trusted(address):
                break
        return peer

    def _is_trusted(self, address: str) -> bool:
        if not _is_address(address):
            return False
        return any(ipaddress.ip_address(address) in network for network in self._trusted)


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    # A scope may be any text, and means nothing here.
    return not (isinstance(address, ipaddress.IPv6Address) and address.scope_id)
