"""What is wrong with the tools, in a form that people and programs can use."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about a file or a tool.

    Attributes:
        path: The file, relative to the tools folder; empty for the configuration.
        line: 1 is the first; None where no line is to blame.
        severity: An error keeps something from being served, a warning does not.
        tool: Name as served, where one is concerned.
    """

    path: str
    line: int | None
    severity: Literal["error", "warning"]
    message: str
    tool: str | None = None

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        what = f"{self.tool}: " if self.tool else ""
        return f"{where}: {self.severity}: {what}{self.message}"
