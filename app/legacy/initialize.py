"""``initialize``: what a client says when it opens, and what it is told (Lifecycle)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.legacy.asking import capabilities
from app.legacy.revisions import Revision, negotiate
from app.protocol.errors import InvalidParams
from app.protocol.jsonrpc import dumps
from app.protocol.schema import Implementation


class Opening(NamedTuple):
    """What ``initialize`` settles.

    Attributes:
        capabilities: As ``ClientCapabilities`` of 2026-07-28.
        client: For display alone.
    """

    revision: Revision
    capabilities: dict[str, Any]
    client: Implementation


def parse_initialize(params: Mapping[str, Any] | None) -> Opening:
    """``InitializeRequestParams``.

    A version that is not served is no mistake: the client is told the one that is.

    Raises:
        InvalidParams: A required member is missing or has the wrong shape.
    """
    given = params or {}
    version = given.get("protocolVersion")
    if not isinstance(version, str):
        raise InvalidParams('params.protocolVersion must be a string, such as "2025-11-25".')
    declared = given.get("capabilities")
    if not isinstance(declared, dict):
        raise InvalidParams("params.capabilities must be an object; an empty one declares nothing.")
    client = given.get("clientInfo")
    if not isinstance(client, dict) or not all(
        isinstance(client.get(name), str) for name in ("name", "version")
    ):
        raise InvalidParams(
            'params.clientInfo must be an object with the strings "name" and "version".'
        )
    revision = negotiate(version)
    return Opening(
        revision,
        capabilities(declared, revision),
        Implementation(client["name"], client["version"]),
    )


_ALWAYS: Final = ("name", "version")


def initialize_result(
    revision: Revision,
    *,
    server_info: Mapping[str, Any],
    tools_change: bool,
    logging: bool,
    instructions: str | None = None,
) -> bytes:
    """``InitializeResult``.

    Args:
        server_info: ``Implementation`` object of this server, as every modern result has it.
        tools_change: Whether this client will be told when its tools change.
        logging: Whether it may set a level and will get messages.
    """
    offers: dict[str, Any] = {"logging": {}} if logging else {}
    offers["tools"] = {"listChanged": tools_change}
    out = {
        "protocolVersion": revision.version,
        "capabilities": offers,
        "serverInfo": _implementation(server_info, revision),
    }
    if instructions:
        out["instructions"] = instructions
    return dumps(out)


def _implementation(info: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    known = [*_ALWAYS]
    if revision.titles:
        known.append("title")
    if revision.icons:
        known.append("icons")
    if revision.descriptions:
        known += ["description", "websiteUrl"]
    return {name: info[name] for name in known if name in info}
