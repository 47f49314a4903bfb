"""``[server]``: where it listens, and what it takes in."""

import ipaddress
import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from app.settings.base import Seconds, Section, is_loopback_host, normal_origin

FLEET_DRAIN_S: Final = 5.0
"""Where several servers stand behind a load balancer, it needs a while to notice that one goes."""


def checked_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """The same, where each is a host name, a pattern of them, or an address.

    Raises:
        ValueError: One is something else.
    """
    for host in hosts:
        if not re.fullmatch(r"\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", host):
            raise ValueError(f"{host!r} is not a host name; write it without scheme and port")
    return hosts


class ServerSettings(Section):
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
    fleet: Annotated[
        bool,
        Field(
            description="Whether this is one of several servers that stand for each other. It "
            "then needs a shared [state] and [secrets] keys, or does not start."
        ),
    ] = False
    shutdown_grace_s: Annotated[
        Seconds, Field(description="After SIGTERM, running requests get this long to finish.")
    ] = 10.0
    drain_s: Annotated[
        float | None,
        Field(
            ge=0,
            le=3600,
            description="From SIGTERM on /readyz says no, and requests are served for this long "
            "before the socket closes. Default: 5 in a fleet, else 0.",
        ),
    ] = None

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
        return checked_hosts(value)

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network, strict=False)
        return value

    @property
    def drain_window_s(self) -> float:
        """Seconds from SIGTERM until the socket closes."""
        if self.drain_s is None:
            return FLEET_DRAIN_S if self.fleet else 0.0
        return self.drain_s

    @property
    def is_loopback(self) -> bool:
        """Whether the bind address is reachable from this machine alone."""
        return is_loopback_host(self.host)
