"""From loaded files and settings to a catalog: names, duplicates, overrides, warnings."""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.catalog import Catalog
from app.registry.loader import Build, LoadedFile
from app.registry.problems import Problem
from app.registry.tool import (
    PORTABLE_NAME,
    Tool,
    ToolDefinitionError,
    compile_tool,
    environment_name,
    override_for,
)
from app.settings import Settings
from app.toolkit import ToolSpec

_Placed = tuple[Tool, int]
"""A tool and the line of its function."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A catalog and the files that its tools come from.

    Attributes:
        files: The version of each file in use; helpers included.
    """

    catalog: Catalog
    files: Mapping[str, LoadedFile]
    problems: Sequence[Problem]


def assemble(
    build: Build,
    previous: Mapping[str, LoadedFile],
    served: Mapping[str, Tool],
    *,
    settings: Settings,
    messages: ServerMessages,
    keys: KeyRing,
) -> Assembly:
    """Compile the tools of a build into a catalog.

    A changed file with a tool that cannot be compiled keeps its previous version as a whole;
    in a new file the other tools are served.

    Args:
        previous: The files in use until now.
        served: The tools in use until now.
    """
    problems = list(build.problems)
    files = dict(build.files)
    candidates: list[_Placed] = []
    for path in sorted(files):
        placed, errors = _compile_file(files[path], settings)
        old = previous.get(path)
        if errors and old is not None and old is not files[path]:
            files[path] = old
            placed, _ = _compile_file(old, settings)
        problems += errors
        candidates += placed
    tools = _without_duplicates(candidates, served, problems)
    enabled = [tool for tool in tools if override_for(tool.name, settings.overrides).enabled]
    problems += _warnings(tools, settings)
    catalog = Catalog(
        enabled,
        messages=messages,
        keys=keys,
        page_size=settings.tools.page_size,
        ttl_ms=settings.tools.list_ttl_ms,
    )
    return Assembly(catalog, files, problems)


def tool_name(spec: ToolSpec[..., Any], path: str, separator: str) -> str:
    """The name as served: the folders below ``tools/``, then the tool's own."""
    return separator.join((*PurePosixPath(path).parent.parts, spec.name))


def _compile_file(file: LoadedFile, settings: Settings) -> tuple[list[_Placed], list[Problem]]:
    tools, errors = [], []
    for spec, line in file.specs:
        name = tool_name(spec, file.path, settings.tools.separator)
        key = (
            id(spec),
            name,
            settings.tools.unknown_arguments,
            settings.execution.timeout_s,
            override_for(name, settings.overrides).model_dump_json(),
        )
        try:
            if key not in file.compiled:
                # Only the newest settings matter: the rest would be kept for nothing.
                file.compiled = {
                    other: value for other, value in file.compiled.items() if other[0] != key[0]
                }
                file.compiled[key] = compile_tool(spec, name=name, source=file, settings=settings)
            tools.append((file.compiled[key], line))
        except ToolDefinitionError as error:
            errors.append(Problem(file.path, line, "error", str(error), name))
    return tools, errors


def _without_duplicates(
    candidates: Iterable[_Placed],
    served: Mapping[str, Tool],
    problems: list[Problem],
) -> list[Tool]:
    """Of tools with one name none is served, except one that was served before."""
    by_name: defaultdict[str, list[_Placed]] = defaultdict(list)
    for tool, line in candidates:
        by_name[tool.name].append((tool, line))
    unique = []
    for name, same in by_name.items():
        if len(same) == 1:
            unique.append(same[0][0])
            continue
        places = [f"{tool.source.path}:{line}" for tool, line in same]
        before = served[name].source.path if name in served else None
        known = [tool for tool, _ in same if tool.source.path == before]
        outcome = "none of them is served"
        if len(known) == 1:
            unique.append(known[0])
            outcome = f"the one in {known[0].source.path}, served before, stays"
        for tool, line in same:
            problems.append(
                Problem(
                    tool.source.path,
                    line,
                    "error",
                    f"the name is declared {len(same)} times ({', '.join(places)}); {outcome}",
                    name,
                )
            )
    return unique


def _warnings(tools: Sequence[Tool], settings: Settings) -> list[Problem]:
    warnings = []
    for tool in tools:
        if not PORTABLE_NAME.match(tool.name):
            warnings.append(
                Problem(
                    tool.source.path,
                    None,
                    "warning",
                    "many hosts accept only [A-Za-z0-9_-]{1,64} as a name; "
                    '[tools] separator = "_" makes prefixes portable',
                    tool.name,
                )
            )
        if b'"description"' not in tool.definition:
            warnings.append(
                Problem(
                    tool.source.path,
                    None,
                    "warning",
                    "no description; a model chooses tools by theirs (write a docstring)",
                    tool.name,
                )
            )
    names = {tool.name for tool in tools}
    known = names | {environment_name(name) for name in names}
    for name in settings.overrides.keys() - known:
        close = difflib.get_close_matches(name, sorted(names), n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        message = f'[overrides."{name}"] names no tool{hint}'
        warnings.append(Problem("", None, "warning", message))
    return warnings
