"""Fields of a form on a page: how each is shown, and what a browser sends for it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

Json = Mapping[str, Any]
Sent = Mapping[str, Sequence[str]]
"""What a browser sent, by name."""

MAX_FIELDS: Final = 1000
MAX_NUMBER: Final = 2**63
"""Beyond this a whole number has no exact place in every JSON."""
_INPUTS: Final = {"email": "email", "uri": "url", "date": "date"}
"""Kinds of inputs by format. (``datetime-local`` has no zone, and ``date-time`` needs one.)"""


class Field(NamedTuple):
    """A field as the template shows it.

    Attributes:
        id: For its label.
        kind: ``select``, ``choices``, ``checkbox``, or the type of an input.
        value: What it shows; never a secret.
        choices: Value and label of each.
    """

    name: str
    id: str
    kind: str
    label: str
    description: str
    required: bool
    value: Any
    choices: Sequence[tuple[str, str]]


def parse_form(body: bytes) -> Sent:
    """A body of ``application/x-www-form-urlencoded``.

    Raises:
        ValueError: It is none.
    """
    pairs = parse_qsl(
        body.decode("ascii"),
        keep_blank_values=True,
        strict_parsing=True,
        errors="strict",
        max_num_fields=MAX_FIELDS,
    )
    sent: dict[str, list[str]] = {}
    for name, value in pairs:
        sent.setdefault(name, []).append(value)
    return sent


def content_of(schema: Json, sent: Sent) -> dict[str, Any]:
    """What was filled in, as JSON. What the form does not have is left out.

    A text that is no number where one is asked for stays a text, and two values where one is
    asked for stay two: the schema refuses them.
    """
    content: dict[str, Any] = {}
    for name, node in schema["properties"].items():
        values = sent.get(name, ())
        match node["type"]:
            case "boolean":
                content[name] = "true" in values
            case "array":
                content[name] = list(values)
            case kind:
                filled = [_value(kind, each) for each in values if each]
                if filled:
                    content[name] = filled[0] if len(filled) == 1 else filled
    return content


def fields_of(schema: Json, content: Json | None) -> Iterator[Field]:
    """The fields of a form.

    Args:
        content: What was filled in before; None: nothing, so defaults are shown.
    """
    for number, (name, node) in enumerate(schema["properties"].items()):
        shown = {name: node.get("default")} if content is None else content
        value = shown.get(name)
        kind, choices = _kind(node)
        if kind == "choices":
            value = value if isinstance(value, list) else []
        elif kind == "password" or value is None or isinstance(value, list):
            value = ""
        yield Field(
            name=name,
            id=f"field-{number}",
            kind=kind,
            label=node.get("title") or name.replace("_", " ").capitalize(),
            description=node.get("description", ""),
            required=name in schema.get("required", ()),
            value=value,
            choices=choices,
        )


def _kind(node: Json) -> tuple[str, Sequence[tuple[str, str]]]:
    if node["type"] == "array":
        return "choices", _choices(node["items"])
    if choices := _choices(node):
        return "select", choices
    if "writeOnly" in node:
        return "password", ()
    kinds = {"boolean": "checkbox", "integer": "number", "number": "number"}
    return kinds.get(node["type"]) or _INPUTS.get(node.get("format", ""), "text"), ()


def _choices(node: Json) -> Sequence[tuple[str, str]]:
    titled = node.get("oneOf") or node.get("anyOf") or ()
    plain = ((value, value) for value in node.get("enum", ()))
    return [*((each["const"], each["title"]) for each in titled), *plain]


def _value(kind: str, text: str) -> Any:
    if kind not in ("integer", "number"):
        return text
    try:
        number = int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return text
    return number if abs(number) < MAX_NUMBER else text  # nor is NaN below anything
