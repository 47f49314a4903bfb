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

        Returns:
            What could not be loaded; its file must not be published in this version.
        """
        ...

    def publish(self, tools: Iterable[Tool]) -> None:
        """These tools are served from now on. Workers that no tool needs end after their calls."""
        ...
