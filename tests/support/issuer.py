"""An authorization server on this machine, in a thread, that can misbehave on purpose.

It publishes metadata (RFC 8414 and OpenID Connect), a JWK Set and introspection (RFC 7662), redeems
codes, makes tokens, and counts what it is asked.
"""

import base64
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote_plus, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

Json = Any
RESOURCE: Final = "http://127.0.0.1:8000/mcp"
HUGE: Final = 2 * 1024 * 1024
"""Bytes of a body that no client should read to its end."""

OAUTH: Final = "/.well-known/oauth-authorization-server{path}"
OPENID: Final = "/.well-known/openid-configuration{path}"
OPENID_APPENDED: Final = "{path}/.well-known/openid-configuration"


class Behaviour(Enum):
    """What a path does instead of its duty."""

    DROP = "closes the connection without a word"
    HOLD = "does its duty, but not before `recover`"
    HANG = "accepts the request and never answers"
    ERROR = "500"
    NOT_FOUND = "404"
    REDIRECT = "302 to `redirect_to`"
    HUGE = "200 with an endless body"
    HTML = "200 with a login page"
    NO_OBJECT = "200 with a JSON list"
    EMPTY = "200 with an empty JSON object"


class SigningKey:
    """A private key with the JWK that is published for it."""

    def __init__(self, algorithm: str, kid: str | None, number: int) -> None:
        self.algorithm, self.kid = algorithm, kid
        self.private = _private_key(_family(algorithm), number)
        signer: Any = jwt.get_algorithm_by_name(algorithm)
        self.jwk: dict[str, Json] = signer.to_jwk(self.private.public_key(), as_dict=True)
        # Some issuers publish key_ops, and some neither `alg` nor `use`; the plain form is this.
        self.jwk.pop("key_ops", None)
        self.jwk |= {"use": "sig", "alg": algorithm} | ({"kid": kid} if kid else {})


class Issuer:
    """Use as a context manager, or call `start` and `stop`.

    Args:
        audience: `aud` of its tokens.
        algorithm: of its first key.
        path: of its identifier, as `/realms/one`.
        clock: POSIX time for `iat` and `exp`.

    Attributes:
        keys: What it signs with: the last one, unless told otherwise.
        published: JWKs that are in the set besides those of `keys`.
        metadata: What its metadata says instead of the usual; None removes a member.
        metadata_kinds: Where its metadata can be had.
        fetches: How often it was asked for `metadata`, `keys`, `introspection` and `token`.
        paths: Every path that was asked for, in order.
        opaque: Answers to introspection by token.
        statuses: With which HTTP status introspection answers to some tokens instead.
        client: Identifier and secret that introspection demands.
        id_token: What the token endpoint gives for any code; None: 400.
        redeemed: Forms that were sent there, each with its `authorization`.
        redirect_to: Where `Behaviour.REDIRECT` sends.
    """

    def __init__(
        self,
        *,
        audience: str = RESOURCE,
        algorithm: str = "RS256",
        path: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.audience, self.path, self.clock = audience, path, clock
        self._made = 0
        self._algorithm = algorithm
        self.keys: list[SigningKey] = []
        self.published: list[Json] = []
        self.metadata: dict[str, Json] = {}
        self.metadata_kinds = {OAUTH, OPENID, OPENID_APPENDED}
        self.fetches: Counter[str] = Counter()
        self.paths: list[str] = []
        self.opaque: dict[str, dict[str, Json]] = {}
        self.statuses: dict[str, int] = {}
        self.client = ("mcp", "s3cret / with : signs & ümlaut")
        self.id_token: Json = None
        self.redeemed: list[dict[str, str]] = []
        self.redirect_to = "http://127.0.0.1:9/elsewhere"
        self.cache_control: str | None = None
        self._behaviours: dict[str, Behaviour] = {}
        self._released = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.add_key()

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; after a `stop`, on the same port again."""
        self._released.clear()
        self._server = _Server(("127.0.0.1", self._port), _handler_of(self))
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="issuer", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections, as a machine that is down."""
        self._released.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
        self._server = self._thread = None

    # Where

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Its identifier."""
        return self.origin + self.path

    @property
    def jwks_url(self) -> str:
        return self.origin + "/keys"

    @property
    def introspection_url(self) -> str:
        return self.origin + "/introspect"

    def settings(self, **changes: Json) -> dict[str, Json]:
        """A table of `[[auth.issuers]]`."""
        return {"issuer": self.url, **changes}

    def introspection_settings(self, **changes: Json) -> dict[str, Json]:
        """The table `introspection` of it."""
        return {"client_id": self.client[0], "client_secret": self.client[1], **changes}

    # Keys and tokens

    def add_key(self, algorithm: str | None = None, *, kid: str | None = "") -> SigningKey:
        """One key more, which signs from now on; `kid` None: one without a name."""
        self._made += 1
        name = f"key-{self._made}" if kid == "" else kid
        key = SigningKey(algorithm or self._algorithm, name, self._made)
        self.keys.append(key)
        return key

    def rotate(self, algorithm: str | None = None) -> SigningKey:
        """One new key in place of all others."""
        self.keys.clear()
        return self.add_key(algorithm)

    def claims(self, **claims: Json) -> dict[str, Json]:
        """The usual claims with some replaced; None removes one."""
        now = int(self.clock())
        usual = {
            "iss": self.url,
            "sub": "alice",
            "aud": self.audience,
            "exp": now + 3600,
            "iat": now,
            "jti": secrets.token_hex(8),
        }
        return {name: value for name, value in (usual | claims).items() if value is not None}

    def token(
        self,
        *,
        header: Mapping[str, Json] | None = None,
        key: SigningKey | None = None,
        **claims: Json,
    ) -> str:
        """A signed token; None removes a claim or a member of the header.

        Claims whose names are no identifiers: `token(**{"urn:x": 1})`.
        """
        key = key or self.keys[-1]
        members = {"alg": key.algorithm, "typ": "at+jwt", "kid": key.kid, **(header or {})}
        members = {name: value for name, value in members.items() if value is not None}
        algorithm: Any = jwt.get_algorithm_by_name(key.algorithm)
        return jws(
            members,
            json.dumps(self.claims(**claims)).encode(),
            lambda data: algorithm.sign(data, key.private),
        )

    def opaque_token(self, **answer: Json) -> str:
        """A token that only introspection explains; None removes a member of the answer."""
        token = secrets.token_urlsafe(24)
        usual = {"active": True, "token_type": "Bearer", **self.claims()}
        merged = (usual | answer).items()
        self.opaque[token] = {name: value for name, value in merged if value is not None}
        return token

    # Misbehaviour

    def behave(self, behaviour: Behaviour, *whats: str) -> None:
        """Misbehave on `metadata`, `keys` and `introspection`, or on those named, as `token`."""
        for what in whats or ("metadata", "keys", "introspection"):
            self._behaviours[what] = behaviour

    def recover(self) -> None:
        """Do one's duty again, and let go whom `Behaviour.HOLD` or `Behaviour.HANG` holds."""
        self._behaviours.clear()
        self._released.set()
        self._released = threading.Event()

    # Answers; called by the threads of the server

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        path = urlsplit(handler.path).path
        self.paths.append(path)
        what, duty = self._duty(path)
        self.fetches[what] += 1
        behaviour = self._behaviours.get(what)
        if behaviour is Behaviour.HOLD:
            self._released.wait()
        elif behaviour is not None:
            self._misbehave(behaviour, handler)
            return
        if duty is None:
            _send(handler, 404, b"{}")
        else:
            status, value = duty(handler, body)
            _send(handler, status, json.dumps(value).encode(), cache_control=self.cache_control)

    def _duty(self, path: str) -> tuple[str, "_Duty | None"]:
        if path == "/keys":
            return "keys", lambda *_: (200, self.jwks())
        if path == "/introspect":
            return "introspection", self._introspect
        if path == "/token":
            return "token", self._redeem
        if "/.well-known/" in path:
            known = {kind.format(path=self.path) for kind in self.metadata_kinds}
            return "metadata", (lambda *_: (200, self._metadata())) if path in known else None
        return "other", None

    def jwks(self) -> Json:
        """The JWK Set as published."""
        return {"keys": [*self.published, *(key.jwk for key in self.keys)]}

    def _metadata(self) -> Json:
        usual: dict[str, Json] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "jwks_uri": self.jwks_url,
            "introspection_endpoint": self.introspection_url,
            "response_types_supported": ["code"],
        }
        merged = (usual | self.metadata).items()
        return {name: value for name, value in merged if value is not None}

    def _introspect(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Json]:
        scheme, _, encoded = (handler.headers.get("authorization") or "").partition(" ")
        user, _, secret = base64.b64decode(encoded).decode("ascii").partition(":")
        # client_secret_basic form-encodes both parts first (RFC 6749, section 2.3.1).
        if scheme != "Basic" or (unquote_plus(user), unquote_plus(secret)) != self.client:
            return 401, {"error": "invalid_client"}
        token = parse_qs(body.decode("ascii")).get("token", [""])[0]
        if token in self.statuses:
            return self.statuses[token], {"error": "invalid_request"}
        return 200, self.opaque.get(token, {"active": False})

    def _redeem(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Json]:
        form = {name: values[0] for name, values in parse_qs(body.decode("ascii")).items()}
        form["authorization"] = handler.headers.get("authorization") or ""
        self.redeemed.append(form)
        if self.id_token is None:
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self.id_token}

    def _misbehave(self, behaviour: Behaviour, handler: BaseHTTPRequestHandler) -> None:
        match behaviour:
            case Behaviour.DROP:
                handler.close_connection = True
            case Behaviour.HANG:
                self._released.wait()
            case Behaviour.ERROR:
                _send(handler, 500, b"secret stack trace")
            case Behaviour.NOT_FOUND:
                _send(handler, 404, b"{}")
            case Behaviour.REDIRECT:
                _send(handler, 302, b"", location=self.redirect_to)
            case Behaviour.HUGE:
                _send(handler, 200, b'{"keys": [' + b" " * HUGE + b"]}")
            case Behaviour.HTML:
                _send(handler, 200, b"<html>log in", kind="text/html")
            case Behaviour.NO_OBJECT:
                _send(handler, 200, b"[1, 2]")
            case Behaviour.EMPTY:
                _send(handler, 200, b"{}")


_Duty = Callable[[BaseHTTPRequestHandler, bytes], tuple[int, Json]]


def jws(header: Mapping[str, Json], payload: bytes, sign: Callable[[bytes], bytes]) -> str:
    """A compact JWS of exactly these members, however wrong."""
    head = encoded(json.dumps(dict(header)).encode())
    data = f"{head}.{encoded(payload)}".encode("ascii")
    return f"{data.decode('ascii')}.{encoded(sign(data))}"


def encoded(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _family(algorithm: str) -> str:
    return "RSA" if algorithm[:2] in {"RS", "PS"} else algorithm


@cache  # an RSA key takes a while; tests of one process share them by number
def _private_key(family: str, number: int) -> Any:
    del number
    match family:
        case "RSA":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            return ec.generate_private_key(curves[family])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what the tests are about."""


def _handler_of(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # HTTP/1.0: a connection per request, so that `stop` leaves none open.
        def do_GET(self) -> None:
            issuer.answer(self, b"")

        def do_POST(self) -> None:
            issuer.answer(self, self.rfile.read(int(self.headers.get("content-length") or 0)))

        def log_message(self, *args: Any) -> None: ...

    return Handler


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    *,
    kind: str = "application/json",
    location: str | None = None,
    cache_control: str | None = None,
) -> None:
    with suppress(OSError):  # the client has gone
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
        for name, value in (("location", location), ("cache-control", cache_control)):
            if value is not None:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
