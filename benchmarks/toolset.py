"""The tools that every server under test offers, generated as source: each runs the same code.

Each file holds one asynchronous function with typed, described parameters and a pydantic model as
result; only the line that imports the decorator differs from server to server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

# The call that is timed, and one that the tool's own schema refuses.
CALLED = "convert_000"
VALID_ARGUMENTS = {"value": 21.5, "factor": 2.0, "unit": "metre"}
BAD_ARGUMENTS = {"value": "a lot", "factor": 2.0, "unit": "metre"}

_OUR_DECORATOR = "from app import tool\n"
_PLAIN_DECORATOR = "def tool(function):\n    return function\n"

_SOURCE = '''\
"""Conversions, series {number}."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

{decorator}

class Converted{number}(BaseModel):
    """A converted quantity."""

    value: Annotated[float, Field(description="The quantity after conversion.")]
    unit: Annotated[str, Field(description="The unit that the value is in.")]


@tool
async def convert_{number}(
    value: Annotated[
        float, Field(description="The quantity to convert, in the unit named beside it.")
    ],
    factor: Annotated[
        float, Field(gt=0, description="What one unit is worth in the target unit.")
    ] = 1.0,
    unit: Annotated[
        Literal["metre", "foot", "mile"], Field(description="The target unit.")
    ] = "metre",
) -> Converted{number}:
    """Convert a quantity from one unit to another, series {number}, revision {revision}.

    Multiplies the value by the factor and names the unit of the outcome.
    """
    return Converted{number}(value=value * factor, unit=unit)
'''


def source(number: int, *, revision: int = 0, ours: bool) -> str:
    """The text of one tool file; another `revision` changes its visible description."""
    return _SOURCE.format(
        number=f"{number:03}",
        revision=revision,
        decorator=_OUR_DECORATOR if ours else _PLAIN_DECORATOR,
    )


def path_of(folder: Path, number: int) -> Path:
    """Where tool `number` lives under `folder`."""
    return folder / f"convert_{number:03}.py"


def write(folder: Path, count: int, *, revision: int = 0) -> None:
    """Write `count` tool files for our own server, each replaced in one step as an editor would."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        write_one(folder, number, revision=revision)


def write_one(folder: Path, number: int, *, revision: int) -> None:
    """Replace one tool file by the given revision of it."""
    target = path_of(folder, number)
    draft = target.with_suffix(".draft")
    draft.write_text(source(number, revision=revision, ours=True))
    draft.replace(target)


def functions(count: int) -> Iterator[Callable[..., object]]:
    """The same functions without our decorator, for the servers that register plain ones."""
    for number in range(count):
        module = ModuleType(f"benchmark_tool_{number:03}")
        # Forward references in the signatures are looked up in `sys.modules`.
        sys.modules[module.__name__] = module
        code = compile(
            source(number, ours=False), f"{module.__name__}.py", "exec", dont_inherit=True
        )
        exec(code, module.__dict__)  # noqa: S102 - the text above
        yield getattr(module, f"convert_{number:03}")
