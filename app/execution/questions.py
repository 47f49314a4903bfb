"""Questions of tools in their wire form, and how an answer to each is read."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel

from app.guards.cleaning import clean_data
from app.protocol.asking import (
    BadAnswer,
    check_messages,
    elicit_action,
    form_request,
    listed_roots,
    roots_request,
    sampled_message,
    sampling_request,
    url_request,
)
from app.protocol.jsonrpc import canonical
from app.registry.forms import form_of, refuse_links
from app.settings import is_loopback_host
from app.toolkit.asking import SAMPLED_BLOCKS, ElicitResult, Message, Root, SamplingTool

PAGE_NEEDS: Final = ("elicitation.url",)
MAX_URL_CHARACTERS: Final = 2048
_KEY: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")

Json = Mapping[str, Any]
Read = Callable[[Json], tuple[Any, Json]]
"""An answer as the client sent it -> what the tool gets, and what of the answer is carried on.

Raises ``BadAnswer``.
"""


class Question(NamedTuple):
    """One question under its key.

    Attributes:
        needs: Capabilities that a client must have declared.
        request: An ``InputRequest``.
        digest: Of the request: an answer counts for the question that was asked.
        complaint: What is said before the reason for asking again.
    """

    key: str
    needs: Sequence[str]
    request: dict[str, Any]
    digest: str
    read: Read
    complaint: str = "The last answer did not fit: "

    def again(self, reason: str) -> dict[str, Any]:
        """The request, with what was wrong with the last answer where a user reads it."""
        params = self.request["params"]
        if "message" not in params:
            return self.request
        message = f"{params['message']}\n\n{self.complaint}{reason}"
        return {**self.request, "params": {**params, "message": message}}


def _question(key: str, needs: Sequence[str], request: dict[str, Any], read: Read) -> Question:
    if not _KEY.match(key):
        raise ValueError(f"the key {key!r} is not 1 to 128 characters of A-Z a-z 0-9 _ . : -")
    digest = hashlib.sha256(canonical(request)).digest()[:15]
    return Question(key, needs, request, base64.b64encode(digest).decode(), read)


def cleaned(request: Any) -> Any:
    """A request with its texts cleaned; what answers are compared with stays as it is."""
    if isinstance(request, dict):
        return {name: _cleaned_member(name, value) for name, value in request.items()}
    if isinstance(request, list):
        return list(map(cleaned, request))
    return clean_data(request)


def _cleaned_member(name: str, value: Any) -> Any:
    if name in ("requestedSchema", "inputSchema"):
        return _cleaned_schema(value)
    return value if name == "url" else cleaned(value)


def _cleaned_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_cleaned_schema, schema))
    if not isinstance(schema, dict):
        return schema
    members = {}
    for name, value in schema.items():
        if name in ("title", "description", "enumNames"):
            members[name] = clean_data(value)
        elif name in ("properties", "$defs"):
            members[name] = {key: _cleaned_schema(each) for key, each in value.items()}
        elif name in ("enum", "const", "default", "required"):
            members[name] = value
        else:
            members[name] = _cleaned_schema(value)
    return members


def form_question(key: str, message: str, model: type[BaseModel]) -> Question:
    """``ctx.elicit``."""
    form = form_of(model)
    refuse_links(message, "the message")

    def read(response: Json) -> tuple[Any, Json]:
        action = elicit_action(response)
        if action != "accept":
            # elicit_action lets three words through, of which mypy sees a str.
            return ElicitResult(action), {"action": action}  # type: ignore[arg-type]
        data, content = form.read(response.get("content"))
        return ElicitResult("accept", data), {"action": action, "content": content}

    return _question(key, ("elicitation",), form_request(message, form.schema), read)


def url_question(key: str, message: str, url: str) -> Question:
    """``ctx.elicit_url``."""
    refuse_links(message, "the message")
    parts = urlsplit(url)
    secure = parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback_host(parts.hostname or "")
    )
    if not secure or not parts.hostname or _CONTROL.search(url) or len(url) > MAX_URL_CHARACTERS:
        raise ValueError("the url must be an https URL (http on loopback alone)")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the url must not hold a user or a password")

    def read(response: Json) -> tuple[Any, Json]:
        action = elicit_action(response)
        # As above: one of three words.
        return ElicitResult(action), {"action": action}  # type: ignore[arg-type]

    return _question(key, PAGE_NEEDS, url_request(message, url), read)


def page_question(key: str, message: str, url: str, data: BaseModel | None) -> Question:
    """``ctx.elicit_page``.

    Args:
        data: What the user entered on the page; None: nothing yet.
    """

    def read(response: Json) -> tuple[Any, Json]:
        action = elicit_action(response)
        if action != "accept":
            # As above: one of three words.
            return ElicitResult(action), {"action": action}  # type: ignore[arg-type]
        if data is None:
            raise BadAnswer("The page has not been completed yet. Open it, fill it in, send it.")
        return ElicitResult("accept", data), {"action": action}

    question = _question(key, PAGE_NEEDS, url_request(message, url), read)
    return question._replace(complaint="")


def roots_question(key: str) -> Question:
    """``ctx.roots``."""

    def read(response: Json) -> tuple[Any, Json]:
        roots = listed_roots(response)
        return tuple(Root(each["uri"], each.get("name", "")) for each in roots), {"roots": roots}

    return _question(key, ("roots",), roots_request(), read)


def sampling_question(
    key: str,
    messages: Sequence[Json],
    *,
    max_tokens: int,
    options: Json,
    tools: Sequence[SamplingTool],
    may_use_tools: bool,
) -> Question:
    """One round of ``ctx.sample``; its answer is a ``CreateMessageResult``, content as a list."""
    if max_tokens < 1:
        raise ValueError("max_tokens must be a whole number above 0")
    check_messages(messages)
    params = {"messages": list(messages), "maxTokens": max_tokens, **options}
    if tools:
        params["tools"] = [
            {"name": each.name, "description": each.description, "inputSchema": each.input_schema}
            for each in tools
        ]
        params["toolChoice"] = {"mode": "auto" if may_use_tools else "none"}

    def read(response: Json) -> tuple[Any, Json]:
        message = sampled_message(response, with_tools=bool(tools))
        return message, message

    needs = ("sampling", "sampling.tools") if tools else ("sampling",)
    return _question(key, needs, sampling_request(params), read)


def sampling_messages(messages: str | Sequence[Message]) -> list[Json]:
    """Messages in their wire form.

    Raises:
        ValueError: One is not a ``SamplingMessage``.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": {"type": "text", "text": messages}}]
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("toolUseId", "content"),
}


def _message(message: Any, place: str) -> Json:
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant"):
        raise ValueError(f'{place} must be a mapping with the "role" user or assistant')
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        return {"role": message["role"], "content": [_block(each, place) for each in content]}
    return {"role": message["role"], "content": _block(content, place)}


def _block(block: Any, place: str) -> Json:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, SAMPLED_BLOCKS):
        return block.as_json()
    kind = block.get("type") if isinstance(block, Mapping) else None
    members = _MEMBERS.get(str(kind))
    if members is None or not all(name in block for name in members):
        raise ValueError(f"{place} has content that is no text, image, audio, tool use or result")
    return dict(block)
