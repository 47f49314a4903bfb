"""From a pydantic model to the form that a user fills in, and from the answer to the model.

Forms are flat: strings, numbers, booleans and choices (Elicitation, "Requested Schema"). They go
through the client, so nothing secret may be asked in one; a page of this server may ask for it.
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
from app.registry.explain import explain, explain_binding, explain_fields, explain_model
from app.registry.schemas import compile_explainer
from app.registry.signature import schema_of
from app.toolkit.secret_names import is_sensitive_name

M = TypeVar("M", bound=BaseModel)

FORMATS: Final[Mapping[str, str]] = {
    "email": "name@example.com",
    "uri": "https://example.com/",
    "date": "2027-01-31",
    "date-time": "2027-01-31T09:00:00Z",
}
"""``StringSchema.format`` of the schema, each with an example."""

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
        schema: ``requestedSchema``. On a page, fields that hold a secret are ``writeOnly``.
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

    def problems(self, content: Mapping[str, Any]) -> dict[str, str]:
        """What is wrong with what was typed, by field; "" is the form as a whole.

        No text has a secret in it.

        Args:
            content: Of fields that the form has.
        """
        found = explain_fields(self._explainer, content)
        for error in self._accepts.iter_errors(content):
            name = str(next(iter(error.instance_path), ""))
            example = FORMATS.get(self.schema["properties"].get(name, {}).get("format"))
            if example is not None:
                found.setdefault(name, f"must look like {example}")
        if not found:
            try:
                self.model.model_validate_json(dumps(content))
            except ValidationError as error:
                found = explain_model(error)
        secrets = [str(content[name]) for name in self.secrets if name in content]
        # The sentences of an author's validator may quote what it was given.
        return {
            name: "is not what is asked for" if any(each in text for each in secrets) else text
            for name, text in found.items()
        }

    @property
    def secrets(self) -> list[str]:
        """The fields that hold a secret."""
        fields: Mapping[str, Any] = self.schema["properties"]
        return [name for name, field in fields.items() if "writeOnly" in field]


def form_of(model: type[M], *, on_page: bool = False) -> Form[M]:
    """The form of a model, compiled once.

    Args:
        on_page: It is filled in on a page of this server, so it may ask for secrets, and its
            texts may have links: they are shown as text.

    Raises:
        FormError: It is no flat model of what forms can ask.
    """
    # Kept by the class itself: a table here would keep the classes of modules that were let go.
    kept = "__mcp_page__" if on_page else "__mcp_form__"
    form: Form[M] | None = getattr(model, "__dict__", {}).get(kept)
    if form is None:
        form = _compile(model, on_page=on_page)
        type.__setattr__(model, kept, form)
    return form


def refuse_links(text: str, what: str) -> None:
    """Elicitation, "Safe URL Handling": no text of a question carries a link.

    Raises:
        FormError: This one does.
    """
    if LINK.search(text):
        raise FormError(f"{what} has a link in it; send users to a URL with ctx.elicit_url")


def _compile(model: type[M], *, on_page: bool) -> Form[M]:
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
            key: _field(f"{name}.{key}", key, value, required=key in required, on_page=on_page)
            for key, value in properties.items()
        },
    }
    if required:
        schema["required"] = list(required)
    accepts = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    return Form(model, schema, accepts, compile_explainer(schema, what=name))


def _field(
    place: str, name: str, node: Mapping[str, Any], *, required: bool, on_page: bool
) -> dict[str, Any]:
    node = _without_null(place, node, required)
    is_secret = bool(node.get("writeOnly")) or node.get("format") == "password"
    if not (is_secret or is_sensitive_name(name)):
        return _property(place, node, on_page=on_page)
    if not on_page:
        raise FormError(
            f"{place} looks like a secret, and answers to a form pass through the client; ask for "
            "it on a page with ctx.elicit_page"
        )
    plain = {key: value for key, value in node.items() if key not in ("format", "default")}
    out = _property(place, plain if is_secret else node, on_page=on_page)
    if out["type"] in ("boolean", "array") or "enum" in out or "oneOf" in out:
        return out  # a choice, which is not typed
    out.pop("default", None)
    return {**out, "writeOnly": True}


def _property(place: str, node: Mapping[str, Any], *, on_page: bool) -> dict[str, Any]:
    if not on_page:
        for text in (node.get("title", ""), node.get("description", "")):
            refuse_links(text, f"the title or description of {place}")
    kind = str(node.get("type"))
    if kind == "array":
        out = {"items": _choices_of_several(place, node.get("items", {}))}
    elif kind in _KEPT:
        out = _choices(place, node)
        if "format" in node and node["format"] not in FORMATS:
            raise FormError(
                f"{place} has the format {node['format']!r}; forms know {tuple(FORMATS)}"
            )
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
    names: list[str] = node.get("enumNames", [])
    for name in names:
        refuse_links(name, f"a title of {place}")
    if names:
        return {"type": "string", "enum": values, "enumNames": names}
    return {"type": "string", "enum": values} if values else {}


def _choices_of_several(place: str, items: Mapping[str, Any]) -> dict[str, Any]:
    choices = _choices(place, items)
    if not choices:
        raise _refusal(place)
    if "enumNames" in choices:
        raise FormError(f"{place} is a choice of several, which has no enumNames")
    return {"anyOf": choices["oneOf"]} if "oneOf" in choices else choices  # as the schema has it


def _refusal(place: str) -> FormError:
    return FormError(
        f"{place} is nothing that a form can ask: those are str, int, float, bool, date, "
        "datetime, AnyUrl, a Literal or Enum of texts, and a list of such choices. Ask for less, "
        "or on a page of your own with ctx.elicit_url"
    )
