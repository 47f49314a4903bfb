"""``[legacy]``: clients of the revisions before 2026-07-28, which open with ``initialize``."""

from typing import Annotated

from pydantic import Field

from app.settings.base import Seconds, Section


class LegacySettings(Section):
    enabled: Annotated[
        bool,
        Field(description="Serve 2024-11-05, 2025-03-26, 2025-06-18 and 2025-11-25 as well."),
    ] = True
    session_ttl_s: Annotated[
        float, Field(gt=0, le=30 * 86_400, description="How long a session lasts.")
    ] = 86_400.0
    ask_timeout_s: Annotated[
        Seconds,
        Field(
            description="How long a tool waits for what it asked a client. It does not count "
            "against the deadline of the call."
        ),
    ] = 300.0
    poll_after_s: Annotated[
        float | None,
        Field(
            gt=0,
            le=86_400,
            description="Streams of 2025-11-25 that stay open longer are closed, and the client "
            "comes back for the rest. Default: they stay open.",
        ),
    ] = None
    replay_ttl_s: Annotated[
        Seconds,
        Field(
            description="How long a client of 2025-11-25 may come back for the rest of a stream."
        ),
    ] = 300.0
