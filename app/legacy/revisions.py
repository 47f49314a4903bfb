"""What each revision of the ``initialize`` era has. The names are the changelogs'."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.protocol.schema import LEGACY_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One revision and its vocabulary.

    Attributes:
        version: As in ``protocolVersion``.
        batches: A body may be an array of messages.
        tool_annotations: Tools have ``annotations``, ``title`` of them included.
        audio: There are blocks of audio.
        progress_messages: Progress has a ``message``.
        titles: Tools, implementations and resource links have a ``title``.
        structured: Tools have ``outputSchema``, results ``structuredContent``: objects both.
        resource_links: There are blocks that point to a resource.
        block_meta: Tools, blocks and contents have ``_meta``; results have it everywhere.
        last_modified: Annotations of blocks have ``lastModified``.
        elicitation: Clients can be asked with a form.
        url_elicitation: Clients can be asked to open a URL.
        form_vocabulary: Forms have titled choices as ``oneOf``, choices of several, and defaults
            of every type. Before, titles were ``enumNames`` and booleans alone had defaults.
        sampling_tools: Clients' models can be given tools, and messages have several blocks.
        icons: Tools, implementations and resource links have ``icons``.
        descriptions: Implementations have ``description`` and ``websiteUrl``.
        argument_errors_as_results: Bad arguments are a result with ``isError``, so that the model
            can do better; before, a protocol error.
        resumption: Streams begin with an event that has an id and no data.
    """

    version: str
    batches: bool
    tool_annotations: bool
    audio: bool
    progress_messages: bool
    titles: bool
    structured: bool
    resource_links: bool
    block_meta: bool
    last_modified: bool
    elicitation: bool
    url_elicitation: bool
    form_vocabulary: bool
    sampling_tools: bool
    icons: bool
    descriptions: bool
    argument_errors_as_results: bool
    resumption: bool


_2024_11_05: Final = Revision(
    version="2024-11-05",
    batches=True,  # its pages do not say; JSON-RPC 2.0, on which they build, has them
    tool_annotations=False,
    audio=False,
    progress_messages=False,
    titles=False,
    structured=False,
    resource_links=False,
    block_meta=False,
    last_modified=False,
    elicitation=False,
    url_elicitation=False,
    form_vocabulary=False,
    sampling_tools=False,
    icons=False,
    descriptions=False,
    argument_errors_as_results=False,
    resumption=False,
)
# Key Changes of 2025-03-26: major 4, and "Other schema changes" 1 and 2.
_2025_03_26: Final = replace(
    _2024_11_05,
    version="2025-03-26",
    tool_annotations=True,
    progress_messages=True,
    audio=True,
)
# Key Changes of 2025-06-18: major 1, 2, 6, 7 and 8; other 1 and 3; `lastModified` by its schema.
_2025_06_18: Final = replace(
    _2025_03_26,
    version="2025-06-18",
    batches=False,
    structured=True,
    elicitation=True,
    resource_links=True,
    block_meta=True,
    titles=True,
    last_modified=True,
)
# Key Changes of 2025-11-25: major 2, 5, 6 and 7; minor 1, 4, 5 and 8.
_2025_11_25: Final = replace(
    _2025_06_18,
    version="2025-11-25",
    icons=True,
    form_vocabulary=True,
    url_elicitation=True,
    sampling_tools=True,
    descriptions=True,
    argument_errors_as_results=True,
    resumption=True,
)

REVISIONS: Final[Mapping[str, Revision]] = {
    revision.version: revision for revision in (_2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05)
}
"""By version, newest first."""

LATEST_LEGACY: Final = REVISIONS[LEGACY_PROTOCOL_VERSIONS[0]]

ASSUMED: Final = _2025_03_26
"""Of a request that names no version and belongs to no session (2025-06-18, Transports)."""


def negotiate(requested: Any) -> Revision:
    """The revision that answers ``initialize``: the one asked for, else the latest of its era."""
    return REVISIONS.get(requested, LATEST_LEGACY) if isinstance(requested, str) else LATEST_LEGACY
