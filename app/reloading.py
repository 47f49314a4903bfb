"""What of changed settings takes effect while the server runs, and whether it can be used."""

from pathlib import Path
from typing import Any, Final

import structlog

from app.auth.authenticator import Authenticator
from app.configuration import ConfigurationError, Problem, load_settings
from app.policy.policy import Policy
from app.settings import Settings

RELOADED: Final = ("tools", "overrides", "auth", "policies", "limits")
"""Sections that take effect while the server runs."""

FIXED: Final = {
    "tools": ("directory", "reload"),
    "limits": ("concurrent_calls", "listen_streams"),
}
"""Keys of these sections that do not."""

log = structlog.get_logger()


def check_access(settings: Settings) -> None:
    """Whether rules, keys and files of keys can be used.

    Raises:
        ConfigurationError: With what is wrong.
    """
    try:
        Policy(settings.auth, settings.policies)
    except ValueError as error:
        raise ConfigurationError([Problem("policies", str(error), "configuration")]) from None
    try:
        Authenticator(settings)
    except (OSError, ValueError) as error:
        raise ConfigurationError([Problem("auth", str(error), "configuration")]) from None


def reloaded_settings(
    current: Settings, config: Path | None, flags: dict[str, dict[str, Any]] | None
) -> Settings | None:
    """The changed file, as far as it can take effect now; None if it cannot be used."""
    try:
        new = load_settings(config, flags=flags)
        check_access(new)
    except ConfigurationError as error:
        for problem in error.problems:
            log.error("configuration_problem", problem=str(problem))  # noqa: TRY400  # told in full
        return None
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
