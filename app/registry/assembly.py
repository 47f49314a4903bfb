"""From loaded files and settings to a catalog: names, duplicates, overrides, warnings."""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from app.policy.decision import Demand
from app.policy.limits import NO_LIMITS, Limits
from app.policy.policy import Policy
from app.policy.rollouts import Switch
from app.policy.rules import Own
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.catalog import Catalog
from app.registry.hooks import Hooks, HookTable, UnknownHook
from app.registry.loader import Build, LoadedFile
from app.registry.options import ToolDefinitionError
from app.registry.problems import Problem
from app.registry.tool import (
    PORTABLE_NAME,
    Tool,
    compile_tool,
    environment_name,
    override_for,
)
from app.settings import ENVIRONMENT_TOOL, AuthSettings, Settings

EVERYBODY: Final = Policy(AuthSettings(), ())
NO_SWITCHES: Final[Mapping[str, Switch]] = MappingProxyType({})
_Placed = tuple[Tool, int]
"""A tool and the line of its function."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A catalog and the files that its tools come from.

    Attributes:
        tools: All that can be served, by name. Those that an administrator has switched off are
            among them and not in the catalog: they stay ready, so that they can come back at once.
        files: The version of each file in use; helpers included.
    """

    catalog: Catalog
    tools: Mapping[str, Tool]
    files: Mapping[str, LoadedFile]
    problems: Sequence[Problem]


def assemble(
    build: Build,
    previous: Mapping[str, LoadedFile],
    served: Mapping[str, Tool],
    *,
    settings: Settings,
    policy: Policy | None,
    messages: ServerMessages,
    keys: KeyRing,
    counts: bool = True,
    switches: Mapping[str, Switch] = NO_SWITCHES,
) -> Assembly:
    """Compile the tools of a build into a catalog.

    A changed file with a tool that cannot be compiled keeps its previous version as a whole;
    in a new file the other tools are served.

    Args:
        previous: The files in use until now.
        served: The tools that were ready until now.
        policy: Who may call what; None: everybody everything, whatever a tool demands, and
            however often.
        counts: False lets everybody call as often as they like.
        switches: What administrators say, by name of tool.
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
    enabled = [tool for tool, _ in tools if override_for(tool.name, settings.overrides).enabled]
    problems += _warnings(tools, settings)
    demands = _demands(tools, policy, problems)
    hooks = _hooks(tools, files.values(), settings, problems)
    limits = NO_LIMITS if policy is None or not counts else Limits(settings.limits)
    problems += [
        Problem("", None, "warning", unused)
        for unused in limits.unused(tool.name for tool, _ in tools)
    ]
    ready = [tool for tool in enabled if tool.name in demands and tool.name in hooks]
    catalog = Catalog(
        ready,
        policy=policy or EVERYBODY,
        demands=demands,
        hooks=hooks,
        limits=limits,
        messages=messages,
        keys=keys,
        page_size=settings.tools.page_size,
        ttl_ms=settings.tools.list_ttl_ms,
        anonymous=settings.auth.is_open,
        switches=switches,
    )
    return Assembly(catalog, {tool.name: tool for tool in ready}, files, problems)


def empty_catalog(messages: ServerMessages, keys: KeyRing) -> Catalog:
    """The snapshot before the first one."""
    return Catalog(
        (),
        policy=EVERYBODY,
        demands={},
        hooks={},
        limits=NO_LIMITS,
        messages=messages,
        keys=keys,
        page_size=1,
        ttl_ms=0,
        anonymous=False,
    )


def served_name(name: object, path: str, separator: str) -> str:
    """The name as served: the folders below ``tools/``, then the tool's or hook's own."""
    return separator.join((*PurePosixPath(path).parent.parts, str(name)))


def _compile_file(file: LoadedFile, settings: Settings) -> tuple[list[_Placed], list[Problem]]:
    tools, errors = [], []
    for spec, line in file.specs:
        name = served_name(spec.name, file.path, settings.tools.separator)
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


def _demands(
    placed: Iterable[_Placed], policy: Policy | None, problems: list[Problem]
) -> dict[str, Demand]:
    """What each tool demands of its callers; one that demands the impossible is not served."""
    demands = {}
    known = []
    for tool, line in placed:
        known.append((tool.name, tool.annotations))
        try:
            if policy is None:
                demands[tool.name] = EVERYBODY.demand(tool.name, {}, Own())
            else:
                demands[tool.name] = policy.demand(tool.name, tool.annotations, tool.own)
        except ValueError as error:
            problems.append(Problem(tool.source.path, line, "error", str(error), tool.name))
    if policy is not None:
        problems += [Problem("", None, "warning", unused) for unused in policy.unused(known)]
        problems += _lost_arguments([tool for tool, _ in placed], demands)
    return demands


def _hooks(
    placed: Iterable[_Placed],
    files: Iterable[LoadedFile],
    settings: Settings,
    problems: list[Problem],
) -> dict[str, Hooks]:
    """The hooks of each tool; one whose hooks cannot all be used is not served."""
    separator = settings.tools.separator
    declared = [
        (served_name(hook.name, file.path, separator), hook, file)
        for file in files
        for hook in file.hooks
    ]
    table = HookTable(settings.hooks, declared)
    hooks = {}
    for tool, line in placed:
        try:
            hooks[tool.name] = table.of(tool.name)
        except UnknownHook as error:
            problems.append(Problem(tool.source.path, line, "error", str(error), tool.name))
    names = [tool.name for tool, _ in placed]
    problems += [Problem("", None, "warning", unused) for unused in table.unused(names)]
    return hooks


def _lost_arguments(tools: Iterable[Tool], demands: Mapping[str, Demand]) -> list[Problem]:
    """Rules about arguments that no tool of theirs has: a misspelt name would close nothing."""
    named: dict[tuple[str, str], bool] = {}
    for tool in tools:
        demand = demands.get(tool.name)
        for argument in (demand.arguments if demand is not None else None) or ():
            assert demand is not None
            rule = (demand.label, argument)
            named[rule] = named.get(rule, False) or argument in tool.arguments
    return [
        Problem(
            "", None, "warning", f"policies: {rule}: none of its tools has the argument {name!r}"
        )
        for (rule, name), is_there in sorted(named.items())
        if not is_there
    ]


def _without_duplicates(
    candidates: Iterable[_Placed],
    served: Mapping[str, Tool],
    problems: list[Problem],
) -> list[_Placed]:
    """Of tools with one name none is served, except one that was served before."""
    by_name: defaultdict[str, list[_Placed]] = defaultdict(list)
    for tool, line in candidates:
        by_name[tool.name].append((tool, line))
    unique = []
    for name, same in by_name.items():
        if len(same) == 1:
            unique.append(same[0])
            continue
        places = [f"{tool.source.path}:{line}" for tool, line in same]
        before = served[name].source.path if name in served else None
        known = [placed for placed in same if placed[0].source.path == before]
        outcome = "none of them is served"
        if len(known) == 1:
            unique.append(known[0])
            outcome = f"the one in {known[0][0].source.path}, served before, stays"
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


def _warnings(placed: Sequence[_Placed], settings: Settings) -> list[Problem]:
    warnings = []
    for tool, line in placed:
        path = tool.source.path
        if not PORTABLE_NAME.match(tool.name):
            message = (
                "many hosts accept only [A-Za-z0-9_-]{1,64} as a name; "
                '[tools] separator = "_" makes prefixes portable'
            )
            warnings.append(Problem(path, line, "warning", message, tool.name))
        if b'"description"' not in tool.definition:
            message = "no description; a model chooses tools by theirs (write a docstring)"
            warnings.append(Problem(path, line, "warning", message, tool.name))
    return [*warnings, *_lost_overrides({tool.name for tool, _ in placed}, settings)]


def _lost_overrides(names: set[str], settings: Settings) -> list[Problem]:
    """Overrides that reach no tool, or more than one."""
    problems = []
    by_environment: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        by_environment[ENVIRONMENT_TOOL + environment_name(name)].append(name)
    for key in sorted(settings.overrides):
        reached = by_environment[key] if key.startswith(ENVIRONMENT_TOOL) else [key]
        shown = f'[overrides."{key}"]'
        if key.startswith(ENVIRONMENT_TOOL):
            shown = f"MCP__OVERRIDES__{key.removeprefix(ENVIRONMENT_TOOL).upper()}"
        if len(reached) > 1:
            message = f"{shown} reaches more than one tool: {', '.join(reached)}"
            problems.append(Problem("", None, "error", message))
        elif not names.intersection(reached):
            close = difflib.get_close_matches(key, sorted(names), n=1)
            hint = f'; did you mean "{close[0]}"?' if close else ""
            problems.append(Problem("", None, "warning", f"{shown} names no tool{hint}"))
    return problems
