"""Walking a JSON Schema: which of its mappings are schemas, and which are names or data."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAME_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose values map names, which the author chose, to schemas."""

DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are instances, in which nothing is a keyword."""

Path = tuple[str | int, ...]


def subschemas(schema: Any, limit: int) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Every schema object in a schema with its path, the root first.

    Args:
        limit: Parts, of any kind, that are looked at.

    Raises:
        ValueError: There are more.
    """
    stack: list[tuple[Any, Path]] = [(schema, ())]
    count = 0
    while stack:
        node, path = stack.pop()
        count += 1
        if count > limit:
            raise ValueError(f"more than {limit} parts")
        if isinstance(node, Mapping):
            yield node, path
        stack.extend(reversed(list(children(node, path))))  # in the order of the author


def children(node: Any, path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """The schemas, and lists of schemas, directly inside a schema or a list of them."""
    if isinstance(node, list):
        yield from ((item, (*path, index)) for index, item in enumerate(node))
    elif isinstance(node, Mapping):
        for key, child in node.items():
            if key in NAME_MAPS and isinstance(child, Mapping):
                yield from ((value, (*path, key, name)) for name, value in child.items())
            elif key not in DATA and isinstance(child, (Mapping, list)):
                yield child, (*path, key)
