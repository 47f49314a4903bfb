"""``[state]``: where what outlives a request is kept."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator

from app.settings.base import Section

MEMORY: Final = "memory://"
DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379

_FORMS: Final = (
    "memory://, redis://host:port/db, rediss:// (TLS), unix:///path, "
    "redis+sentinel://host:port,host:port/service/db or redis+cluster://host:port,host:port"
)
_SCHEMES: Final[dict[str, tuple[Literal["server", "unix", "sentinel", "cluster"], bool]]] = {
    "redis": ("server", False),
    "rediss": ("server", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}


class StateUrl(NamedTuple):
    """What a URL of Redis says.

    Attributes:
        kind: One server, the one that sentinels name, or a cluster.
        hosts: Name and port of each host of the URL.
        path: Of a Unix socket.
        service: What the sentinels call it.
        password: A secret.
    """

    kind: Literal["server", "unix", "sentinel", "cluster"]
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    path: str
    service: str
    db: int
    username: str | None
    password: SecretStr | None


def parse_state_url(url: str) -> StateUrl:
    """What a URL of ``[state]`` says, other than ``memory://``.

    Raises:
        ValueError: It is none; the message does not repeat it, as it may hold a password.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"is no URL; write {_FORMS}") from None
    found = _SCHEMES.get(parts.scheme)
    if found is None:
        raise ValueError(f"must be {_FORMS}")
    kind, tls = found
    if parts.query or parts.fragment:
        raise ValueError("must have no ? and no #; in a user or password write %3F and %23")
    user, at, netloc = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    default = DEFAULT_SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
    hosts: tuple[tuple[str, int], ...] = ()
    if kind == "unix":
        if netloc or not parts.path.startswith("/"):
            raise ValueError("must name a socket, as unix:///run/redis.sock does")
    else:
        hosts = tuple(_host(text, default) for text in netloc.split(","))
    if kind == "server" and len(hosts) > 1:
        raise ValueError(
            "names several hosts: write redis+sentinel:// or redis+cluster:// in front of them"
        )
    service, db = _place(kind, parts)
    return StateUrl(
        kind,
        tls,
        hosts,
        unquote(parts.path) if kind == "unix" else "",
        service,
        db,
        (unquote(name) or None) if at else None,
        SecretStr(unquote(password)) if colon else None,
    )


def _host(text: str, default: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", text)
    if found is None or not 0 < int(found[2] or default) < 65536:
        raise ValueError(
            "must name each host as name:port; in a user or password write %40 for @, %2F for /, "
            "%2C for a comma"
        )
    return found[1].strip("[]"), int(found[2] or default)


def _place(kind: str, parts: SplitResult) -> tuple[str, int]:
    """Service and number of the database."""
    if kind == "unix":
        return "", 0
    path = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    service = ""
    if kind == "sentinel":
        if not path:
            raise ValueError("must name the service, as redis+sentinel://host:26379/service does")
        service = unquote(path.pop(0))
    if kind == "cluster" and path:
        raise ValueError("must end after the hosts: a cluster has one database")
    if len(path) > 1 or any(not re.fullmatch("[0-9]{1,4}", step) for step in path):
        raise ValueError("must have a number of a database as the end of its path, or none")
    return service, int(path[0]) if path else 0


class StateSettings(Section):
    url: Annotated[
        SecretStr,
        Field(
            description="Where state lives that outlives a request: memory:// of this process, or "
            "Redis 6.2, Valkey 8 or newer."
        ),
    ] = SecretStr(MEMORY)
    prefix: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
            description="Before the name of every key and channel. What has another prefix is "
            "another fleet.",
        ),
    ] = "mcp:"
    password_file: Annotated[
        Path | None,
        Field(
            description="File with the password, such as a secret of Docker; read anew for each "
            "connection."
        ),
    ] = None
    sentinel_password_file: Annotated[
        Path | None, Field(description="File with the password of the sentinels.")
    ] = None
    tls_ca_file: Annotated[
        Path | None,
        Field(description="PEM file of authorities that are trusted besides those of the system."),
    ] = None
    tls_certificate_file: Annotated[
        Path | None, Field(description="PEM file of this server's own certificate.")
    ] = None
    tls_key_file: Annotated[
        Path | None,
        Field(description="PEM file of its key, where the certificate's file has none."),
    ] = None
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            description="An operation that is not answered within this time has failed, and the "
            "connection with it.",
        ),
    ] = 1.0
    required: Annotated[
        bool,
        Field(
            description="Whether a server that cannot use its state says that it is not ready. A "
            "state that all share is gone for all: then none is ready."
        ),
    ] = False

    @field_validator("url")
    @classmethod
    def _url_is_one(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() != MEMORY:
            parse_state_url(value.get_secret_value())
        return value

    @property
    def is_shared(self) -> bool:
        """Whether other servers can see it."""
        return self.url.get_secret_value() != MEMORY

    @property
    def parsed_url(self) -> StateUrl:
        """Of Redis, what the URL says."""
        return parse_state_url(self.url.get_secret_value())
