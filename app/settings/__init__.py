"""Settings: ``config.toml``, then the environment (``MCP__SECTION__KEY``), as frozen models.

An unknown key or a bad value stops the start, with the key's path, the problem and what would
be right.
"""

from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from app.settings.admin import AdminSettings
from app.settings.audit import AuditSettings
from app.settings.auth import (
    ApiKeySettings,
    AuthSettings,
    BrowserSettings,
    IntrospectionSettings,
    IssuerSettings,
)
from app.settings.base import MAX_DEADLINE_S, Section, is_loopback_host, normal_origin
from app.settings.hooks import HookSettings
from app.settings.legacy import LegacySettings
from app.settings.limits import LimitsSettings, RateLimit, ToolRate
from app.settings.metrics import MetricsSettings
from app.settings.policies import SCOPE_TOKEN, Conditions, PolicySettings, Requirement
from app.settings.recording import Record, RecordingSettings
from app.settings.sections import (
    ENVIRONMENT_TOOL,
    REDACTED_LOCALES,
    ExecutionSettings,
    LoggingSettings,
    SecretsSettings,
    ToolOverride,
    ToolsSettings,
)
from app.settings.server import ServerSettings
from app.settings.state import StateSettings, StateUrl
from app.settings.tracing import TracingSettings

__all__ = [
    "ENVIRONMENT_TOOL",
    "MAX_DEADLINE_S",
    "REDACTED_LOCALES",
    "SCOPE_TOKEN",
    "AdminSettings",
    "ApiKeySettings",
    "AuditSettings",
    "AuthSettings",
    "BrowserSettings",
    "Conditions",
    "ExecutionSettings",
    "HookSettings",
    "IntrospectionSettings",
    "IssuerSettings",
    "LegacySettings",
    "LimitsSettings",
    "PolicySettings",
    "RateLimit",
    "Record",
    "RecordingSettings",
    "Requirement",
    "ServerSettings",
    "Settings",
    "StateSettings",
    "StateUrl",
    "ToolOverride",
    "ToolRate",
    "TracingSettings",
    "is_loopback_host",
    "normal_origin",
]


class Settings(Section):
    """Everything that can be configured."""

    server: ServerSettings = ServerSettings()
    tools: ToolsSettings = ToolsSettings()
    execution: ExecutionSettings = ExecutionSettings()
    auth: AuthSettings = AuthSettings()
    policies: tuple[PolicySettings, ...] = ()
    limits: LimitsSettings = LimitsSettings()
    hooks: tuple[HookSettings, ...] = ()
    legacy: LegacySettings = LegacySettings()
    admin: AdminSettings = AdminSettings()
    state: StateSettings = StateSettings()
    secrets: SecretsSettings = SecretsSettings()
    logging: LoggingSettings = LoggingSettings()
    audit: AuditSettings = AuditSettings()
    recording: RecordingSettings = RecordingSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    overrides: Mapping[str, ToolOverride] = Field(default_factory=dict)

    @property
    def resource_url(self) -> str:
        """The URL of the MCP endpoint: the resource that tokens are made for (RFC 8707)."""
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        return (self.server.public_url or f"http://{host}:{self.server.port}") + "/mcp"

    @property
    def pages_url(self) -> str:
        """The URL below which users open pages of this server (``ctx.elicit_page``)."""
        return self.resource_url.removesuffix("/mcp") + "/elicit"

    @model_validator(mode="after")
    def _bind_is_safe(self) -> Self:
        if not (
            self.server.is_loopback or self.auth.allow_unauthenticated or self.auth.is_configured
        ):
            raise ValueError(
                f"server.host is {self.server.host}, which other machines can reach, and no "
                "authentication is configured. Bind 127.0.0.1, configure [[auth.issuers]] or "
                "[[auth.api_keys]], or set [auth] allow_unauthenticated = true if something in "
                "front decides who may call."
            )
        return self

    @model_validator(mode="after")
    def _a_fleet_shares(self) -> Self:
        if self.server.fleet and (problem := self.problem_of_several("[server] fleet")):
            raise ValueError(problem)
        return self

    def problem_of_several(self, what: str) -> str | None:
        """Why these settings are for one process alone; None: they are not.

        Args:
            what: Says that there are several.
        """
        if not self.secrets.keys:
            return (
                f"{what} needs [secrets] keys: what one server signs or seals must be readable by "
                "the next; make one with `openssl rand -base64 32`"
            )
        if not self.state.is_shared:
            return (
                f"{what} needs a [state] url of Redis: each process would have limits, handles "
                "and idempotency keys of its own, so that limits multiply and what one server "
                "keeps is unknown to the next"
            )
        return None

    @model_validator(mode="after")
    def _tokens_have_an_audience(self) -> Self:
        server = self.server
        has_url = server.public_url is not None or (server.is_loopback and server.port != 0)
        if self.auth.issuers and not has_url:
            raise ValueError(
                "[[auth.issuers]] needs [server] public_url: tokens are made for that URL "
                "with /mcp added, and clients are told it"
            )
        return self

    @model_validator(mode="after")
    def _pages_are_safe(self) -> Self:
        if any(issuer.browser for issuer in self.auth.issuers):
            parts = urlsplit(self.pages_url)
            if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
                raise ValueError(
                    "browser of [[auth.issuers]] needs a [server] public_url that begins with "
                    "https://: users type secrets there (http:// is for this machine alone)"
                )
        return self

    @model_validator(mode="after")
    def _recordings_have_a_key(self) -> Self:
        if self.recording.directory is not None and not self.secrets.keys:
            raise ValueError(
                "[recording] directory needs [secrets] keys, with which recordings are encrypted; "
                "make one with `openssl rand -base64 32`"
            )
        return self

    @model_validator(mode="after")
    def _ports_are_two(self) -> Self:
        if self.admin.port and self.admin.port == self.server.port:
            raise ValueError(
                f"admin.port is {self.admin.port}, as server.port is; the administrative listener "
                "needs one of its own, which clients cannot reach"
            )
        return self

    @model_validator(mode="after")
    def _clearances_are_known(self) -> Self:
        for number, rule in enumerate(self.policies, 1):
            for requirement in (rule.requires, *rule.any):
                clearance = requirement.clearance
                if clearance is not None and clearance not in self.auth.clearances:
                    raise ValueError(
                        f"policies: rule {number} requires the clearance {clearance!r}, which is "
                        f"none of [auth] clearances ({', '.join(self.auth.clearances)})"
                    )
        return self
