"""What the registry asks of worker processes: to be ready before a tool is published."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from app.registry.problems import Problem
from app.registry.tool import Tool
from app.settings import Settings


class Isolation(Protocol):
    """Worker processes for tools with ``isolation="process"``."""

    async def prepare(self, tools: Iterable[Tool], settings: Settings) -> Sequence[Problem]:
        """Have workers ready for the tools of a snapshot, beside those that serve the current one.

        Until they are published, or others are prepared, they are kept.

        Returns:
            What could not be loaded; its file must not be published in this version.
        """
        ...

    def publish(self, tools: Iterable[Tool], *, prepared: bool) -> bool:
        """These tools are served from now on. Workers that no tool needs end after their calls.

        Args:
            prepared: Whether this is what was prepared; if not, the workers at hand carry the
                calls, as far as they have the tools.

        Returns:
            Whether workers have each tool exactly as it is here: with its settings.
        """
        ...
