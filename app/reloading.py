"""What of changed settings takes effect while the server runs, and whether it can be used."""

from pathlib import Path
from typing import Any, Final

import structlog

from app.auth.administrators import administrators
from app.auth.authenticator import Authenticator
from app.configuration import ConfigurationError, Problem, load_settings
from app.observability.tracing import TelemetryMissing, check_telemetry
from app.policy.policy import Policy
from app.settings import Settings

RELOADED: Final = ("tools", "overrides", "auth", "policies", "limits", "hooks", "admin")
"""Sections that take effect while the server runs."""

FIXED: Final = {
    "tools": ("directory", "reload"),
    "limits": ("concurrent_calls", "listen_streams"),
    "admin": ("host", "port", "allowed_hosts"),
}
"""Keys of these sections that do not."""

log = structlog.get_logger()


def check_access(settings: Settings) -> None:
    """Whether rules, keys, files of keys and what tracing needs can be used.

    Raises:
        ConfigurationError: With what is wrong.
    """
    try:
        Policy(settings.auth, settings.policies)
    except ValueError as error:
        raise ConfigurationError([Problem("", str(error), "configuration")]) from None
    try:
        Authenticator(settings)
        administrators(settings.admin)
    except (OSError, ValueError) as error:
        raise ConfigurationError([Problem("", str(error), "configuration")]) from None
    if settings.tracing.enabled:
        try:
            check_telemetry()
        except TelemetryMissing as error:
            problem = Problem("tracing.enabled", str(error), "configuration")
            raise ConfigurationError([problem]) from None


def read_again(config: Path | None, flags: dict[str, dict[str, Any]] | None) -> Settings | None:
    """The changed file; None if it cannot be read."""
    try:
        return load_settings(config, flags=flags)
    except ConfigurationError as error:
        _tell(error)
        return None


def is_usable(settings: Settings) -> bool:
    """Whether rules, keys and files of keys can be used; if not, the log says why."""
    try:
        check_access(settings)
    except ConfigurationError as error:
        _tell(error)
        return False
    return True


def as_far_as_possible(current: Settings, new: Settings) -> Settings:
    """The new settings as far as they can take effect while the server runs."""
    later = [
        name
        for name in Settings.model_fields
        if name not in RELOADED and getattr(new, name) != getattr(current, name)
    ]
    reloaded = {name: getattr(new, name) for name in RELOADED}
    for name, keys in FIXED.items():
        before, after = getattr(current, name), getattr(new, name)
        later += [f"{name}.{key}" for key in keys if getattr(after, key) != getattr(before, key)]
        fixed = {key: getattr(before, key) for key in keys}
        reloaded[name] = after.model_copy(update=fixed)
    if later:
        log.warning("configuration_needs_restart", sections=later)
    return current.model_copy(update=reloaded)


def files_of(settings: Settings) -> frozenset[Path]:
    """The files of keys that settings name."""
    auth = settings.auth
    files = [auth.api_keys_file, settings.admin.keys_file]
    for issuer in auth.issuers:
        files.append(issuer.keys_file)
        if issuer.introspection is not None:
            files.append(issuer.introspection.client_secret_file)
        if issuer.browser is not None:
            files.append(issuer.browser.client_secret_file)
    return frozenset(file.absolute() for file in files if file is not None)


def _tell(error: ConfigurationError) -> None:
    for problem in error.problems:
        log.error("configuration_problem", problem=str(problem))
