"""What every section of the settings is made of."""

import ipaddress
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Seconds = Annotated[float, Field(gt=0, le=86_400)]
MAX_DEADLINE_S: Final = 3600
DeadlineSeconds = Annotated[float, Field(gt=0, le=MAX_DEADLINE_S)]


class Section(BaseModel):
    """Frozen; an unknown key is an error, and no error repeats a value."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


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
