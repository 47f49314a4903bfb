"""What authors mark parameters and tools with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import core_schema

from app.protocol.headers import SAFE_INTEGER


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter that clients repeat in the HTTP header ``Mcp-Param-{name}``.

    Use: ``region: Annotated[str, Header("Region")]``. For str, int, bool and their Optional
    and Literal forms (Tools, "x-mcp-header"). Header values are visible to every proxy on the
    way: never mark a secret.
    """

    name: str

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Clients need one primitive type on an annotated property, so Optional is unfolded."""
        out = dict(handler(schema))
        choices = out.get("anyOf", [])
        kinds = [choice for choice in choices if choice.get("type") != "null"]
        if len(kinds) == 1:
            del out["anyOf"]
            out.update(kinds[0])
        if out.get("type") == "integer":
            out["minimum"] = max(-SAFE_INTEGER, out.get("minimum", -SAFE_INTEGER))
            out["maximum"] = min(SAFE_INTEGER, out.get("maximum", SAFE_INTEGER))
        return {**out, "x-mcp-header": self.name}


@dataclass(frozen=True, slots=True)
class Titles:
    """Says what a form shows for each choice.

    Use: ``color: Annotated[Literal["#f00", "#0f0"], Titles({"#f00": "Red", "#0f0": "Green"})]``.
    For ``Literal`` and ``Enum`` types of texts, alone or as the items of a list. A choice without
    a title is shown as it is.

    Attributes:
        as_enum_names: In the form that the protocol has deprecated (``enumNames``), for a choice
            of one: clients of its time know no other.
    """

    titles: Mapping[str, str]
    as_enum_names: bool = False

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        given = handler(schema)
        out = dict(handler.resolve_ref_schema(given))
        if "$ref" in given:
            out.pop("title", None)  # the class's name, not a title that somebody gave
        choices = out.pop("enum", None) or [out.pop("const", None)]
        unknown = [value for value in self.titles if value not in choices]
        if unknown:
            raise ValueError(f"Titles has {unknown[0]!r}, which is none of the choices")
        if self.as_enum_names:
            names = [self.titles.get(each, str(each)) for each in choices]
            return {**out, "enum": choices, "enumNames": names}
        titled = [{"const": each, "title": self.titles.get(each, str(each))} for each in choices]
        return {**out, "oneOf": titled}


@dataclass(frozen=True, slots=True, kw_only=True)
class Icon:
    """An image for a tool: an http(s) or data URI (Overview, "``icons``")."""

    src: str
    mime_type: str | None = None
    sizes: Sequence[str] = ()
    theme: str | None = None

    def as_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"src": self.src}
        if self.mime_type is not None:
            out["mimeType"] = self.mime_type
        if self.sizes:
            out["sizes"] = list(self.sizes)
        if self.theme is not None:
            out["theme"] = self.theme
        return out
