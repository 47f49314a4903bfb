"""What clients can be asked, and what they must have declared for it (``ClientCapabilities``).

A name with a dot is a sub-capability. ``elicitation`` means forms: an empty ``elicitation`` object
declares those alone, and URLs need ``elicitation.url`` (Elicitation, "Capabilities").
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

ASKS: Final = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots")
"""What a tool can say that it asks."""


def has_capability(capabilities: Mapping[str, Any], name: str) -> bool:
    """Whether a client declared one of ``ASKS``. Each is an object; nothing else declares it."""
    top, _, sub = name.partition(".")
    declared = capabilities.get(top)
    if not isinstance(declared, dict):
        return False
    if sub:
        return isinstance(declared.get(sub), dict)
    if top == "elicitation":
        return isinstance(declared.get("form"), dict) or "url" not in declared
    return True


def missing_capabilities(capabilities: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the client did not declare."""
    return [name for name in names if not has_capability(capabilities, name)]


def as_capabilities(names: Iterable[str]) -> dict[str, Any]:
    """The least ``ClientCapabilities`` object that declares all of ``names``."""
    out: dict[str, Any] = {}
    for name in names:
        top, _, sub = name.partition(".")
        declared = out.setdefault(top, {})
        if top == "elicitation":
            # Spelled out: an empty object would not tell forms from URLs where both are named.
            sub = sub or "form"
        if sub:
            declared[sub] = {}
    return out
