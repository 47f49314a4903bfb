"""``typing.TypedDict`` for pydantic before Python 3.12."""

import sys
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions


def with_usable_typed_dicts(hint: Any) -> Any:
    """``typing.TypedDict`` before Python 3.12 lacks what pydantic needs; rebuild such types."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing":
        return _rebuilt_typed_dict(hint)
    arguments = get_args(hint)
    changed = tuple(with_usable_typed_dicts(part) for part in arguments)
    unchanged = all(new is old for new, old in zip(changed, arguments, strict=True))
    if unchanged or get_origin(hint) is Literal:
        return hint
    if get_origin(hint) is Annotated:
        return Annotated[(changed[0], *hint.__metadata__)]
    if isinstance(hint, types.UnionType):
        return Union[changed]  # noqa: UP007  # built from a tuple
    return hint.copy_with(changed) if hasattr(hint, "copy_with") else hint.__origin__[changed]


def _rebuilt_typed_dict(hint: Any) -> Any:
    members: dict[str, Any] = {}
    for key, value in typing.get_type_hints(hint, include_extras=True).items():
        required = key in hint.__required_keys__
        wrapper: Any = typing_extensions.Required if required else typing_extensions.NotRequired
        members[key] = wrapper[with_usable_typed_dicts(value)]
    make: Any = typing_extensions.TypedDict
    rebuilt = make(hint.__name__, members)
    rebuilt.__doc__, rebuilt.__module__ = hint.__doc__, hint.__module__
    return rebuilt
