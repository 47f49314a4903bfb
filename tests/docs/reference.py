"""The tables of `docs/configuration.md`, made from the code that they describe.

`python -m tests.docs.reference` writes them into the page; a test compares.
"""

import json
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import AwareDatetime, BaseModel, SecretStr
from pydantic.fields import FieldInfo

from app.cli.main import add_all_commands
from app.registry.guards import InjectionOptions, RedactOptions
from app.settings import (
    ApiKeySettings,
    BrowserSettings,
    Conditions,
    HookSettings,
    IntrospectionSettings,
    IssuerSettings,
    PolicySettings,
    Requirement,
    Settings,
    ToolOverride,
    ToolRate,
)
from app.settings.auth import ClaimSettings
from tests.docs.markdown import DOCS
from tests.support.server import inline

PAGE = DOCS / "configuration.md"
_PLACE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_NAMES: Mapping[Any, str] = {
    str: "text",
    Path: "path",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    AwareDatetime: "date and time with zone",
    SecretStr: "secret",
}
_CONFIGURED = {"config", "tools", "host", "port", "reload", "log_format", "log_level", "url"}
"""Options whose default is a setting, or where settings are looked for."""

NESTED: Mapping[str, type[BaseModel]] = {
    "[[auth.issuers]]": IssuerSettings,
    "[auth.issuers.claims]": ClaimSettings,
    "[auth.issuers.introspection]": IntrospectionSettings,
    "[auth.issuers.browser]": BrowserSettings,
    "[[auth.api_keys]]": ApiKeySettings,
    "[[policies]]": PolicySettings,
    "[policies.requires]": Requirement,
    "[policies.conditions]": Conditions,
    "[[limits.rates]]": ToolRate,
    "[[hooks]]": HookSettings,
    "[hooks.options] redact": RedactOptions,
    "[hooks.options] injection": InjectionOptions,
}


def sections() -> dict[str, type[BaseModel]]:
    """The settings' model of each section that has one."""
    return {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def commands() -> dict[str, list[Any]]:
    """Arguments and options by command."""
    group: Any = typer.main.get_command(add_all_commands())
    found = {}
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command.params
        else:
            found |= {f"{name} {each}": inner[each].params for each in inner}
    return found


def settings_table(section: str, model: type[BaseModel]) -> str:
    """One row per key of a section."""
    prefix = "MCP__OVERRIDES__NAME" if model is ToolOverride else f"MCP__{section.upper()}"
    rows = ["| Key | Value | Default | Environment | Meaning |", "|---|---|---|---|---|"]
    for key, field in model.model_fields.items():
        variable = f"{prefix}__{key.upper()}" + ("__KEY" if key == "settings" else "")
        cells = (
            f"`{key}`",
            _kind(field.annotation) + _bounds(field),
            _default(field),
            f"`{variable}`",
            field.description or "",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def nested_table(model: type[BaseModel]) -> str:
    """One row per key of a table that stands inside a section."""
    rows = ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
    for key, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field)
        cells = (
            f"`{key}`",
            _kind(field.annotation) + _bounds(field),
            default,
            field.description or "",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _kind(annotation: Any) -> str:
    if annotation in _NAMES:
        return _NAMES[annotation]
    arguments = [item for item in get_args(annotation) if item not in (type(None), ...)]
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(item)}`" for item in arguments)
    if origin in (Union, types.UnionType, Annotated):
        return _kind(arguments[0])
    if origin is tuple:
        inner = _kind(arguments[0])
        return f"list of {inner}" if inner.endswith("`") else f"list of {inner}s"
    is_table = issubclass(annotation if origin is None else origin, (Mapping, BaseModel))
    assert is_table, annotation
    return "table"


def _bounds(field: FieldInfo) -> str:
    words = {"gt": "above {:,}", "ge": "at least {:,}", "le": "at most {:,}"}
    words["max_length"] = "at most {:,} characters"
    found = [
        words[name].format(getattr(item, name))
        for item in field.metadata
        for name in words
        if getattr(item, name, None) is not None
    ]
    return "".join(f", {each}" for each in found)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, SecretStr):  # of a default, which is none
        value = value.get_secret_value()
    match value:
        case None:
            return "none"
        case Path():
            shown = f'"{value}"'
        case BaseModel():
            return "its defaults"
        case (BaseModel(), *_):
            shown = inline([each.model_dump() for each in value]).replace(".0", "")
        case float():
            shown = f"{value:g}"
        case _:
            shown = json.dumps(value)  # a tuple becomes a list
    return f"`{shown}`"


def command_table(name: str) -> str:
    """One row per argument and option of a command."""
    if not commands()[name]:
        return "It takes no options."
    rows = ["| Option | Meaning | Default |", "|---|---|---|"]
    for parameter in commands()[name]:
        if parameter.param_type_name == "argument":
            shown = f"`{parameter.name.upper()}`"
        else:
            shown = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
        text = parameter.help or ""
        said = re.search(r" \[default: (.+)\]$", text)
        default = parameter.default
        if said:
            text, default = text[: said.start()], said[1]
        elif parameter.required:
            default = "required"
        elif default is None:
            default = "as configured" if parameter.name in _CONFIGURED else "none"
        elif default is False:
            default = "off"
        rows.append(f"| {shown} | {text} | {default} |")
    return "\n".join(rows)


def tables() -> dict[str, str]:
    """Every table by the name that its place in the page has."""
    found = {f"[{name}]": settings_table(name, model) for name, model in sections().items()}
    found |= {name: nested_table(model) for name, model in NESTED.items()}
    found['[overrides."NAME"]'] = settings_table("overrides", ToolOverride)
    return found | {name: command_table(name) for name in commands()}


def filled(text: str) -> str:
    """The page with its tables as they should be."""
    made = tables()
    return _PLACE.sub(lambda place: f"{place[1]}\n{made[place[2]]}\n\n{place[3]}", text)


def places(text: str) -> list[str]:
    """The names of the tables that the page has a place for."""
    return [place[2] for place in _PLACE.finditer(text)]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
