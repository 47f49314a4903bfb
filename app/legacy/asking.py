"""Questions to clients of older revisions: requests of the server, answered by responses.

The modern protocol asks in a result (``app.protocol.asking``). Here the same questions become
JSON-RPC requests, and what the client responds becomes the answer that a retry would bring.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.legacy.blocks import block, blocks
from app.legacy.encoding import own_meta
from app.legacy.listing import tool
from app.legacy.revisions import Revision
from app.legacy.schemas import WRAPPED
from app.protocol.jsonrpc import dumps, encode_id, notification
from app.protocol.schema import RequestId

Json = Mapping[str, Any]

_USER_REJECTED: Final = -1
"""The code that Sampling gives for a user who refuses."""

_MAX_REASON_CHARACTERS: Final = 200


class Unaskable(Exception):
    """A question for which the revision has no words. The text says what it lacks."""


class Refused(Exception):
    """The client answered with an error, to a question that knows no "no". The text says which."""


# -- what is asked ---------------------------------------------------------------------------


def question(request: Json, revision: Revision, *, elicitation_id: str) -> dict[str, Any]:
    """``method`` and ``params`` of a request of the revision, from an ``InputRequest``.

    Args:
        elicitation_id: Names a URL elicitation, of which 2025-11-25 demands a name of its own.

    Raises:
        Unaskable: The revision cannot ask this.
    """
    method, params = request["method"], request.get("params", {})
    return {"method": method, "params": _ASK[method](params, revision, elicitation_id)}


def request(id: RequestId, asked: Json) -> bytes:
    """The JSON-RPC message of a ``question``."""
    return b'{"jsonrpc":"2.0","id":%b,%b' % (encode_id(id), dumps(asked)[1:])


def withdrawn(id: RequestId, reason: str) -> bytes:
    """The message that nobody waits for an answer to a ``request`` any more (Cancellation)."""
    return notification("notifications/cancelled", {"requestId": id, "reason": reason})


def _elicitation(params: Json, revision: Revision, elicitation_id: str) -> dict[str, Any]:
    if params.get("mode", "form") == "url":
        if not revision.url_elicitation:
            raise Unaskable(_lacks(revision, "elicitation by URL"))
        return {
            "mode": "url",
            "message": params["message"],
            "url": params["url"],
            "elicitationId": elicitation_id,
        }
    if not revision.elicitation:
        raise Unaskable(_lacks(revision, "elicitation"))
    schema = params["requestedSchema"]
    if revision.form_vocabulary:
        return {"mode": "form", "message": params["message"], "requestedSchema": schema}
    out = {
        "type": "object",
        "properties": {
            name: _field(value, revision) for name, value in schema["properties"].items()
        },
    }
    if "required" in schema:
        out["required"] = schema["required"]
    return {"message": params["message"], "requestedSchema": out}


_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "format"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": ("default",),
}
"""Members of a ``PrimitiveSchemaDefinition`` of 2025-06-18, by type."""


def _field(schema: Json, revision: Revision) -> dict[str, Any]:
    kind = schema["type"]
    if kind not in _FIELDS:
        raise Unaskable(_lacks(revision, "choices of several in a form"))
    out = {name: schema[name] for name in ("type", "title", "description") if name in schema}
    if "oneOf" in schema:
        out["enum"] = [each["const"] for each in schema["oneOf"]]
        out["enumNames"] = [each["title"] for each in schema["oneOf"]]
    elif "enum" in schema:
        out |= {name: schema[name] for name in ("enum", "enumNames") if name in schema}
    else:
        out |= {name: schema[name] for name in _FIELDS[kind] if name in schema}
    return out


def _sampling(params: Json, revision: Revision, _: str) -> dict[str, Any]:
    out = dict(params)
    if "tools" in out or "toolChoice" in out:
        if not revision.sampling_tools:
            raise Unaskable(_lacks(revision, "tools in sampling"))
        if "tools" in out:
            out["tools"] = [tool(each, revision) for each in out["tools"]]
    out["messages"] = [
        message for each in params["messages"] for message in _messages(each, revision)
    ]
    return out


def _messages(message: Json, revision: Revision) -> list[dict[str, Any]]:
    """One message as it is, or, where messages have one block each, as one for each block."""
    role, content = message["role"], message["content"]
    if not isinstance(content, list):
        return [{"role": role, "content": _sampled(content, revision)}]
    read = [_sampled(each, revision) for each in content]
    if revision.sampling_tools:
        return [{"role": role, "content": read}]
    return [{"role": role, "content": each} for each in read]


def _sampled(given: Json, revision: Revision) -> dict[str, Any]:
    kind = given["type"]
    if kind in ("tool_use", "tool_result"):
        if not revision.sampling_tools:
            raise Unaskable(_lacks(revision, "tools in sampling"))
        return _tool_block(given, revision)
    if kind == "audio" and not revision.audio:
        # A model that cannot hear it would answer another question.
        raise Unaskable(_lacks(revision, "audio"))
    return block(given, revision)


_TOOL_BLOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "toolUseId", "isError"),
}


def _tool_block(given: Json, revision: Revision) -> dict[str, Any]:
    out = {name: given[name] for name in _TOOL_BLOCKS[given["type"]] if name in given}
    if given["type"] == "tool_result":
        out["content"] = blocks(given["content"], revision)
        if "structuredContent" in given:
            value = given["structuredContent"]
            out["structuredContent"] = value if isinstance(value, dict) else {WRAPPED: value}
    if meta := own_meta(given.get("_meta", {})):
        out["_meta"] = meta
    return out


def _roots(*_: Any) -> dict[str, Any]:
    return {}


_ASK: Final[Mapping[str, Callable[[Json, Revision, str], dict[str, Any]]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
    "roots/list": _roots,
}


def _lacks(revision: Revision, what: str) -> str:
    return f"revision {revision.version} of the protocol, which the client speaks, has no {what}"


# -- what comes back -------------------------------------------------------------------------


def answer(method: str, response: Json) -> dict[str, Any]:
    """An entry of ``inputResponses`` from the client's JSON-RPC response.

    A result is passed on for the readers of ``app.protocol.asking`` to check. An error to an
    elicitation is a "no" that the question knows: ``decline`` where the client says that its user
    refused, else ``cancel``, as nobody has made a choice.

    Args:
        method: Of the request that it answers.

    Raises:
        Refused: An error to anything else.
    """
    error = response.get("error")
    if not isinstance(error, dict):
        result = response.get("result")
        # No object fits no question; the readers say so better than this function could.
        return result if isinstance(result, dict) else {}
    code = error.get("code")
    if method == "elicitation/create":
        return {"action": "decline" if code == _USER_REJECTED else "cancel"}
    reason = "".join(each for each in str(error.get("message", "")) if each.isprintable())
    raise Refused(
        f"The client answered {method} with error {code if type(code) is int else '(no code)'}: "
        f"{reason[:_MAX_REASON_CHARACTERS] or '(no message)'}"
    )


def capabilities(declared: Any, revision: Revision) -> dict[str, Any]:
    """``ClientCapabilities`` of 2026-07-28 from those of ``initialize``.

    What the revision does not define is not declared by it, whatever a client sends; and what this
    server never asks is left out.
    """
    given = declared if isinstance(declared, Mapping) else {}
    out: dict[str, Any] = {}
    if isinstance(given.get("roots"), dict):
        out["roots"] = {}  # without `listChanged`: nobody here listens
    if isinstance(sampling := given.get("sampling"), dict):
        out["sampling"] = _named(sampling, ("tools",) if revision.sampling_tools else ())
    if revision.elicitation and isinstance(elicitation := given.get("elicitation"), dict):
        modes = _named(elicitation, ("form", "url") if revision.url_elicitation else ())
        if not modes and not (revision.url_elicitation and "url" in elicitation):
            modes = {"form": {}}  # what an empty object means (Elicitation, "Capabilities")
        if modes:
            out["elicitation"] = modes
    return out


def _named(declared: Json, names: Sequence[str]) -> dict[str, Any]:
    return {name: {} for name in names if isinstance(declared.get(name), dict)}
