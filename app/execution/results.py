"""From what a tool returned to an encoded ``CallToolResult``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import SchemaSerializer, core_schema

from app.content import BLOCKS, NO_STRUCTURED_CONTENT, Block, ToolResult, blocks_json
from app.protocol.jsonrpc import NotFinite, dumps
from app.protocol.messages import ServerMessages, text_content
from app.registry.signature import mapping_as_dict
from app.registry.tool import Tool

_ANY: Final = SchemaSerializer(
    core_schema.any_schema(), {"ser_json_inf_nan": "constants", "ser_json_bytes": "base64"}
)
MAX_BYTES_PER_CHARACTER: Final = 6
"""A control character takes six bytes in JSON, as in \\u0001."""

# By its type: isinstance() asks an object of pydantic for its class, once for each kind.
_NOT_PLAIN: Final = (ToolResult, *BLOCKS, list, tuple)
_UNORDERED: Final = (set, frozenset)


class BadResult(Exception):
    """A return value that has no right form on the wire. The log gets the details.

    Attributes:
        public: A sentence for the caller, or None where nothing may be told.
    """

    def __init__(self, details: str, *, public: str | None = None) -> None:
        super().__init__(details)
        self.public = public


class ResultEncoder:
    """Encodes results for one server.

    Args:
        max_bytes: Largest encoded result; a longer one is an error, never cut.
    """

    def __init__(self, messages: ServerMessages, *, max_bytes: int) -> None:
        self._messages = messages
        self._max_bytes = max_bytes

    def encode(self, tool: Tool, value: Any) -> tuple[bytes, bool]:
        """The result object, and whether it is an error of the tool.

        Raises:
            BadResult: No JSON form, against the output schema, or too large.
        """
        is_error = False
        if not issubclass(type(value), _NOT_PLAIN):
            result = self._plain(tool, value)
        elif isinstance(value, ToolResult):
            result = self._explicit(tool, value)
            is_error = value.is_error
        elif _has_blocks(value):
            result = self._of_blocks(tool, value)
        else:
            result = self._plain(tool, value)
        self._check_size(result)
        return result, is_error

    def input_required(self, requests: Mapping[str, Any], state: str) -> bytes:
        """A result that asks.

        Raises:
            BadResult: A question has no JSON form, or they are too large.
        """
        try:
            result = self._messages.input_required(requests, state)
        except (TypeError, ValueError) as error:
            raise BadResult(f"a question has no JSON form: {error}") from None
        self._check_size(result)
        return result

    def error(self, text: str) -> bytes:
        """A result that tells the model what went wrong; a text beyond the bound is cut."""
        if len(text) > self._max_bytes // MAX_BYTES_PER_CHARACTER:
            text = text[: self._max_bytes // MAX_BYTES_PER_CHARACTER - 100] + " ... (cut)"
        try:
            content = text_content(text)
        except TypeError:  # a lone surrogate in the author's text
            content = text_content(text.encode("utf-8", "replace").decode())
        return self._messages.tool_result(content, is_error=True)

    def internal_error(self, error_id: str, public: str | None = None) -> bytes:
        """A result that tells no more than an id, and a sentence where one may be told."""
        text = public or "The tool failed because of an internal error."
        return self.error(f"{text} (error id {error_id})")

    def _check_size(self, result: bytes) -> None:
        if len(result) > self._max_bytes:
            sentence = (
                f"The result has {len(result):,} bytes; the server sends at most "
                f"{self._max_bytes:,}. Ask for less."
            )
            raise BadResult(sentence, public=sentence)

    def _plain(self, tool: Tool, value: Any) -> bytes:
        if not tool.structured and isinstance(value, str):
            return self._messages.tool_result(_text(value))
        plain = _plain_json(tool, value)
        structured = _encode(plain)
        if not tool.conforms(plain):
            raise BadResult(
                f"the result of {tool.name} does not satisfy its outputSchema "
                f"(a {type(value).__name__})"
            )
        content = _text(plain) if isinstance(plain, str) else text_content(structured.decode())
        return self._messages.tool_result(
            content, structured=structured if tool.structured else None
        )

    def _of_blocks(self, tool: Tool, value: Any) -> bytes:
        if tool.output.schema is not None:
            raise BadResult(f"{tool.name} has an outputSchema and returned content blocks")
        blocks = [value] if isinstance(value, BLOCKS) else list(value)
        return self._messages.tool_result(_blocks(blocks))

    def _explicit(self, tool: Tool, value: ToolResult) -> bytes:
        structured = None
        if value.structured_content is not NO_STRUCTURED_CONTENT:
            plain = _plain_json(tool, value.structured_content)
            structured = _encode(plain)
            # The schema says what success looks like; an error is not held to it.
            if not value.is_error and not tool.conforms(plain):
                raise BadResult(f"the structured content of {tool.name} is not as its outputSchema")
        elif tool.output.schema is not None and not value.is_error:
            raise BadResult(f"{tool.name} has an outputSchema and returned no structured content")
        if value.content:
            content = _blocks(value.content)
        else:
            content = text_content("" if structured is None else structured.decode())
        if not tool.structured or (value.is_error and tool.output.schema is not None):
            structured = None  # a client would hold it to the schema
        return self._messages.tool_result(
            content, structured=structured, is_error=value.is_error, meta=value.meta
        )


def _has_blocks(value: Any) -> bool:
    if isinstance(value, BLOCKS):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(item, BLOCKS) for item in value)


def _blocks(blocks: Sequence[Any]) -> bytes:
    wire: list[Block | str] = [
        block if isinstance(block, (str, *BLOCKS)) else _encode(_any_json(block)).decode()
        for block in blocks
    ]
    try:
        wire_form = blocks_json(wire)
    except (TypeError, ValueError) as error:
        raise BadResult(f"a content block has no JSON form: {error}") from None
    return _encode(wire_form)


def _text(text: str) -> bytes:
    try:
        return text_content(text)
    except TypeError as error:
        raise BadResult(f"the text has no UTF-8 form: {error}") from None


def _plain_json(tool: Tool, value: Any) -> Any:
    """Plain JSON data: by the declared type, or by what the value is."""
    to_plain = tool.output.to_plain
    if to_plain is None:
        return _any_json(value)
    try:
        return to_plain(value)
    except Exception as error:  # noqa: BLE001  # serializers of the tool's types run here
        raise BadResult(f"a {type(value).__name__} has no JSON form: {error}") from None


def _any_json(value: Any) -> Any:
    _refuse_unordered(value)
    try:
        return _ANY.to_python(
            value, mode="json", by_alias=True, warnings=False, fallback=mapping_as_dict
        )
    except Exception as error:  # noqa: BLE001  # likewise
        raise BadResult(f"a {type(value).__name__} has no JSON form: {error}") from None


def _refuse_unordered(value: Any) -> None:
    """An undeclared set or iterator would be sent as a list in an order that nobody chose."""
    stack: list[Any] = [value]
    seen = 0
    while stack:
        item = stack.pop()
        seen += 1
        if isinstance(item, (str, bytes, BaseModel)):
            continue
        if isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif isinstance(item, _UNORDERED) or (
            isinstance(item, Iterable)
            and not hasattr(item, "__pydantic_serializer__")
            and hasattr(item, "__next__")
        ):
            raise BadResult(f"a {type(item).__name__} has no order; return a list")
        if seen > 1_000_000:
            raise BadResult("the result refers to itself or has more than a million parts")


def _encode(plain: Any) -> bytes:
    try:
        return dumps(plain)
    except NotFinite as error:
        raise BadResult(str(error), public=f"The tool returned {error}.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"the result has no JSON form: {error}") from None


def message_of(error: BaseException) -> str:
    """An exception's text; empty if that fails too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # __str__ is the author's code
        return ""
