"""Loads the tools once, without serving them: for ``check`` and ``tools``."""

from pathlib import Path

from app.policy.policy import Policy
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.assembly import Assembly, assemble
from app.registry.loader import load_folder
from app.settings import Settings


def load_once(settings: Settings, messages: ServerMessages) -> Assembly:
    """What a server with these settings would publish, and every problem.

    Raises:
        FileNotFoundError: There is no tools folder.
        ValueError: A rule cannot be used.
    """
    build = load_folder(Path(settings.tools.directory), {})
    return assemble(
        build,
        {},
        {},
        settings=settings,
        policy=Policy(settings.auth, settings.policies),
        messages=messages,
        keys=KeyRing([bytes(32)]),
    )
