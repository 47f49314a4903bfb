"""Tools whose input schema is the point: a mirrored parameter, and 2020-12 keywords."""

from typing import Annotated, Any, Final

from app import Header, tool


@tool(name="test_x_mcp_header")
def mirrored_region(region: Annotated[str | None, Header("Region")] = None) -> str:
    """Repeat the region, which travels in the Mcp-Param-Region header too."""
    return f"region: {region}"


CONTACT: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool(input_schema=CONTACT)
def json_schema_2020_12_tool(**contact: Any) -> str:
    """Accept a person that can be reached by telephone or by email."""
    return f"received: {', '.join(sorted(contact))}"
