"""Puts definitions where they are used; many hosts do not follow ``$ref``."""

from collections.abc import Mapping
from typing import Any, Final

from app.protocol.jsonschema import DATA, NAME_MAPS, subschemas

MAX_PARTS: Final = 20_000


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without ``$defs``, except for recursive ones behind a local ``$ref``."""
    return _Inliner(schema.get("$defs", {})).inline(schema)


class _Inliner:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._recursive = {name for name in definitions if _reaches_itself(name, definitions)}
        self._kept: dict[str, Any] = {}

    def inline(self, schema: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = self._resolve(schema)
        if self._kept:
            out["$defs"] = {name: self._kept[name] for name in sorted(self._kept)}
        return out

    def _resolve(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = definition_name(node)
        if name is None or name not in self._definitions:
            return self._members(node)
        siblings = self._members({key: node[key] for key in node if key != "$ref"})
        if name in self._recursive:
            self._keep(name)
            return {"$ref": f"#/$defs/{name}", **siblings}
        return {**self._resolve(self._definitions[name]), **siblings}

    def _members(self, node: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, child in node.items():
            if key in NAME_MAPS and isinstance(child, dict):
                if key != "$defs":
                    out[key] = {name: self._resolve(value) for name, value in child.items()}
            else:
                out[key] = child if key in DATA else self._resolve(child)
        return out

    def _keep(self, name: str) -> None:
        if name not in self._kept:
            self._kept[name] = None  # marks it as under way
            self._kept[name] = self._resolve(self._definitions[name])


def definition_name(node: Mapping[str, Any]) -> str | None:
    """The name in ``#/$defs/{name}`` that a schema refers to, if it does."""
    target = node.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/"):
        return target.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
    return None


def _reaches_itself(name: str, definitions: Mapping[str, Any]) -> bool:
    seen: set[str] = set()
    stack = [definitions[name]]
    while stack:
        for node, _ in subschemas(stack.pop(), MAX_PARTS):
            target = definition_name(node)
            if target == name:
                return True
            if target is not None and target in definitions and target not in seen:
                seen.add(target)
                stack.append(definitions[target])
    return False
