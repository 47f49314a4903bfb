"""Multi round-trip requests: what a server asks in a result, and the answers in the retry.

The requests of an ``InputRequiredResult``, and ``inputResponses`` and ``requestState`` of the
request that comes back. All of what comes back is the client's word, to be believed as far as it
can be checked (Multi Round-Trip Requests, "Security Considerations").
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.protocol.errors import InvalidParams

Json = Mapping[str, Any]

ACTIONS: Final = ("accept", "decline", "cancel")
_ABSENT: Final[Any] = object()


class BadAnswer(Exception):
    """An answer that does not fit its question. The text says why and repeats no value."""


class Retry(NamedTuple):
    """What a request brings back from an earlier round.

    Attributes:
        responses: By the keys of the questions; each value is an object, and no more is known.
        state: ``requestState``, None where there is none.
    """

    responses: dict[str, dict[str, Any]]
    state: str | None


# -- what is asked ---------------------------------------------------------------------------


def form_request(message: str, schema: Json) -> dict[str, Any]:
    """``ElicitRequest`` in form mode."""
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def url_request(message: str, url: str) -> dict[str, Any]:
    """``ElicitRequest`` in URL mode."""
    params = {"mode": "url", "message": message, "url": url}
    return {"method": "elicitation/create", "params": params}


def sampling_request(params: Json) -> dict[str, Any]:
    """``CreateMessageRequest``."""
    return {"method": "sampling/createMessage", "params": params}


def roots_request() -> dict[str, Any]:
    """``ListRootsRequest``."""
    return {"method": "roots/list", "params": {}}


# -- what comes back -------------------------------------------------------------------------


def parse_retry(params: Json) -> Retry | None:
    """What a request brings back; None where it brings nothing.

    Raises:
        InvalidParams: A member has the wrong shape.
    """
    responses, state = params.get("inputResponses", _ABSENT), params.get("requestState", _ABSENT)
    if responses is _ABSENT and state is _ABSENT:
        return None
    if state is not _ABSENT and not isinstance(state, str):
        raise InvalidParams("params.requestState must be the string that the server sent.")
    if responses is _ABSENT:
        responses = {}
    if not isinstance(responses, dict) or not all(
        isinstance(response, dict) for response in responses.values()
    ):
        raise InvalidParams(
            "params.inputResponses must be an object that holds an answer, itself an object, for "
            "each key of inputRequests."
        )
    return Retry(responses, None if state is _ABSENT else state)


def elicit_action(response: Json) -> str:
    """``action`` of an ``ElicitResult``.

    Raises:
        BadAnswer: It is none.
    """
    action = response.get("action")
    if action not in ACTIONS:
        raise BadAnswer('the answer has no "action" that is accept, decline or cancel')
    return str(action)


def sampled_message(response: Json, *, with_tools: bool) -> dict[str, Any]:
    """A ``CreateMessageResult``, its content always a list, without what nobody reads.

    Raises:
        BadAnswer: It is none, or uses tools where none were offered.
    """
    model, reason = response.get("model"), response.get("stopReason", "")
    if response.get("role") != "assistant":
        raise BadAnswer('the sampled message must have the "role" assistant')
    if not isinstance(model, str) or not isinstance(reason, str):
        raise BadAnswer('"model" and "stopReason" of the sampled message must be strings')
    content = response.get("content")
    blocks = content if isinstance(content, list) else [content]
    allowed = (*_BLOCKS, "tool_use") if with_tools else _BLOCKS
    read = [_block(block, allowed) for block in blocks]
    if not read:
        raise BadAnswer('the sampled message has no "content"')
    ids = [block["id"] for block in read if block["type"] == "tool_use"]
    if len(ids) != len(set(ids)):
        raise BadAnswer("two tool uses of the sampled message have the same id")
    return {"role": "assistant", "content": read, "model": model, "stopReason": reason}


_BLOCKS: Final = ("text", "image", "audio")
_STRINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "tool_use": ("id", "name"),
}


def _block(block: Any, allowed: Sequence[str]) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in allowed:
        raise BadAnswer(f"content of the sampled message must be one of {', '.join(allowed)}")
    out = {"type": kind}
    for name in _STRINGS[str(kind)]:
        if not isinstance(block.get(name), str):
            raise BadAnswer(f'"{name}" of a block of {kind} must be a string')
        out[name] = block[name]
    if kind == "tool_use":
        if not isinstance(block.get("input"), dict):
            raise BadAnswer('"input" of a tool use must be an object')
        out["input"] = block["input"]
    return out


def listed_roots(response: Json) -> list[dict[str, str]]:
    """The roots of a ``ListRootsResult``.

    Raises:
        BadAnswer: It is none, or a root is no file URI (``Root`` of the schema).
    """
    roots = response.get("roots")
    if not isinstance(roots, list):
        raise BadAnswer('the answer has no list "roots"')
    out = []
    for root in roots:
        uri = root.get("uri") if isinstance(root, dict) else None
        if not isinstance(uri, str) or not uri.startswith("file://"):
            raise BadAnswer('the "uri" of each root must begin with file://')
        name = root.get("name", "")
        if not isinstance(name, str):
            raise BadAnswer('the "name" of a root must be a string')
        out.append({"uri": uri, "name": name} if name else {"uri": uri})
    return out


def check_messages(messages: Sequence[Json]) -> None:
    """Refuse messages for sampling whose tool uses and tool results are not balanced.

    Each message with tool uses is followed by one of the user that holds a result for each of
    them and nothing else; there are no other results (Sampling, "Tool Use in Sampling").

    Raises:
        ValueError: With the place.
    """
    waiting: list[Any] = []
    for index, message in enumerate(messages):
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        results = [block["toolUseId"] for block in blocks if block["type"] == "tool_result"]
        if results and (message["role"] != "user" or len(results) != len(blocks)):
            raise ValueError(
                f"messages[{index}]: tool results stand alone in a message of the user"
            )
        if sorted(results) != sorted(waiting):
            raise ValueError(
                f"messages[{index}]: the results must be those of the tool uses before, one each"
            )
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if waiting and message["role"] != "assistant":
            raise ValueError(f"messages[{index}]: only the assistant uses tools")
    if waiting:
        raise ValueError("the last message uses tools and no message has their results")
