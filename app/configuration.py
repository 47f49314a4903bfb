"""Reads ``config.toml`` and the environment into ``Settings``, and explains what is wrong."""

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from app.settings import ENVIRONMENT_TOOL, Settings, ToolOverride

ENV_PREFIX: Final = "MCP__"
DEFAULT_FILE: Final = Path("config.toml")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the configuration.

    Attributes:
        key: Path of the key, for example ``server.port``.
        source: The file or environment variable that it came from.
    """

    key: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.source}: {self.key}: {self.message}" if self.key else self.message


class ConfigurationError(Exception):
    """The configuration cannot be used. ``problems`` has every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def load_settings(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Settings from a file, overlaid by the environment, overlaid by command line flags.

    Args:
        file: The TOML file; None for ``config.toml`` if there is one.
        environ: Default: the environment of the process.
        flags: Section to key to value, from the command line; they win.

    Raises:
        ConfigurationError: With every problem found.
    """
    values: dict[str, Any] = {}
    source = "the defaults"
    if file is not None or DEFAULT_FILE.is_file():
        file = file or DEFAULT_FILE
        values, source = _read_toml(file), str(file)
    sources: dict[str, str] = {}
    problems = _overlay_environment(values, os.environ if environ is None else environ, sources)
    for section, keys in (flags or {}).items():
        for key, value in keys.items():
            _table(values, section)[key] = value
            sources[f"{section}.{key}"] = "command line"
    problems += _read_keys(values, source, sources)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += [
            _explain(detail, values, source, sources)
            for detail in error.errors(include_url=False, include_context=False)
        ]
    if problems or settings is None:
        raise ConfigurationError(problems)
    return settings


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            [Problem("", f"{file}: cannot be read: {error.strerror}", str(file))]
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            [Problem("", f"{file}: not valid TOML: {error}", str(file))]
        ) from None


def _table(values: dict[str, Any], section: str) -> dict[str, Any]:
    table = values.setdefault(section, {})
    return table if isinstance(table, dict) else {}


def _overlay_environment(
    values: dict[str, Any], environ: Mapping[str, str], sources: dict[str, str]
) -> list[Problem]:
    """Put ``MCP__SECTION__KEY`` variables over the file's values.

    Lists and tables are written as JSON; so may any value be. ``MCP__OVERRIDES__NAME__KEY``
    names a tool in upper case with ``_`` for ``.`` and ``-``; the registry matches it.
    ``MCP__POLICIES`` holds all rules.
    """
    problems = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX):
            continue
        path = variable.removeprefix(ENV_PREFIX).lower().split("__")
        depth = {"overrides": 3, "policies": 1}.get(path[0], 2)
        if len(path) < depth or not all(path) or (depth == 1 and len(path) > 1):
            problems.append(
                Problem(variable, "is not of the form MCP__SECTION__KEY", "environment")
            )
            continue
        if path[0] not in Settings.model_fields:
            problems.append(
                Problem(path[0], _unknown("section", path[0], Settings), f"environment {variable}")
            )
            continue
        node = values
        if path[0] == "overrides":
            path[1] = ENVIRONMENT_TOOL + path[1]
        for step in path[:-1]:
            node = _table(node, step)
        node[path[-1]] = _environment_value(path, text)
        sources[".".join(path)] = f"environment {variable}"
    return problems


def _environment_value(path: Sequence[str], text: str) -> Any:
    """JSON where it is JSON and the key is not a plain string; else the text itself."""
    section = Settings.model_fields.get(path[0])
    model = section.annotation if section else None
    if isinstance(model, type) and issubclass(model, BaseModel) and len(path) == 2:
        field = model.model_fields.get(path[1])
        if field is not None and field.annotation in (str, str | None, Path, Path | None):
            return text
        if field is not None and text[:1] not in "[{" and get_origin(field.annotation) is tuple:
            return [item.strip() for item in text.split(",") if item.strip()]
    if path[0] == "overrides" and path[-1] in ("title", "description"):
        return text
    if "settings" in path:
        # A tool's own settings: text unless it is plainly JSON data.
        return _json(text) if text[:1] in "[{" else text
    return _json(text)


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _read_keys(values: dict[str, Any], source: str, sources: dict[str, str]) -> list[Problem]:
    """Put the keys that ``[secrets] keys_file`` holds where the others would stand.

    Empty lines, and lines that begin with ``#``, are none. No message repeats a line.
    """
    table = values.get("secrets")
    file = table.get("keys_file") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(file, str):
        return []

    def problem(message: str) -> list[Problem]:
        return [Problem("secrets.keys_file", message, sources.get("secrets.keys_file", source))]

    if table.get("keys"):
        return problem("stands beside keys; give the one or the other")
    try:
        lines = [line.strip() for line in Path(file).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        return problem(f"{file} cannot be read: {type(error).__name__}")
    table["keys"] = [line for line in lines if line and not line.startswith("#")]
    sources["secrets.keys"] = file
    return [] if table["keys"] else problem(f"{file} holds no key")


_SHAPES: Final = {
    "tuple_type": 'must be a list such as ["a", "b"]; in the environment, JSON',
    "dict_type": "must be a table such as { name = { ... } }",
    "mapping_type": "must be a table such as { name = { ... } }",
    "model_type": "must be a table such as { key = ... }",
    "model_attributes_type": "must be a table such as { key = ... }",
}
"""What to write, where the library would speak of its own types."""


def _explain(
    detail: ErrorDetails, values: dict[str, Any], source: str, sources: Mapping[str, str]
) -> Problem:
    path = [str(step) for step in detail["loc"]]
    key = ".".join(path)
    if not path:  # about sections together; the sentence names them
        return Problem("", detail["msg"].removeprefix("Value error, "), source)
    parents = (".".join(path[:end]) for end in range(len(path), 0, -1))
    where = next((sources[each] for each in parents if each in sources), source)
    if path[:1] == ["overrides"] and (dotted := _unquoted_name(path, values)):
        return Problem(
            f"overrides.{dotted}",
            f'the name of this tool has a dot, so the table must be quoted: [overrides."{dotted}"]',
            where,
        )
    if detail["type"] == "extra_forbidden":
        kind = "section" if len(path) == 1 else "key"
        return Problem(key, _unknown(kind, path[-1], _model_at(path[:-1])), where)
    field = _field_at(path)
    message = _SHAPES.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "tuple_type" and _model_at([*path, "0"]) is not None:
        message = f"must be tables: write [[{key}]], with two brackets, above each"
        if where.startswith("environment"):
            message = 'must be a JSON list of objects such as [{"key": "value"}]'
    default = f" ({field.description})" if field is not None and field.description else ""
    return Problem(key, message[:1].lower() + message[1:] + default, where)


def _unquoted_name(path: Sequence[str], values: Mapping[str, Any]) -> str | None:
    """``[overrides.finance.convert]`` parses as nested tables: the full dotted name, if so."""
    if len(path) < 3:
        return None
    node: Any = values.get("overrides", {}).get(path[1])
    names = [path[1]]
    for step in path[2:]:
        node = node.get(step) if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping) or step in ToolOverride.model_fields:
            break
        names.append(step)
    # A further table that holds keys of an override is a name that was not quoted.
    while isinstance(node, Mapping) and len(node) == 1:
        ((step, child),) = node.items()
        if step in ToolOverride.model_fields or not isinstance(child, Mapping):
            break
        names.append(step)
        node = child
    return ".".join(names) if len(names) > 1 else None


def _model_at(path: Sequence[str]) -> type[BaseModel] | None:
    """The model that a path leads to; numbers of entries and names of tools are steps too."""
    found: Any = Settings
    for step in path:
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(step)
            found = field.annotation if field is not None else None
            if get_origin(found) is UnionType:
                found = _inside(found)
        else:
            found = _inside(found)  # of a tuple or a mapping; the step is a number or a name
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _inside(annotation: Any) -> Any:
    """What a tuple, a mapping or an optional value holds; the first model among it."""
    models = [
        each
        for each in get_args(annotation)
        if isinstance(each, type) and issubclass(each, BaseModel)
    ]
    return models[0] if models else None


def _field_at(path: Sequence[str]) -> Any:
    model = _model_at(path[:-1])
    return model.model_fields.get(path[-1]) if model is not None else None


def _unknown(kind: str, name: str, model: type[BaseModel] | None) -> str:
    known = sorted(model.model_fields) if model is not None else []
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"unknown {kind}{hint or '.'} Known: {', '.join(known)}." if known else f"unknown {kind}"
