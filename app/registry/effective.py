"""What a function is really called with, as JSON: what rules about arguments look at.

A client sends one form of a value and the function may get another: a default, an alias, a text
that becomes a number or loses its spaces. A rule about the sent form could be passed by writing
the value differently.
"""

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python


class NoJsonForm(Exception):
    """An argument that cannot be looked at. ``name`` is the parameter's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def effective_arguments(
    keywords: Mapping[str, Any], names: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by the names that clients know, in JSON.

    Args:
        keywords: What the function is called with.
        names: Names of parameters that clients know by another one.
        defaults: Of parameters that keywords may leave out.

    Raises:
        NoJsonForm: A value has none.
    """
    found = {}
    for name, value in {**defaults, **keywords}.items():
        try:
            found[names.get(name, name)] = _plain(value)
        except Exception:  # noqa: BLE001  # serializers of the author's types run here
            raise NoJsonForm(names.get(name, name)) from None
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Decimal):
        # As the number that it is; pydantic's JSON is a text, about which `maximum` says nothing.
        return int(value) if value == value.to_integral_value() else float(value)
    members = _members(value)
    if members is not None:
        return {str(key): _plain(each) for key, each in members.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    return to_jsonable_python(value, by_alias=True)


def _members(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        own = {field.alias or name: getattr(value, name) for name, field in fields.items()}
        return {**own, **(value.model_extra or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value if isinstance(value, Mapping) else None
