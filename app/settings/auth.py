"""``[auth]``: whom to believe, and what nobody's rule decides."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AwareDatetime, Field, field_validator, model_validator
from pydantic.types import SecretStr

from app.settings.base import Seconds, Section, is_loopback_host
from app.settings.policies import Name, ScopeToken

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Asymmetric ones alone: with a shared secret whoever can verify a token can also make one."""

ClaimPath = Annotated[
    tuple[str, ...],
    Field(description="Names of claims or dotted paths into them; the first that is there counts."),
]


class ClaimSettings(Section):
    """``claims`` of an issuer: where its tokens say what."""

    subject: Annotated[str, Field(description="Who it is; stable and never given to another.")] = (
        "sub"
    )
    scopes: ClaimPath = ("scope", "scp")
    roles: ClaimPath = ("roles", "realm_access.roles")
    clearance: ClaimPath = ("clearance",)
    tenant: ClaimPath = ("tenant", "tid", "org_id")
    approvals: ClaimPath = ("approvals",)


class IntrospectionSettings(Section):
    """``introspection`` of an issuer: it is asked about tokens that are not JWTs (RFC 7662)."""

    url: Annotated[str | None, Field(description="Default: what discovery says.")] = None
    client_id: Annotated[str, Field(min_length=1, description="As whom this server asks.")]
    client_secret: Annotated[
        SecretStr | None, Field(description="And with which secret; better in a file.")
    ] = None
    client_secret_file: Annotated[
        Path | None, Field(description="A file with that secret, such as a mounted one.")
    ] = None
    dedicated: Annotated[
        bool,
        Field(
            description="This issuer makes tokens for this server alone, so that an answer "
            "without `aud` will do."
        ),
    ] = False
    cache_s: Annotated[
        Seconds, Field(description="An answer counts this long, and never beyond its `exp`.")
    ] = 60.0

    @field_validator("url")
    @classmethod
    def _url_is_safe(cls, value: str | None) -> str | None:
        return value if value is None else safe_url(value)

    @model_validator(mode="after")
    def _has_one_secret(self) -> Self:
        if (self.client_secret is None) == (self.client_secret_file is None):
            raise ValueError("needs either client_secret or client_secret_file")
        return self


class BrowserSettings(Section):
    """``browser`` of an issuer: its users log in to the pages of this server (OpenID Connect)."""

    client_id: Annotated[str, Field(min_length=1, description="As whom this server logs them in.")]
    client_secret: Annotated[
        SecretStr | None, Field(description="And with which secret, if any; better in a file.")
    ] = None
    client_secret_file: Annotated[
        Path | None, Field(description="A file with that secret, such as a mounted one.")
    ] = None
    scopes: Annotated[
        tuple[ScopeToken, ...], Field(description="What it asks for; `openid` must be there.")
    ] = ("openid",)
    subject: Annotated[
        str | None,
        Field(
            description="The claim of its ID tokens that says the same as `claims.subject` of "
            "its access tokens. Default: the claim of that name."
        ),
    ] = None
    authorization_url: Annotated[
        str | None, Field(description="Where users log in. Default: what discovery says.")
    ] = None
    token_url: Annotated[
        str | None, Field(description="Where a code is redeemed. Default: what discovery says.")
    ] = None

    @field_validator("authorization_url", "token_url")
    @classmethod
    def _urls_are_safe(cls, value: str | None) -> str | None:
        return value if value is None else safe_url(value, query=True)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.client_secret is not None and self.client_secret_file is not None:
            raise ValueError("client_secret and client_secret_file are two answers; keep one")
        if "openid" not in self.scopes:
            raise ValueError("scopes must hold openid: without it there is no ID token")
        return self


class IssuerSettings(Section):
    """``[[auth.issuers]]``: an authorization server whose tokens are accepted."""

    issuer: Annotated[
        str, Field(description="Its identifier, as `iss` in its tokens: compared as it stands.")
    ]
    discovery: Annotated[
        bool,
        Field(description="Find what is not set here in its metadata (RFC 8414, OpenID Connect)."),
    ] = True
    jwks_url: Annotated[
        str | None, Field(description="Where its keys are. Default: what discovery says.")
    ] = None
    keys_file: Annotated[
        Path | None, Field(description="A JWK Set in a file, instead of keys from the network.")
    ] = None
    introspection: Annotated[
        IntrospectionSettings | None,
        Field(description="How to ask about tokens that are not JWTs (RFC 7662)."),
    ] = None
    browser: Annotated[
        BrowserSettings | None,
        Field(description="How its users log in to the pages of this server."),
    ] = None
    algorithms: Annotated[
        tuple[Algorithm, ...],
        Field(min_length=1, description="Signatures that are accepted; asymmetric ones alone."),
    ] = ("RS256", "PS256", "ES256", "EdDSA")
    audiences: Annotated[
        tuple[str, ...],
        Field(description="Accepted in `aud` besides this server's own URL, public_url + /mcp."),
    ] = ()
    token_types: Annotated[
        tuple[str, ...],
        Field(description="Accepted values of `typ`; a token without one counts as a JWT."),
    ] = ("at+jwt", "JWT")
    claims: Annotated[
        ClaimSettings, Field(description="Where its tokens say who the caller is and may what.")
    ] = ClaimSettings()
    leeway_s: Annotated[
        float, Field(ge=0, le=300, description="How far its clock may be from ours.")
    ] = 30.0
    refresh_s: Annotated[
        Seconds, Field(description="Its keys are fetched again this often, before they are needed.")
    ] = 3600.0
    cooldown_s: Annotated[
        Seconds,
        Field(description="An unknown `kid` leads to one fetch in this time, however many come."),
    ] = 30.0
    grace_s: Annotated[
        Seconds,
        Field(description="While it is down, keys go on for this long after their time; then 503."),
    ] = 86_400.0
    timeout_s: Annotated[
        float, Field(gt=0, le=60, description="A request to it may take this long.")
    ] = 5.0

    @field_validator("issuer")
    @classmethod
    def _issuer_is_safe(cls, value: str) -> str:
        return safe_url(value)

    @field_validator("jwks_url")
    @classmethod
    def _keys_are_safe(cls, value: str | None) -> str | None:
        return value if value is None else safe_url(value, query=True)

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.keys_file is not None and self.jwks_url is not None:
            raise ValueError("jwks_url and keys_file are two answers to one question; keep one")
        found = self.keys_file or self.jwks_url or (self.introspection and self.introspection.url)
        if not self.discovery and not found:
            raise ValueError("without discovery it needs jwks_url, keys_file or introspection.url")
        browser = self.browser
        if browser and not self.discovery and not (browser.authorization_url and browser.token_url):
            raise ValueError("without discovery browser needs authorization_url and token_url")
        return self


class ApiKeySettings(Section):
    """``[[auth.api_keys]]``: a key of this server's own. ``keys create`` writes one."""

    id: Annotated[
        str,
        Field(description="Its name, which is no secret."),
    ]
    hash: Annotated[str, Field(description="`sha256:` and the SHA-256 of the key in hex.")]
    scopes: Annotated[tuple[ScopeToken, ...], Field(description="What it grants.")] = ()
    roles: Annotated[tuple[Name, ...], Field(description="Roles of who holds it.")] = ()
    clearance: Annotated[str | None, Field(description="One of [auth] clearances.")] = None
    tenant: Annotated[str | None, Field(description="The organisation it acts for.")] = None
    approvals: Annotated[tuple[Name, ...], Field(description="Approvals that it carries.")] = ()
    expires_at: Annotated[
        AwareDatetime | None,
        Field(description="From then on it is refused, as 2027-01-01T00:00:00Z; default: never."),
    ] = None

    @property
    def has_grants(self) -> bool:
        """Whether rules about tools have anything to look at."""
        texts = self.clearance, self.tenant
        return bool(self.scopes or self.roles or self.approvals) or texts != (None, None)

    @field_validator("id")
    @classmethod
    def _id_is_a_word(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", value):
            raise ValueError("must be 1 to 32 lower-case letters, digits and hyphens")
        return value

    @field_validator("hash")
    @classmethod
    def _hash_is_a_hash(cls, value: str) -> str:
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", value):
            raise ValueError(
                "must be sha256: and 64 hexadecimal digits; `keys create` and `keys hash` print it"
            )
        return value


class AuthSettings(Section):
    issuers: Annotated[
        tuple[IssuerSettings, ...], Field(description="Authorization servers that are believed.")
    ] = ()
    api_keys: Annotated[
        tuple[ApiKeySettings, ...], Field(description="Keys of this server's own.")
    ] = ()
    api_keys_file: Annotated[
        Path | None,
        Field(description="A TOML file with more `[[api_keys]]`, such as a mounted secret."),
    ] = None
    allow_unauthenticated: Annotated[
        bool,
        Field(
            description="Serve callers without a credential, as nobody in particular, on any "
            "address and beside those who have one."
        ),
    ] = False
    default: Annotated[
        Literal["deny", "allow"] | None,
        Field(
            description="Who may use a tool that no rule names: nobody, or everybody who is "
            "served. Default: deny as soon as there is a rule, else allow."
        ),
    ] = None
    scopes_supported: Annotated[
        tuple[ScopeToken, ...],
        Field(description="What a client should ask for first; told in metadata and with a 401."),
    ] = ()
    scope_hierarchy: Annotated[
        Mapping[ScopeToken, tuple[ScopeToken, ...]],
        Field(description="A scope, and the narrower ones that it implies."),
    ] = Field(default_factory=dict)
    clearances: Annotated[
        tuple[Name, ...], Field(min_length=1, description="Clearances, lowest first.")
    ] = ("low", "medium", "high")
    revoked: Annotated[
        tuple[str, ...],
        Field(description="`jti` of tokens, or ids of API keys, that count no longer."),
    ] = ()

    @field_validator("scopes_supported")
    @classmethod
    def _no_refresh_tokens(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "offline_access" in value:
            raise ValueError(
                "offline_access asks for a refresh token, which no resource needs "
                '(Authorization, "Refresh Tokens")'
            )
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        _unique("issuers", [issuer.issuer for issuer in self.issuers])
        if sum(issuer.introspection is not None for issuer in self.issuers) > 1:
            raise ValueError(
                "only one issuer may have introspection: an opaque token does not say whose it "
                "is, and must not be shown to another issuer"
            )
        _unique("api_keys", [key.id for key in self.api_keys])
        _unique("clearances", self.clearances)
        for key in self.api_keys:
            if key.clearance is not None and key.clearance not in self.clearances:
                known = ", ".join(self.clearances)
                raise ValueError(f"the clearance of the API key {key.id} is none of {known}")
        for scope in self.scope_hierarchy:
            if scope in implied_scopes(scope, self.scope_hierarchy):
                raise ValueError(f"scope_hierarchy goes round in a circle at {scope!r}")
        return self

    @property
    def is_open(self) -> bool:
        """Whether callers without a credential are served."""
        return self.allow_unauthenticated or not self.is_configured

    @property
    def is_configured(self) -> bool:
        """Whether there is anything that a caller could authenticate with."""
        return bool(self.issuers or self.api_keys or self.api_keys_file)


def implied_scopes(scope: str, hierarchy: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """The narrower scopes that a scope implies, directly or through others; not itself."""
    found: set[str] = set()
    waiting = list(hierarchy.get(scope, ()))
    while waiting:
        narrower = waiting.pop()
        if narrower not in found:
            found.add(narrower)
            waiting.extend(hierarchy.get(narrower, ()))
    return frozenset(found)


def safe_url(value: str, *, query: bool = False) -> str:
    """An https URL, or http to this machine; without user and fragment.

    Args:
        query: Whether it may have a query.

    Raises:
        ValueError: It is something else.
    """
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as https://login.example.com") from None
    if not host or parts.username is not None or parts.fragment or (parts.query and not query):
        raise ValueError("must be a URL such as https://login.example.com, without user and query")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_host(host)):
        raise ValueError("must begin with https:// (http:// is for this machine alone)")
    return value


def _unique(what: str, names: tuple[str, ...] | list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} stands twice in {what}")
