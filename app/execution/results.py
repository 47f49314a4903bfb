"""From what a tool returned to an encoded ``CallToolResult``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import SchemaSerializer, core_schema

from app.content import BLOCKS, NO_STRUCTURED_CONTENT, Block, ToolResult, blocks_json
from app.execution.drafts import BadBlock, check_blocks, draft_of
from app.execution.questions import cleaned
from app.guards.cleaning import clean_data, clean_text, is_suspect
from app.protocol.jsonrpc import NotFinite, dumps
from app.protocol.messages import ServerMessages, text_content
from app.registry.signature import mapping_as_dict
from app.registry.tool import Tool
from app.toolkit import CallResult

_ANY: Final = SchemaSerializer(
    core_schema.any_schema(), {"ser_json_inf_nan": "constants", "ser_json_bytes": "base64"}
)
MAX_BYTES_PER_CHARACTER: Final = 6
"""A control character takes six bytes in JSON, as in \\u0001."""

# By its type: isinstance() asks an object of pydantic for its class, once for each kind.
_NOT_PLAIN: Final = (ToolResult, *BLOCKS, list, tuple)
_UNORDERED: Final = (set, frozenset)


USUAL_TYPES: Final = ("text", "structured")
"""The content types of what ``ResultEncoder.usual`` has made."""

INVALID_ARGUMENTS: Final = "Invalid arguments for "
"""How the result begins that says what is wrong with arguments."""

_ARGUMENT_ERROR: Final = b'{"resultType":"complete","content":%b' % (
    text_content(INVALID_ARGUMENTS).removesuffix(b'"}]')
)


def is_argument_error(result: bytes) -> bool:
    """Whether an encoded result says what is wrong with arguments."""
    return result.startswith(_ARGUMENT_ERROR)


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
        cleans: Whether invisible characters and terminal escapes are taken out.
    """

    def __init__(self, messages: ServerMessages, *, max_bytes: int, cleans: bool = True) -> None:
        self._messages = messages
        self._max_bytes = max_bytes
        self._cleans = cleans

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

    def usual(self, tool: Tool, value: Any) -> bytes | None:
        """The same for most values, in a third of the time: data of the declared type, which
        becomes structured content and its text. None: ``encode`` has to look closer.
        """
        to_plain = tool.output.to_plain
        if to_plain is None or issubclass(type(value), _NOT_PLAIN):
            return None
        try:
            plain = to_plain(value)
            encoded = dumps(plain)
        except Exception:  # noqa: BLE001  # ``encode`` says what is wrong with it
            return None
        if type(plain) is str or (self._cleans and is_suspect(encoded)) or not tool.conforms(plain):
            return None
        result = self._messages.structured_result(encoded)
        return result if len(result) <= self._max_bytes else None

    def draft(self, tool: Tool, value: Any) -> tuple[bytes, bool]:
        """What a tool returned, for the hooks that look at it: not checked, no text derived.

        Raises:
            BadResult: No JSON form, or too large.
        """
        content: list[Any] | None = None
        structured, is_error, meta = NO_STRUCTURED_CONTENT, False, {}
        if isinstance(value, ToolResult):
            is_error, meta = value.is_error, dict(value.meta)
            structured = value.structured_content
            if value.content:
                content = _wire_blocks(value.content)
        elif _has_blocks(value):
            self._refuse_blocks(tool)
            content = _wire_blocks([value] if isinstance(value, BLOCKS) else list(value))
        elif not tool.structured and isinstance(value, str):
            content = _wire_blocks([value])
        else:
            structured = value
        if structured is not NO_STRUCTURED_CONTENT:
            structured = _plain_json(tool, structured)
        draft = _json(
            draft_of(
                CallResult(
                    structured_content=structured, content=content, is_error=is_error, meta=meta
                )
            )
        )
        self._check_size(draft)
        return draft, is_error

    def finish(self, tool: Tool, result: CallResult) -> bytes:
        """The result object of what the hooks have left.

        Raises:
            BadResult: No JSON form, against the output schema, or too large.
        """
        content = None
        if result.content is not None:
            try:
                content = self._encode(check_blocks(result.content))[1]
            except BadBlock as error:
                raise BadResult(f"a hook has left what is no content: {error}") from None
        encoded = self._whole(
            tool,
            content,
            result.structured_content,
            is_error=result.is_error,
            meta=result.meta,
        )
        self._check_size(encoded)
        return encoded

    def input_required(self, requests: Mapping[str, Any], state: str) -> bytes:
        """A result that asks.

        Raises:
            BadResult: A question has no JSON form, or they are too large.
        """
        try:
            if self._cleans and is_suspect(dumps(requests)):
                requests = {key: cleaned(request) for key, request in requests.items()}
            result = self._messages.input_required(requests, state)
        except (TypeError, ValueError) as error:
            raise BadResult(f"a question has no JSON form: {error}") from None
        self._check_size(result)
        return result

    def error(self, text: str, *, meta: Mapping[str, Any] | None = None) -> bytes:
        """A result that tells the model what went wrong; a text beyond the bound is cut."""
        return self._messages.tool_result(
            text_content(self._error_text(text)), is_error=True, meta=meta
        )

    def error_draft(self, text: str, *, meta: Mapping[str, Any] | None = None) -> bytes:
        """The same for the hooks."""
        content = [{"type": "text", "text": self._error_text(text)}]
        return dumps(draft_of(CallResult(content=content, is_error=True, meta=meta or {})))

    def _error_text(self, text: str) -> str:
        if len(text) > self._max_bytes // MAX_BYTES_PER_CHARACTER:
            text = text[: self._max_bytes // MAX_BYTES_PER_CHARACTER - 100] + " ... (cut)"
        if not text.isascii():  # a lone surrogate in the author's text
            text = text.encode("utf-8", "replace").decode()
        return clean_text(text) if self._cleans and not text.isprintable() else text

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
            return self._messages.tool_result(self._text(value))
        return self._whole(tool, None, _plain_json(tool, value), what=type(value).__name__)

    def _of_blocks(self, tool: Tool, value: Any) -> bytes:
        self._refuse_blocks(tool)
        blocks = [value] if isinstance(value, BLOCKS) else list(value)
        return self._messages.tool_result(self._blocks(blocks))

    def _explicit(self, tool: Tool, value: ToolResult) -> bytes:
        structured = value.structured_content
        if structured is not NO_STRUCTURED_CONTENT:
            structured = _plain_json(tool, structured)
        content = self._blocks(value.content) if value.content else None
        return self._whole(tool, content, structured, is_error=value.is_error, meta=value.meta)

    def _whole(
        self,
        tool: Tool,
        content: bytes | None,
        structured: Any,
        *,
        is_error: bool = False,
        meta: Mapping[str, Any] | None = None,
        what: str = "structured content",
    ) -> bytes:
        """The result object of its parts.

        Args:
            content: Encoded; None: it follows from the structured content.
            structured: Plain JSON data.
            what: How the log names it.
        """
        encoded = None
        if structured is not NO_STRUCTURED_CONTENT:
            before = structured
            structured, encoded = self._encode(structured, tool.output.schema)
            # The schema says what success looks like; an error is not held to it.
            if not is_error and not tool.conforms(structured):
                public = None
                if structured is not before and tool.conforms(before):
                    public = (
                        "Characters that are not sent were taken out of the result, and what is "
                        "left does not satisfy the tool's outputSchema."
                    )
                raise BadResult(
                    f"the result of {tool.name} does not satisfy its outputSchema (a {what})",
                    public=public,
                )
        elif tool.output.schema is not None and not is_error:
            raise BadResult(f"{tool.name} has an outputSchema and returned no structured content")
        if content is None:
            if encoded is None:
                content = text_content("")
            elif isinstance(structured, str):
                content = text_content(structured)
            else:
                content = text_content(encoded.decode())
        if not tool.structured or (is_error and tool.output.schema is not None):
            encoded = None  # a client would hold it to the schema
        if meta:
            meta = self._encode(dict(meta))[0]
        return self._messages.tool_result(content, structured=encoded, is_error=is_error, meta=meta)

    def _blocks(self, blocks: Sequence[Any]) -> bytes:
        return self._encode(_wire_blocks(blocks))[1]

    def _text(self, text: str) -> bytes:
        try:
            content = text_content(text)
            if self._cleans and is_suspect(content):
                content = text_content(clean_text(text))
        except TypeError as error:
            raise BadResult(f"the text has no UTF-8 form: {error}") from None
        return content

    def _encode(self, plain: Any, schema: Mapping[str, Any] | None = None) -> tuple[Any, bytes]:
        """Plain JSON data as it is sent, and encoded.

        Args:
            schema: Of the data: values and members that it names are the author's own.
        """
        encoded = _json(plain)
        if self._cleans and is_suspect(encoded):
            plain = clean_data(plain, frozenset() if schema is None else _named(schema))
            encoded = _json(plain)
        return plain, encoded

    def _refuse_blocks(self, tool: Tool) -> None:
        if tool.output.schema is not None:
            raise BadResult(f"{tool.name} has an outputSchema and returned content blocks")


def _named(schema: Mapping[str, Any]) -> frozenset[str]:
    """The texts that a schema lets values and members be, letter by letter."""
    named: set[str] = set()
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            named.update(node.get("properties") or ())
            texts = [*(node.get("enum") or ()), node.get("const")]
            named.update(text for text in texts if isinstance(text, str))
            stack.extend(node.values())
        elif isinstance(node, (list, tuple)):
            stack.extend(node)
    return frozenset(named)


def _has_blocks(value: Any) -> bool:
    if isinstance(value, BLOCKS):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(item, BLOCKS) for item in value)


def _wire_blocks(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    wire: list[Block | str] = [
        block if isinstance(block, (str, *BLOCKS)) else _json(_any_json(block)).decode()
        for block in blocks
    ]
    try:
        return blocks_json(wire)
    except (TypeError, ValueError) as error:
        raise BadResult(f"a content block has no JSON form: {error}") from None


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


def _json(plain: Any) -> bytes:
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
