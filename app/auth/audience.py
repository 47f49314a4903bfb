"""For whom a token was made (RFC 8707, section 2; Authorization, "Token Audience Binding")."""

import re
from collections.abc import Iterable
from typing import Any, Final

# ASCII alone: in Unicode, letters that are no ASCII have ASCII as their lower case.
_URL: Final = re.compile(
    r"(https?)://(\[[0-9A-F:.]+\]|[A-Z0-9._~%-]+)(?::([0-9]{1,5}))?(/[!-~]*)?\Z",
    re.ASCII | re.IGNORECASE,
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


class Audiences:
    """What may stand in ``aud``.

    Args:
        resource: This server's own URL, which counts in every spelling that means the same.
        others: Identifiers that count as they are written.
    """

    def __init__(self, resource: str, others: Iterable[str] = ()) -> None:
        self.resource = normal_resource(resource)
        self.others = frozenset((resource, *others))

    def accept(self, claim: Any) -> bool:
        """Whether the claim ``aud``, a text or a list of texts, names one (RFC 7519, 4.1.3)."""
        named = [claim] if isinstance(claim, str) else claim
        if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
            return False
        return any(
            each in self.others or (self.resource and normal_resource(each) == self.resource)
            for each in named
        )


def normal_resource(url: str) -> str | None:
    """One spelling for URLs that differ in what does not matter; None if it is no http(s) URL.

    Scheme and host have no case, a default port need not be said (RFC 3986, section 6.2), and a
    slash at the end makes no other resource here.
    """
    match = _URL.match(url)
    if match is None or "?" in url or "#" in url:
        return None
    scheme, host, port, path = match.groups()
    scheme = scheme.lower()
    where = "" if port is None or port == _DEFAULT_PORTS[scheme] else f":{port}"
    return f"{scheme}://{host.lower()}{where}{(path or '').removesuffix('/')}"
