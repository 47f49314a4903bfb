"""From a function's signature to JSON Schemas and converters, once at load."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

from docstring_parser import parse as parse_docstring
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreConfig, PydanticUndefined, SchemaSerializer, core_schema

from app.content import BLOCKS, ToolResult
from app.registry.binding import Bind, bind_as_is, bind_by_model
from app.registry.inline import inline_references
from app.registry.typed_dicts import with_usable_typed_dicts
from app.toolkit import Context, Header, ToolSpec
from app.toolkit.secret_names import is_secret_name

_SERIALIZER_CONFIG: Final = CoreConfig(ser_json_inf_nan="constants", ser_json_bytes="base64")


class SignatureError(ValueError):
    """A function that cannot be a tool as it stands; the text says why."""


class ToolJsonSchema(GenerateJsonSchema):
    """Pydantic's generator, less what costs tokens and tells a model nothing."""

    ignored_warning_kinds = {  # noqa: RUF012  # an instance variable to the base class
        "skipped-choice",
        "non-serializable-default",
    }

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic asks
        return False

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        out = super().bytes_schema(schema)
        out.pop("format", None)
        return {**out, "contentEncoding": "base64"}


@dataclass(frozen=True, slots=True)
class InputPlan:
    """How arguments become the function's keyword arguments.

    Attributes:
        schema: ``inputSchema``.
        bind: Makes keyword arguments of what satisfies the schema.
        context_parameter: Name of the parameter that takes the Context.
        names: Of parameters that clients know by another name: that one.
        defaults: Of parameters that ``bind`` leaves out where the client does.
    """

    schema: dict[str, Any]
    bind: Bind
    context_parameter: str | None
    names: Mapping[str, str]
    defaults: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """How a return value becomes content.

    Attributes:
        schema: ``outputSchema``, None where any value goes.
        to_plain: Value -> plain JSON data, by the declared type; None where none is declared.
    """

    schema: dict[str, Any] | None
    to_plain: Callable[[Any], Any] | None


def describe(spec: ToolSpec[..., Any]) -> tuple[str | None, Mapping[str, str]]:
    """The description for the model, and those of the parameters, from the docstring."""
    doc = parse_docstring(inspect.getdoc(spec.function) or "")
    parameters = {item.arg_name: item.description or "" for item in doc.params}
    text = "\n\n".join(part for part in (doc.short_description, doc.long_description) if part)
    if doc.returns is not None and doc.returns.description:
        text += f"\n\nReturns: {doc.returns.description}"
    return spec.description or text or None, parameters


def input_plan(spec: ToolSpec[..., Any], *, refuse_unknown: bool) -> InputPlan:
    """Compile the parameters of a tool.

    Raises:
        SignatureError: A parameter cannot be passed by name or has no JSON form.
    """
    hints = _hints(spec.function)
    parameters: list[inspect.Parameter] = []
    context_parameter: str | None = None
    takes_any = False
    for parameter in inspect.signature(spec.function).parameters.values():
        if _is_context(hints.get(parameter.name)):
            context_parameter = parameter.name
        elif parameter.kind is parameter.VAR_KEYWORD and spec.input_schema is not None:
            takes_any = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise SignatureError(
                f"parameter {parameter.name!r} cannot be passed by name; a tool takes no *args "
                "and no positional-only parameters"
            )
        elif parameter.kind is parameter.VAR_KEYWORD:
            raise SignatureError("**kwargs needs an input_schema= that says what may come")
        else:
            parameters.append(parameter)
    if spec.input_schema is not None:
        names = None if takes_any else frozenset(parameter.name for parameter in parameters)
        _check_own_schema(spec.input_schema, parameters, names)
        defaults = {
            each.name: each.default for each in parameters if each.default is not each.empty
        }
        schema = dict(spec.input_schema)
        return InputPlan(schema, bind_as_is(names), context_parameter, {}, defaults)
    _, descriptions = describe(spec)
    model, fields = _model(parameters, hints, descriptions, refuse_unknown=refuse_unknown)
    schema = schema_of(model.__pydantic_core_schema__, "validation")
    if not schema.get("properties"):
        schema.pop("properties", None)
    _finish_mirrored(schema)
    known = {name: model.model_fields[field].alias or name for name, field in fields}
    return InputPlan(schema, bind_by_model(model, fields), context_parameter, known, {})


def output_plan(spec: ToolSpec[..., Any]) -> OutputPlan:
    """Compile the return type of a tool.

    Raises:
        SignatureError: The declared type has no JSON form.
    """
    if not spec.structured:
        return OutputPlan(None, None)
    declared = _hints(spec.function).get("return", Any)
    own = dict(spec.output_schema) if spec.output_schema is not None else None
    if declared in (Any, object) or _mentions(declared, (*BLOCKS, ToolResult)):
        return OutputPlan(own, None)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(with_usable_typed_dicts(declared))
        serializer = SchemaSerializer(adapter.core_schema, _SERIALIZER_CONFIG)
        schema = own if own is not None else schema_of(adapter.core_schema, "serialization")
    except Exception as error:  # noqa: BLE001  # pydantic and the author's types raise many kinds
        raise SignatureError(f"the return type has no JSON form: {_first_line(error)}") from None

    def to_plain(value: Any) -> Any:
        return serializer.to_python(
            value, mode="json", by_alias=True, warnings=False, fallback=mapping_as_dict
        )

    return OutputPlan(schema, to_plain)


def mapping_as_dict(value: Any) -> Any:
    """What JSON cannot hold may still be a mapping, as the claims of a principal are.

    Raises:
        TypeError: It is none.
    """
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _check_own_schema(
    schema: Mapping[str, Any], parameters: list[inspect.Parameter], names: frozenset[str] | None
) -> None:
    """What the schema lets through must be something that the function can be called with."""
    required = schema.get("required", ())
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in required:
            raise SignatureError(
                f"input_schema does not require {parameter.name!r}, which has no default"
            )
    properties = schema.get("properties", {})
    lost = sorted(set(properties) - names) if names is not None else []
    if lost:
        raise SignatureError(
            f"input_schema has the properties {', '.join(lost)}, which are no parameters; take "
            "them all with **arguments"
        )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001  # whatever evaluating an annotation raises
        raise SignatureError(
            f"a type annotation cannot be resolved: {_first_line(error)}"
        ) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _is_context(hint: Any) -> bool:
    return hint is Context or Context in get_args(hint)


def _mentions(hint: Any, classes: tuple[type, ...]) -> bool:
    return hint in classes or any(_mentions(part, classes) for part in get_args(hint))


def _model(
    parameters: list[inspect.Parameter],
    hints: Mapping[str, Any],
    descriptions: Mapping[str, str],
    *,
    refuse_unknown: bool,
) -> tuple[type[BaseModel], tuple[tuple[str, str], ...]]:
    """A model of the parameters. Its fields have names of ours, with the parameters' as aliases,
    so that no parameter name (``self``, ``schema``, ``model_config``, ``_id``) can clash.
    """
    definitions: dict[str, Any] = {}
    fields = []
    for index, parameter in enumerate(parameters):
        field = f"p{index}"
        fields.append((parameter.name, field))
        hint = with_usable_typed_dicts(hints.get(parameter.name, Any))
        definitions[field] = _field(parameter, hint, descriptions.get(parameter.name, ""))
    config = ConfigDict(
        extra="forbid" if refuse_unknown else "ignore",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        protected_namespaces=(),
    )
    try:
        model: type[BaseModel] = create_model("Arguments", __config__=config, **definitions)
    except Exception as error:  # noqa: BLE001  # as above
        raise SignatureError(f"a parameter has no JSON form: {_first_line(error)}") from None
    return model, tuple(fields)


def _field(parameter: inspect.Parameter, hint: Any, description: str) -> tuple[Any, Any]:
    default = parameter.default
    metadata: list[Any] = list(getattr(hint, "__metadata__", ()))
    if isinstance(default, FieldInfo):  # ``x: int = Field(3, ge=0)``
        metadata.append(default)
        hint = Annotated[hint, default]
        default = default.default if default.default is not PydanticUndefined else ...
        if metadata[-1].default_factory is not None:
            default = Field(default_factory=metadata[-1].default_factory)
    elif default is parameter.empty:
        default = ...
    infos = [item for item in metadata if isinstance(item, FieldInfo)]
    own: dict[str, Any] = {}
    if not any(info.alias or info.validation_alias for info in infos):
        own["alias"] = parameter.name
    if description and not any(info.description for info in infos):
        own["description"] = description
    is_mirrored = any(isinstance(item, Header) for item in metadata)
    if is_mirrored and default is ... and type(None) in get_args(get_args(hint)[0]):
        default = None
    return Annotated[hint, Field(**own)], default


def refuse_secret(name: str, header: str) -> None:
    """Tools, "x-mcp-header": sensitive parameters should not be mirrored.

    Raises:
        SignatureError: The parameter or the header is named like a secret.
    """
    if is_secret_name(name) or is_secret_name(header):
        raise SignatureError(
            f"parameter {name!r} looks like a secret and is mirrored in the header {header!r}: "
            "every proxy on the way could read it; pass secrets through [overrides.*.settings]"
        )


def schema_of(core: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """The JSON Schema of a type, its definitions written out where they are used."""
    schema = ToolJsonSchema(by_alias=True).generate(core, mode=mode)
    for name, definition in schema.get("$defs", {}).items():
        if definition.get("title") == name:  # the class's name, not a title that somebody gave
            del definition["title"]
    schema = inline_references(schema)
    schema.pop("title", None)
    return {"type": schema.pop("type"), **schema} if "type" in schema else schema


def _finish_mirrored(node: Any) -> None:
    """Mirrored properties: the primitive type alone, no null default, safe integer bounds."""
    if isinstance(node, list):
        for item in node:
            _finish_mirrored(item)
    if not isinstance(node, dict):
        return
    for name, child in (node.get("properties") or {}).items():
        _lift_mirrored(child)
        if isinstance(child, dict) and isinstance(child.get("x-mcp-header"), str):
            if child.get("writeOnly") or child.get("format") == "password":
                raise SignatureError(f"parameter {name!r} is a secret type and cannot be mirrored")
            if child.get("default", ...) is None:
                del child["default"]
    for child in node.values():
        _finish_mirrored(child)


def _lift_mirrored(node: Any) -> None:
    """``Annotated[str, Header(...)] | None`` means the same as ``Annotated[str | None, ...]``."""
    choices = node.get("anyOf", []) if isinstance(node, dict) else []
    marked = [choice for choice in choices if "x-mcp-header" in choice]
    if len(marked) == 1 and all(choice in (marked[0], {"type": "null"}) for choice in choices):
        del node["anyOf"]
        node.update(marked[0])
