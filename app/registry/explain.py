"""What is wrong with a value, for the model that has to mend it.

``jsonschema`` finds the errors; the sentences name the place and the rule and never repeat the
value, which may be a secret or a megabyte.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from jsonschema.protocols import Validator
from pydantic import ValidationError

MAX_ERRORS: Final = 8
MAX_FOUND: Final = 64
MAX_NAME: Final = 64
MAX_CHOICES: Final = 24


Error = Any
"""``jsonschema.ValidationError``; its attributes are declared as maybe unset, which they are not
for an error that a validator found."""


def explain(explainer: Validator, value: Any) -> list[str]:
    """One sentence per error, at most ``MAX_ERRORS``, most important first."""
    # Bounded before it is sorted: a list of a million wrong items has a million errors.
    found = islice(explainer.iter_errors(value), MAX_FOUND)
    errors = sorted(found, key=lambda error: (len(error.path), str(error.validator)))
    return _bounded(_unique(_sentence(error) for error in errors))


def explain_binding(error: ValidationError) -> list[str]:
    """The same for what a Python type refuses beyond its schema (a bad date, a validator)."""
    if (count := error.error_count()) > MAX_FOUND:
        return [f"{count} values do not have the form that is needed"]
    return _bounded(
        f"{_place(detail['loc'])}: {detail['msg'].removeprefix('Value error, ')}"
        for detail in error.errors(include_url=False, include_context=False, include_input=False)
    )


def explain_fields(explainer: Validator, value: Any) -> dict[str, str]:
    """The same for a flat object: one rule for each member that breaks one, by its name."""
    out: dict[str, str] = {}
    found: Iterable[Error] = islice(explainer.iter_errors(value), MAX_FOUND)
    for error in found:
        if error.validator == "required" and not error.absolute_path:
            missing = (name for name in error.validator_value if name not in value)
            out |= dict.fromkeys(missing, "is required")
        else:
            out.setdefault(str(next(iter(error.absolute_path), "")), _rule(error))
    return out


def explain_model(error: ValidationError) -> dict[str, str]:
    """The same for what a model refuses beyond its schema."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return {
        str(next(iter(detail["loc"]), "")): detail["msg"].removeprefix("Value error, ")
        for detail in reversed(details[:MAX_FOUND])
    }


def _bounded(sentences: Iterable[str]) -> list[str]:
    out = list(sentences)
    more = len(out) - MAX_ERRORS
    return [*out[:MAX_ERRORS], f"and {more} more"] if more > 0 else out


def _unique(sentences: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sentences))


def _sentence(error: Error) -> str:
    return f"{_place(error.absolute_path)}: {_rule(error)}"


def _rule(error: Error) -> str:
    if error.validator in ("anyOf", "oneOf") and error.context:
        return _alternatives(error)
    describe = _RULES.get(str(error.validator))
    return describe(error) if describe else f"does not satisfy {error.validator!r} of the schema"


def _place(path: Iterable[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{_name(step)}"
    return text.removeprefix(".") or "arguments"


def _name(name: str) -> str:
    short = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "..."
    return short if short.isprintable() else repr(short)


def _alternatives(error: Error) -> str:
    parts = [part for part in error.validator_value if isinstance(part, Mapping)]
    kinds = [part["type"] for part in parts if isinstance(part.get("type"), str)]
    if len(kinds) == len(error.validator_value) and _kind(error.instance) not in kinds:
        return f"must be {_or(kinds)}, not {_kind(error.instance)}"
    # Of the alternatives, tell of the one that came closest.
    nearest = max(error.context or [], key=lambda sub: (len(sub.path), sub.validator != "type"))
    return f"matches none of the allowed forms; nearest: {_sentence(nearest)}"


def _type(error: Error) -> str:
    expected = error.validator_value
    kinds = [expected] if isinstance(expected, str) else list(expected)
    if _kind(error.instance) == "number" and "integer" in kinds:
        return f"must be {_or(kinds)}; a fraction is not rounded"
    return f"must be {_or(kinds)}, not {_kind(error.instance)}"


def _required(error: Error) -> str:
    instance = error.instance
    missing = [_name(name) for name in error.validator_value if name not in instance]
    return f"missing required {', '.join(missing)}"


def _additional(error: Error) -> str:
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    known = list(schema.get("properties", {}))
    unknown = [_name(name) for name in error.instance if name not in known][:MAX_ERRORS]
    allowed = f"known: {', '.join(known[:MAX_CHOICES])}" if known else "it takes none"
    return f"unknown {', '.join(unknown)}; {allowed}"


def _enum(error: Error) -> str:
    choices = [repr(choice) for choice in error.validator_value[:MAX_CHOICES]]
    more = ", ..." if len(error.validator_value) > MAX_CHOICES else ""
    return f"must be one of {', '.join(choices)}{more}"


def _or(kinds: Sequence[str]) -> str:
    return " or ".join(kinds)


def _kind(value: Any) -> str:
    """The JSON type of a value."""
    for kind, name in (
        (bool, "boolean"),
        (str, "string"),
        (int, "integer"),
        (float, "number"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, kind):
            return name
    return "null"


_RULES: Final[Mapping[str, Callable[[Error], str]]] = {
    "type": _type,
    "required": _required,
    "additionalProperties": _additional,
    "enum": _enum,
    "const": lambda error: f"must be {error.validator_value!r}",
    "minimum": lambda error: f"must be at least {error.validator_value}",
    "maximum": lambda error: f"must be at most {error.validator_value}",
    "exclusiveMinimum": lambda error: f"must be greater than {error.validator_value}",
    "exclusiveMaximum": lambda error: f"must be less than {error.validator_value}",
    "multipleOf": lambda error: f"must be a multiple of {error.validator_value}",
    "minLength": lambda error: f"must have at least {error.validator_value} characters",
    "maxLength": lambda error: f"must have at most {error.validator_value} characters",
    "pattern": lambda error: f"must match the pattern {error.validator_value!r}",
    "minItems": lambda error: f"must have at least {error.validator_value} items",
    "maxItems": lambda error: f"must have at most {error.validator_value} items",
    "uniqueItems": lambda _: "must not have equal items",
    "minProperties": lambda error: f"must have at least {error.validator_value} members",
    "maxProperties": lambda error: f"must have at most {error.validator_value} members",
}
