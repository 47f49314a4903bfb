"""``[admin]``: the administrative listener."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from app.settings.auth import ApiKeySettings
from app.settings.base import Section
from app.settings.server import checked_hosts


class AdminSettings(Section):
    port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description="Port of the administrative listener; 0 picks a free one. Default: there "
            "is no such listener.",
        ),
    ] = None
    host: Annotated[
        str, Field(min_length=1, description="Address that it binds; better a private one.")
    ] = "127.0.0.1"
    keys: Annotated[
        tuple[ApiKeySettings, ...],
        Field(description="Keys of administrators: `keys create --admin`. They open nothing else."),
    ] = ()
    keys_file: Annotated[
        Path | None,
        Field(description="A TOML file with more of them, as `[[api_keys]]` tables."),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Field(
            description="Host names that its requests may name, besides loopback and the bind "
            "address. `*.example.com` covers sub-domains, `*` every host."
        ),
    ] = ()

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_hosts(value)

    @field_validator("keys")
    @classmethod
    def _keys_grant_nothing(cls, value: tuple[ApiKeySettings, ...]) -> tuple[ApiKeySettings, ...]:
        ids = [key.id for key in value]
        for key in value:
            if key.has_grants:
                raise ValueError(
                    f"the key {key.id!r} has grants, which rules about tools look at; a key of an "
                    "administrator has id, hash and expires_at alone"
                )
            if ids.count(key.id) > 1:
                raise ValueError(f"{key.id!r} stands twice in keys")
        return value

    @model_validator(mode="after")
    def _is_authenticated(self) -> Self:
        if self.port is not None and not self.keys and self.keys_file is None:
            raise ValueError(
                "port needs keys or keys_file, on loopback too: whoever reaches the listener "
                "could switch tools off; make one with `mcp-tool-server keys create --admin`"
            )
        return self
