"""Settings: ``config.toml``, then the environment (``MCP__SECTION__KEY``), as frozen models.

An unknown key or a bad value stops the start, with the key's path, the problem and what would
be right.
"""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.types import SecretStr

MIN_KEY_CHARACTERS: Final = 32
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Seconds = Annotated[float, Field(gt=0, le=86_400)]
MAX_DEADLINE_S: Final = 3600
DeadlineSeconds = Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ServerSettings(_Section):
    host: Annotated[str, Field(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to bind; 0 picks a free one.")] = (
        8000
    )
    name: Annotated[str, Field(min_length=1, max_length=200, description="Name in serverInfo.")] = (
        "mcp-tool-server"
    )
    title: Annotated[str | None, Field(description="Title in serverInfo, for people.")] = None
    instructions: Annotated[
        str | None, Field(description="What a model should know about these tools as a whole.")
    ] = None
    public_url: Annotated[
        str | None,
        Field(
            description="Base URL that clients use; /mcp is added, and its host and origin are "
            "allowed. Default: the bind address."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Field(
            description="Host names that requests may name, besides loopback, the bind address "
            "and public_url. `*.example.com` covers sub-domains, `*` every host."
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Field(
            description="Web origins that browsers may call from, besides public_url and, on a "
            "loopback bind, loopback origins. `*` allows every one (but not `null`)."
        ),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        Field(description="Addresses or networks whose X-Forwarded-For counts."),
    ] = ()
    max_body_bytes: Annotated[
        int, Field(ge=1024, le=1 << 30, description="Largest request body; more is 413.")
    ] = 4 * 1024 * 1024
    max_header_bytes: Annotated[
        int, Field(ge=1024, le=1 << 20, description="Largest request head; more is 431.")
    ] = 64 * 1024
    request_timeout_s: Annotated[
        Seconds, Field(description="A request head and body must arrive within this time; 408.")
    ] = 15.0
    keep_alive_s: Annotated[
        Seconds,
        Field(description="Idle connections are closed after this; keep it above the proxy's."),
    ] = 75.0
    shutdown_grace_s: Annotated[
        Seconds, Field(description="After SIGTERM, running requests get this long to finish.")
    ] = 10.0

    @field_validator("public_url")
    @classmethod
    def _public_url_is_a_base(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        origin = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in {"http", "https"} or normal_origin(origin) is None:
            raise ValueError("must be an http(s) URL such as https://tools.example.com")
        if parts.query or parts.fragment:
            raise ValueError("must have no query and no fragment")
        return value.rstrip("/").removesuffix("/mcp")

    @field_validator("allowed_origins")
    @classmethod
    def _origins_are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and normal_origin(origin) is None:
                raise ValueError(
                    f"{origin!r} is not an origin; write scheme://host[:port], without a path"
                )
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not re.fullmatch(r"\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", host):
                raise ValueError(f"{host!r} is not a host name; write it without scheme and port")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network, strict=False)
        return value

    @property
    def is_loopback(self) -> bool:
        """Whether the bind address is reachable from this machine alone."""
        return is_loopback_host(self.host)


class ToolsSettings(_Section):
    directory: Annotated[Path, Field(description="Folder of the tools.")] = Path("tools")
    page_size: Annotated[
        int, Field(ge=1, le=10_000, description="Tools on one page of tools/list.")
    ] = 250
    list_ttl_ms: Annotated[
        int,
        Field(ge=0, le=86_400_000, description="How long clients may keep a list; 0: always ask."),
    ] = 0
    reload: Annotated[
        bool,
        Field(description="Watch the folder and the configuration file, and tell listeners."),
    ] = True
    separator: Annotated[
        Literal[".", "_", "-", "__"],
        Field(description="Stands between a sub-folder's name and the tool's."),
    ] = "."
    unknown_arguments: Annotated[
        Literal["refuse", "ignore"],
        Field(description="What happens to arguments that a tool does not have."),
    ] = "refuse"


class ExecutionSettings(_Section):
    timeout_s: Annotated[
        DeadlineSeconds, Field(description="Deadline of one tools/call in seconds.")
    ] = 30.0
    max_result_bytes: Annotated[
        int, Field(ge=1024, le=1 << 30, description="Largest encoded result of a call.")
    ] = 900 * 1024
    silence_s: Annotated[
        Seconds, Field(description="A call that says nothing for this long becomes a stream.")
    ] = 10.0
    keep_alive_s: Annotated[
        Seconds, Field(description="A quiet stream gets a comment this often.")
    ] = 15.0
    threads: Annotated[
        int, Field(ge=1, le=10_000, description="Synchronous tools that run at once.")
    ] = 40
    max_abandoned_threads: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="Threads past their deadline that may still run; then calls get 503.",
        ),
    ] = 200


class AuthSettings(_Section):
    allow_unauthenticated: Annotated[
        bool, Field(description="Bind an address beyond loopback without authentication.")
    ] = False


class LimitsSettings(_Section):
    concurrent_calls: Annotated[
        int, Field(ge=1, le=1_000_000, description="Calls that run at once; more get 503.")
    ] = 1000
    listen_streams: Annotated[
        int, Field(ge=0, le=1_000_000, description="Listen streams of one process; more get 503.")
    ] = 10_000


class StateSettings(_Section):
    url: Annotated[str, Field(description="Where shared state lives: memory://.")] = "memory://"

    @field_validator("url")
    @classmethod
    def _memory_only(cls, value: str) -> str:
        if value != "memory://":
            raise ValueError('this version serves "memory://" only')
        return value


class SecretsSettings(_Section):
    keys: Annotated[
        tuple[SecretStr, ...],
        Field(description="Keys for what clients hand back, newest first; 32 characters or more."),
    ] = ()

    @field_validator("keys")
    @classmethod
    def _keys_are_long(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(len(key.get_secret_value()) < MIN_KEY_CHARACTERS for key in value):
            raise ValueError(
                f"each key needs at least {MIN_KEY_CHARACTERS} characters; make one with "
                "`openssl rand -base64 32`"
            )
        return value


class LoggingSettings(_Section):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Mildest level written.")
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "pretty"],
        Field(description="JSON lines, or coloured text; auto: pretty on a terminal."),
    ] = "auto"


ENVIRONMENT_TOOL: Final = "environment:"
"""Stands before a tool's name among the overrides when it comes from the environment, where names
have no case and no ``.`` or ``-``: what is meant for one tool must not reach another."""


class ToolOverride(_Section):
    """``[overrides."name"]``: changes one tool without touching its file."""

    enabled: Annotated[bool, Field(description="False takes the tool off the list.")] = True
    title: Annotated[str | None, Field(description="Replaces the title.")] = None
    description: Annotated[str | None, Field(description="Replaces the description.")] = None
    timeout_s: Annotated[
        float | None,
        Field(gt=0, le=MAX_DEADLINE_S, description="Replaces the deadline in seconds."),
    ] = None
    settings: Annotated[
        Mapping[str, Any], Field(description="What the tool reads as ctx.settings.")
    ] = Field(default_factory=dict)


class Settings(_Section):
    """Everything that can be configured."""

    server: ServerSettings = ServerSettings()
    tools: ToolsSettings = ToolsSettings()
    execution: ExecutionSettings = ExecutionSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitsSettings = LimitsSettings()
    state: StateSettings = StateSettings()
    secrets: SecretsSettings = SecretsSettings()
    logging: LoggingSettings = LoggingSettings()
    overrides: Mapping[str, ToolOverride] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bind_is_safe(self) -> Self:
        if not self.server.is_loopback and not self.auth.allow_unauthenticated:
            raise ValueError(
                f"server.host is {self.server.host}, which other machines can reach, and no "
                "authentication is configured. Bind 127.0.0.1, or set "
                "[auth] allow_unauthenticated = true if something in front decides who may call."
            )
        return self


RESERVED_SECTIONS = {
    "policies": "rules about who may call what",
    "admin": "the administrative listener",
}
"""Sections of the format that this version does not serve. Ignoring them would leave open what
their author meant to close, so they are refused."""


def is_loopback_host(host: str) -> bool:
    """Whether a host name or address is loopback (``localhost``, 127.0.0.0/8, ::1)."""
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def normal_origin(value: str) -> str | None:
    """``scheme://host:port`` in lower case with the port spelled out; None if it is no origin."""
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname or parts.path or parts.query or parts.fragment:
        return None
    if parts.username is not None or value.strip().endswith(("?", "#")):
        return None
    if port is None:
        port = _DEFAULT_PORTS.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"
