"""Which clients there are, what each speaks, and why something does not work with one of them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tests.interop.families.environments import packages_of, python_of, script_of, version_in
from tests.support import nodejs

Era = Literal["modern", "legacy"]
Transport = Literal["http", "stdio"]
BOTH: Final[Sequence[Era]] = ("modern", "legacy")
TRANSPORTS: Final[Sequence[Transport]] = ("http", "stdio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A client program in one line of releases.

    Attributes:
        id: The folder of its driver and its lock file.
        package: What it is called where it is published.
        eras: Those that it speaks, the second in the newest revision that it knows.
        older: Revisions of the second that it can be told to ask for.
        command: Starts its driver; makes its environment first where it is missing.
    """

    id: str
    title: str
    package: str
    eras: Sequence[Era]
    command: Callable[[], Sequence[str]]
    older: Sequence[str] = ()

    @property
    def version(self) -> str:
        return version_in(self.id, self.package)


def _python(family: str) -> Callable[[], Sequence[str]]:
    return lambda: (str(python_of(family)), "-m", f"tests.interop.families.{family}.driver")


def _node(family: str) -> Callable[[], Sequence[str]]:
    return lambda: (str(nodejs.NODE), str(script_of(family)))


def _inspector() -> Sequence[str]:
    driver = "tests.interop.families.inspector.driver"
    return (sys.executable, "-m", driver, str(packages_of("inspector")))


FAMILIES: Final[Sequence[Family]] = (
    Family(
        id="python_v2",
        title="Official Python client",
        package="mcp",
        eras=BOTH,
        command=_python("python_v2"),
    ),
    Family(
        id="python_v1",
        title="Official Python client, 1.x",
        package="mcp",
        eras=("legacy",),
        command=_python("python_v1"),
    ),
    Family(
        id="fastmcp",
        title="FastMCP's client",
        package="fastmcp",
        eras=BOTH,
        command=_python("fastmcp"),
    ),
    Family(
        id="typescript_v2",
        title="Official TypeScript client, v2",
        package="@modelcontextprotocol/client",
        eras=BOTH,
        command=_node("typescript_v2"),
        older=("2025-06-18", "2025-03-26", "2024-11-05"),
    ),
    Family(
        id="typescript_v1",
        title="Official TypeScript client, v1",
        package="@modelcontextprotocol/sdk",
        eras=("legacy",),
        command=_node("typescript_v1"),
    ),
    Family(
        id="inspector",
        title="MCP Inspector, command line",
        package="@modelcontextprotocol/inspector",
        eras=BOTH,
        command=_inspector,
    ),
)


class Run(NamedTuple):
    """One family in one era over one transport.

    Attributes:
        revision: That the client must ask for; empty: whatever it likes best.
    """

    family: Family
    era: Era
    transport: Transport
    revision: str = ""

    @property
    def speech(self) -> str:
        """The revision or, where the client chooses, the era."""
        return self.revision or self.era


RUNS: Final[Sequence[Run]] = tuple(
    run
    for transport in TRANSPORTS
    for family in FAMILIES
    for run in (
        *(Run(family, era, transport) for era in family.eras),
        *(Run(family, "legacy", transport, revision) for revision in family.older),
    )
)

Reasons = Mapping[tuple[str, str, Transport, str], str]

KNOWN: Final[Reasons] = {}
"""Why a scenario fails: by family, era or revision, transport and scenario.

`make interop` fails on what fails without a reason here, and on a reason for what works.
"""
