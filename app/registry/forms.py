"""From a pydantic model to the form that a user fills in, and from the answer to the model.

Forms are flat: strings, numbers, booleans and choices (Elicitation, "Requested Schema"). They go
through the client, so nothing secret may be asked in one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import jsonschema_rs
from jsonschema.protocols import Validator
from pydantic import BaseModel, ValidationError

from app.protocol.asking import BadAnswer
from app.protocol.jsonrpc import dumps
from app.registry.explain import explain, explain_binding
from app.registry.schemas import compile_explainer
from app.registry.signature import schema_of
from app.toolkit.secret_names import is_sensitive_name

M = TypeVar("M", bound=BaseModel)

FORMATS: Final = ("email", "uri", "date", "date-time")
"""``StringSchema.format`` of the schema."""

LINK: Final = re.compile(r"\bhttps?://|\bwww\.", re.IGNORECASE)

_KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("type", "title", "description", "minLength", "maxLength", "format", "default"),
    "integer": ("type", "title", "description", "minimum", "maximum", "default"),
    "number": ("type", "title", "description", "minimum", "maximum", "default"),
    "boolean": ("type", "title", "description", "default"),
    "array": ("type", "title", "description", "minItems", "maxItems", "default"),
}
"""Members of a property that the schema knows. What else a type demands is checked here alone."""


class FormError(ValueError):
    """A model that cannot be asked in a form; the text says which field and what would be right."""


@dataclass(frozen=True, slots=True)
class Form(Generic[M]):
    """A model as a form.

    Attributes:
        schema: ``requestedSchema``.
    """

    model: type[M]
    schema: dict[str, Any]
    _accepts: jsonschema_rs.Draft202012Validator
    _explainer: Validator

    def read(self, content: Any) -> tuple[M, dict[str, Any]]:
        """The model that ``content`` of an answer fills in, and the part of it that counts.

        Members that the form does not have are left out; null is as good as absent.

        Raises:
            BadAnswer: It does not fit the form, or what the model demands beyond it.
        """
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise BadAnswer('"content" must be an object')
        known = self.schema["properties"]
        content = {
            key: value for key, value in content.items() if key in known and value is not None
        }
        if not self._accepts.is_valid(content):
            reasons = explain(self._explainer, content) or ["a text has not the form asked for"]
            raise BadAnswer("; ".join(each.removeprefix("arguments: ") for each in reasons))
        try:
            return self.model.model_validate_json(dumps(content)), content
        except ValidationError as error:
            reasons = explain_binding(error)
            raise BadAnswer(
                "; ".join(each.removeprefix("arguments: ") for each in reasons)
            ) from None


_CACHED: Final = "__mcp_form__"


def form_of(model: type[M]) -> Form[M]:
    """The form of a model, compiled once.

    Raises:
        FormError: It is no flat model of what forms can ask.
    """
    # Kept by the class itself: a table here would keep the classes of modules that were let go.
    form: Form[M] | None = getattr(model, "__dict__", {}).get(_CACHED)
    if form is None:
        form = _compile(model)
        type.__setattr__(model, _CACHED, form)
    return form


def refuse_links(text: str, what: str) -> None:
    """Elicitation, "Safe URL Handling": no text of a question carries a link.

    Raises:
        FormError: This one does.
    """
    if LINK.search(text):
        raise FormError(f"{what} has a link in it; send users to a URL with ctx.elicit_url")


def _compile(model: type[M]) -> Form[M]:
    given: Any = model
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise FormError("a form is a pydantic model: a subclass of BaseModel with its fields")
    name = model.__name__
    try:
        described = schema_of(model.__pydantic_core_schema__, "validation")
    except Exception as error:  # noqa: BLE001  # pydantic and the author's types raise many kinds
        reason = str(error).strip().partition("\n")[0]
        raise FormError(f"{name} has no JSON form: {reason}") from None
    properties = described.get("properties")
    if described.get("type") != "object" or not properties:
        raise FormError(f"{name} must be a model with fields")
    required = described.get("required", [])
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            key: _property(f"{name}.{key}", key, value, key in required)
            for key, value in properties.items()
        },
    }
    if required:
        schema["required"] = list(required)
    accepts = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    return Form(model, schema, accepts, compile_explainer(schema, what=name))


def _property(place: str, name: str, node: Mapping[str, Any], required: bool) -> dict[str, Any]:
    node = _without_null(place, node, required)
    if node.get("writeOnly") or node.get("format") == "password" or is_sensitive_name(name):
        raise FormError(
            f"{place} looks like a secret, and answers to a form pass through the client; ask for "
            "it on a page of your own with ctx.elicit_url"
        )
    for text in (node.get("title", ""), node.get("description", "")):
        refuse_links(text, f"the title or description of {place}")
    kind = str(node.get("type"))
    if kind == "array":
        choices = _choices(place, node.get("items", {}))
        if "oneOf" in choices:  # as the schema has it for choices of several
            choices = {"anyOf": choices["oneOf"]}
        out = {"items": choices}
        if not choices:
            raise _refusal(place)
    elif kind in _KEPT:
        out = _choices(place, node)
        if "format" in node and node["format"] not in FORMATS:
            raise FormError(f"{place} has the format {node['format']!r}; forms know {FORMATS}")
        if "contentEncoding" in node or "contentMediaType" in node:
            raise _refusal(place)
    else:
        raise _refusal(place)
    kept = {key: node[key] for key in _KEPT[kind] if key in node}
    if kind == "integer":  # the schema knows no exclusive bounds; of whole numbers it needs none
        if "exclusiveMinimum" in node:
            kept["minimum"] = node["exclusiveMinimum"] + 1
        if "exclusiveMaximum" in node:
            kept["maximum"] = node["exclusiveMaximum"] - 1
    return {**kept, **out}


def _without_null(place: str, node: Mapping[str, Any], required: bool) -> dict[str, Any]:
    """``X | None`` is a field that may be left out, which forms say by not requiring it."""
    out = dict(node)
    kinds = [each for each in node.get("anyOf", ()) if each.get("type") != "null"]
    if len(kinds) == 1:
        if required:
            raise FormError(f"{place} may be None and has no default; write `= None`")
        del out["anyOf"]
        out = {**kinds[0], **out}
    if out.get("default", ...) is None:
        del out["default"]
    return out


def _choices(place: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of a text, as the schema writes them; empty where there are none."""
    titled: list[dict[str, Any]] = node.get("oneOf", [])
    values: list[Any] = [each.get("const") for each in titled] or node.get("enum", [])
    if "const" in node:
        values = [node["const"]]
    if not all(isinstance(each, str) for each in values):
        raise FormError(f"{place} has choices that are no texts; forms know no others")
    for each in titled:
        refuse_links(each["title"], f"a title of {place}")
    if titled:
        return {"type": "string", "oneOf": titled}
    return {"type": "string", "enum": values} if values else {}


def _refusal(place: str) -> FormError:
    return FormError(
        f"{place} is nothing that a form can ask: those are str, int, float, bool, date, "
        "datetime, AnyUrl, a Literal or Enum of texts, and a list of such choices. Ask for less, "
        "or on a page of your own with ctx.elicit_url"
    )
