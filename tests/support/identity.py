"""An OpenID provider as a process: `oidc-provider` from npm, driven without a browser."""

import base64
import hashlib
import json
import secrets
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2

from tests.support import nodejs

HERE: Final = Path(__file__).resolve().parents[1] / "identity"
STOP_S: Final = 10.0
REQUEST_S: Final = 10.0
REDIRECTS: Final = 10
CALLBACK: Final = "http://127.0.0.1/callback"

RESOURCE: Final = "https://tools.example.com/mcp"
SCOPES: Final = ("tools:read", "tools:write", "tools:admin", "finance:read", "finance:write")

Json = Any

ACCOUNTS: Final[Mapping[str, Mapping[str, Json]]] = {
    "alice": {"roles": ["accountant"], "tenant": "north", "clearance": "high"},
    "bob": {"roles": ["clerk"], "tenant": "south", "clearance": "low"},
}
"""Who can log in, and what their access tokens say about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A client of the provider.

    Attributes:
        secret: Of a confidential client; None: a public one, to which people log in.
        redirects: Where people come back to; a confidential client without gets tokens for itself.
        format: Of its access tokens, `jwt` or `opaque`.
        algorithm: That signs them.
        claims: What tokens of its own say, besides what is standard.
    """

    id: str
    secret: str | None = None
    redirects: Sequence[str] = ()
    format: str = "jwt"
    algorithm: str = "RS256"
    claims: Mapping[str, Json] | None = None

    def as_json(self) -> dict[str, Json]:
        """As `provider.mjs` reads it."""
        where = self.redirects or (() if self.secret else (CALLBACK,))
        redirects = {"redirect_uris": where} if where else {}
        return {
            "id": self.id,
            **({"secret": self.secret} if self.secret else {}),
            **redirects,
            "format": self.format,
            "algorithm": self.algorithm,
            "claims": dict(self.claims or {}),
        }


MACHINE: Final = Application(id="machine", secret="machine's own", claims={"roles": ["robot"]})
MACHINE_ES256: Final = Application(id="machine-es256", secret="another's", algorithm="ES256")
APP: Final = Application(id="app")
APP_ES256: Final = Application(id="app-es256", algorithm="ES256")
APP_OPAQUE: Final = Application(id="app-opaque", format="opaque")
RESOURCE_SERVER: Final = Application(id="resource-server", secret="asks about tokens")
"""As whom the server under test introspects."""

# Of a client on this machine, the provider takes any port.
_PAGES: Final = ("http://127.0.0.1/elicit/callback",)
PAGES: Final = Application(id="pages", secret="of: the pages & more", redirects=_PAGES)
PAGES_PUBLIC: Final = Application(id="pages-public", redirects=_PAGES)
"""As whom the server under test logs users in to its pages."""

APPLICATIONS: Final = (
    *(MACHINE, MACHINE_ES256, APP, APP_ES256, APP_OPAQUE),
    *(RESOURCE_SERVER, PAGES, PAGES_PUBLIC),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What the token endpoint gave."""

    access: str
    id: str | None = None
    refresh: str | None = None


class IdentityProvider:
    """Use as a context manager, or call `start` and `stop`.

    Args:
        scopes: That any resource knows.

    Attributes:
        issuer: Its identifier and address.
    """

    def __init__(
        self,
        *,
        accounts: Mapping[str, Mapping[str, Json]] = ACCOUNTS,
        scopes: Sequence[str] = SCOPES,
    ) -> None:
        self._config = {
            "accounts": accounts,
            "default_account": next(iter(accounts)),
            "scopes": scopes,
            "clients": [application.as_json() for application in APPLICATIONS],
        }
        self._process: subprocess.Popen[str] | None = None
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - until `stop`
        self.issuer = ""

    # Life

    def start(self) -> Self:
        """Start the process, and wait until it serves."""
        nodejs.install(HERE)
        self._process = subprocess.Popen(
            [nodejs.NODE, HERE / "provider.mjs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
        )
        self.issuer = self._command(self._config)["issuer"]
        return self

    def stop(self) -> None:
        """End it: it must do so by itself when nobody can command it any more."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate(timeout=STOP_S)
            finally:
                process.kill()
                process.wait()
        self._said.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self, value: Json) -> Json:
        process = self._process
        assert process is not None and process.stdin and process.stdout, "it does not run"
        process.stdin.write(json.dumps(value) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._said.seek(0)
            raise AssertionError(f"the provider ended:\n{self._said.read()}")
        return json.loads(line)

    def rotate_keys(self, *, replace: bool = False) -> list[str]:
        """Sign with new keys from now on; the old ones stay published unless they are replaced.

        Returns:
            The names (`kid`) of all published keys, the new ones first.
        """
        kids: list[str] = self._command({"rotate": "replace" if replace else "add"})["kids"]
        return kids

    # What a server is configured with

    def settings(self, **changes: Json) -> dict[str, Json]:
        """A table of `[[auth.issuers]]`, patient with a provider on a busy machine."""
        return {"issuer": self.issuer, "timeout_s": 30, **changes}

    def introspection_settings(self, **changes: Json) -> dict[str, Json]:
        """The table `introspection` of it."""
        client = RESOURCE_SERVER
        return {"client_id": client.id, "client_secret": client.secret, **changes}

    def browser_settings(self, client: Application = PAGES, **changes: Json) -> dict[str, Json]:
        """The table `browser` of it."""
        secret = {"client_secret": client.secret} if client.secret else {}
        return {"client_id": client.id, **secret, **changes}

    # Tokens

    def token(
        self, scope: str = "", *, resource: str = RESOURCE, client: Application = MACHINE
    ) -> str:
        """A token of a client for itself (RFC 6749, section 4.4)."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        return self._tokens(form, client).access

    def log_in(
        self,
        account: str,
        scope: str = "tools:read",
        *,
        resource: str = RESOURCE,
        client: Application = APP,
    ) -> Tokens:
        """Tokens of a person, by the code flow with PKCE."""
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode("ascii")).digest()
        query = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": CALLBACK,
            "scope": scope,
            "resource": resource,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii"),
            "code_challenge_method": "S256",
        }
        if "offline_access" in scope.split():
            query["prompt"] = "consent"
        answer = visit(f"{self.issuer}/auth?{urlencode(query)}", account)
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": CALLBACK,
            "code_verifier": verifier,
        }
        return self._tokens(form, client)

    def refresh(self, tokens: Tokens, *, client: Application = APP) -> Tokens:
        """New tokens of the same person."""
        assert tokens.refresh is not None, "no refresh token: log in with offline_access"
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
        return self._tokens(form, client)

    def revoke(self, token: str, *, client: Application) -> None:
        """Let an opaque token count no longer (RFC 7009)."""
        self._post("/token/revocation", {"token": token}, client)

    def _tokens(self, form: Mapping[str, str], client: Application) -> Tokens:
        given = self._post("/token", form, client).json()
        return Tokens(
            access=given["access_token"],
            id=given.get("id_token"),
            refresh=given.get("refresh_token"),
        )

    def _post(self, path: str, form: Mapping[str, str], client: Application) -> httpx2.Response:
        data = {name: value for name, value in form.items() if value}
        auth = None if client.secret is None else (client.id, client.secret)
        if auth is None:
            data["client_id"] = client.id
        response = httpx2.post(self.issuer + path, data=data, auth=auth, timeout=REQUEST_S)
        assert response.status_code == 200, f"{response.status_code}: {response.text}"
        return response


def visit(url: str, account: str) -> dict[str, str]:
    """Be the browser in which a person logs in and consents.

    Args:
        url: Of the authorization endpoint, with its query.
        account: The person.

    Returns:
        The query with which the provider sends the browser back to the client.

    Raises:
        AssertionError: It was not sent back, or with an error.
    """
    home = urlsplit(url).netloc
    at = f"{url}&{urlencode({'login_hint': account})}"
    with httpx2.Client(timeout=REQUEST_S) as browser:
        for _ in range(REDIRECTS):
            response = browser.get(at)
            assert response.is_redirect, f"{response.status_code}: {response.text[:1000]}"
            at = urljoin(at, response.headers["location"])
            if urlsplit(at).netloc != home:
                break
    query = {name: values[0] for name, values in parse_qs(urlsplit(at).query).items()}
    assert "code" in query, query
    return query
