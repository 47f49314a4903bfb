"""Refuses cheaply what no handler should see: Host, Origin, method, media types, size.

Also answers CORS preflights, which carry no credentials and so come before authentication.
"""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from app.http.responses import Headers
from app.protocol.errors import (
    Forbidden,
    MethodNotAllowed,
    MisdirectedRequest,
    NotAcceptable,
    PayloadTooLarge,
    Refusal,
    UnsupportedMediaType,
)
from app.protocol.headers import PARAM_PREFIX, HeaderMap, is_token
from app.settings import ServerSettings, is_loopback_host, normal_origin

ALLOW: Final = "POST, OPTIONS"
ALLOW_SESSIONS: Final = "GET, POST, DELETE, OPTIONS"
"""Where sessions of earlier revisions are served."""

_ALLOWED_HEADERS: Final = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-type",
        b"last-event-id",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"x-api-key",
    }
)
_EXPOSED_HEADERS: Final = b"Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate"
_MAX_REQUESTED_HEADERS: Final = 64
MAX_REMEMBERED: Final = 256
"""Combinations of headers whose admission is remembered; a flood of others only clears them."""

MAX_REMEMBERED_BYTES: Final = 1024
"""A longer combination is no browser's and no SDK's: it is checked each time."""


class Accepts(NamedTuple):
    """Which kinds of response the client takes."""

    json: bool
    stream: bool


EVERYTHING: Final = Accepts(json=True, stream=True)
NO_MEDIA: Final = Accepts(json=False, stream=False)


class Admission(NamedTuple):
    """What the head of an admitted request means for its response.

    Attributes:
        cors: Headers that the response needs.
    """

    cors: Headers
    accepts: Accepts


class Gate:
    """The checks of one deployment.

    Args:
        settings: Host names, origins and bounds.
        sessions: Whether sessions of earlier revisions are served, with their methods.
        section: Where the settings stand, for refusals that say what to change.

    Attributes:
        is_loopback: Whether it is bound to this machine alone.
    """

    def __init__(
        self, settings: ServerSettings, *, sessions: bool = False, section: str = "server"
    ) -> None:
        self._section = section
        self._allow = ALLOW_SESSIONS if sessions else ALLOW
        public = urlsplit(settings.public_url) if settings.public_url else None
        hosts = [*settings.allowed_hosts, settings.host]
        origins = [*settings.allowed_origins]
        if public is not None:
            hosts.append(public.hostname or "")
            origins.append(f"{public.scheme}://{public.netloc}")
        self._max_body_bytes = settings.max_body_bytes
        self._any_host = "*" in hosts
        self._hosts = frozenset(host.strip("[]").lower() for host in hosts)
        self._host_suffixes = tuple(host[1:].lower() for host in hosts if host.startswith("*."))
        self._any_origin = "*" in origins
        self._origins = frozenset(filter(None, map(normal_origin, origins)))
        self.is_loopback = settings.is_loopback
        self._admitted: dict[tuple[bytes | None, ...], Admission] = {}

    def admit(self, headers: HeaderMap) -> Admission:
        """Every check of the head of a POST without repeated headers; the outcome is remembered.

        Raises:
            Refusal: 403, 406, 415 or 421.
        """
        get = headers.get
        key = (  # spelt out: a loop over the names takes twice as long
            get(b"host"),
            get(b"origin"),
            get(b"content-type"),
            get(b"accept"),
            get(b"content-encoding"),
            get(b"transfer-encoding"),
        )
        admission = self._admitted.get(key)
        if admission is None:
            cors = self.check_sender(headers)
            admission = Admission(cors, self.check_media(headers))
            if len(self._admitted) >= MAX_REMEMBERED:
                self._admitted.clear()
            if sum(map(len, filter(None, key))) <= MAX_REMEMBERED_BYTES:
                self._admitted[key] = admission
        return admission

    def check_size(self, headers: HeaderMap) -> None:
        """The announced size.

        Raises:
            PayloadTooLarge: It is over the bound, or not a number.
        """
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > self._max_body_bytes):
            raise self.too_large()

    def check_sender(self, headers: HeaderMap) -> Headers:
        """Host and Origin. Returns the CORS headers that the response needs.

        Raises:
            MisdirectedRequest: The Host is not one of this server's.
            Forbidden: The Origin may not call (Streamable HTTP, "Security & Endpoint").
        """
        self.check_host(headers)
        origin = headers.get(b"origin")
        if origin is None:
            return ()
        if b"origin" in headers.repeated or not self._check_origin(origin):
            raise self._foreign_origin()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED_HEADERS),
            (b"vary", b"Origin"),
        )

    def check_host(self, headers: HeaderMap) -> None:
        """Host alone, for pages that a browser opens: they check who sends by themselves.

        Raises:
            MisdirectedRequest: It is not one of this server's.
        """
        host = headers.get(b"host", b"")
        if not self._any_host and (b"host" in headers.repeated or not self._is_own(host)):
            or_url = " or set public_url" if self._section == "server" else ""
            raise MisdirectedRequest(
                "The Host header does not name this server. If it should, add the name to "
                f"[{self._section}] allowed_hosts{or_url}.",
                setting=f"{self._section}.allowed_hosts",
            )

    def _foreign_origin(self) -> Forbidden:
        if self._section != "server":
            return Forbidden("Web pages of other origins may not call this listener.")
        return Forbidden(
            "The Origin may not call this server. If it should, add it to "
            "[server] allowed_origins.",
            setting="server.allowed_origins",
        )

    def preflight(self, headers: HeaderMap) -> Headers:
        """Headers of the answer to a CORS preflight.

        Any ``Mcp-Param-<token>`` that is asked for is allowed: the answer must not tell which
        parameters hidden tools have.

        Raises:
            MethodNotAllowed: It is not a preflight.
        """
        if b"origin" not in headers or b"access-control-request-method" not in headers:
            raise MethodNotAllowed(f"This endpoint takes {self._allow}.", allow=self._allow)
        wanted = headers.get(b"access-control-request-headers", b"").lower().split(b",")
        names = [name.strip() for name in wanted[:_MAX_REQUESTED_HEADERS]]
        allowed = [
            name
            for name in names
            if name in _ALLOWED_HEADERS
            or (name.startswith(PARAM_PREFIX) and is_token(name[len(PARAM_PREFIX) :]))
        ]
        return (
            (
                b"access-control-allow-methods",
                self._allow.removesuffix(", OPTIONS").encode("ascii"),
            ),
            (b"access-control-allow-headers", b", ".join(allowed)),
            (b"access-control-max-age", b"600"),
        )

    def check_method(self, method: str) -> None:
        """Only POST (Streamable HTTP: GET and DELETE belong to earlier revisions).

        Raises:
            MethodNotAllowed: Anything else.
        """
        if method != "POST":
            raise MethodNotAllowed(
                f"The MCP endpoint takes POST, not {method[:16]}; send one JSON-RPC message per "
                "request.",
                allow=self._allow,
            )

    def check_media(self, headers: HeaderMap) -> Accepts:
        """Media types and codings.

        Raises:
            Refusal: 406 or 415.
        """
        if not is_json(headers.get(b"content-type", b"")):
            raise UnsupportedMediaType("The Content-Type must be application/json.")
        encoding = headers.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
            raise UnsupportedMediaType("Content-Encoding is not supported; send the body as it is.")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise UnsupportedMediaType("Transfer-Encoding other than chunked is not supported.")
        accepts = negotiate(headers.get(b"accept", b""))
        if not (accepts.json or accepts.stream):
            raise NotAcceptable(
                "The Accept header fits nothing that this server sends; list application/json and "
                "text/event-stream."
            )
        return accepts

    def too_large(self) -> Refusal:
        """The refusal of a body beyond the bound."""
        return PayloadTooLarge(f"The body is larger than {self._max_body_bytes} bytes.")

    @property
    def max_body_bytes(self) -> int:
        return self._max_body_bytes

    def _is_own(self, value: bytes) -> bool:
        name = host_name(value.decode("latin-1"))
        return (
            name in self._hosts
            or is_loopback_host(name)
            or (bool(name) and name.endswith(self._host_suffixes))
        )

    def _check_origin(self, value: bytes) -> bool:
        origin = normal_origin(value.decode("latin-1"))
        if origin is None:
            return False
        if self._any_origin or origin in self._origins:
            return True
        return self.is_loopback and is_loopback_host(urlsplit(origin).hostname or "")


def host_name(value: str) -> str:
    """The name in a Host header, in lower case, without port and brackets."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0]


def is_json(content_type: bytes) -> bool:
    """Whether a Content-Type is ``application/json``, with any parameters."""
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def negotiate(accept: bytes) -> Accepts:
    """What an Accept header takes; an empty one takes everything (RFC 9110, section 12.5.1)."""
    if not accept.strip():
        return EVERYTHING
    quality: dict[bytes, bool] = {}
    for item in accept.lower().split(b","):
        media, *parameters = (part.strip() for part in item.split(b";"))
        quality[media] = not any(_is_zero(parameter) for parameter in parameters)

    def takes(kind: bytes, sub: bytes) -> bool:
        # The most specific range decides.
        for media in (kind + b"/" + sub, kind + b"/*", b"*/*"):
            if media in quality:
                return quality[media]
        return False

    return Accepts(json=takes(b"application", b"json"), stream=takes(b"text", b"event-stream"))


def _is_zero(parameter: bytes) -> bool:
    name, _, value = parameter.partition(b"=")
    if name.strip() != b"q":
        return False
    try:
        return float(value) <= 0
    except ValueError:
        return False
