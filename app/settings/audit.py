"""The section ``[audit]``: the record of calls."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from app.settings.base import Section


class AuditSettings(Section):
    directory: Annotated[
        Path | None,
        Field(description="Folder of the audit record, made if it is not there; unset: none."),
    ] = None
    fsync: Annotated[
        Literal["never", "batch"],
        Field(
            description="Whether answers wait until their records are on the disk, which a loss of "
            "power cannot take back, or in the system's memory, which a killed process cannot."
        ),
    ] = "never"
    rotate_bytes: Annotated[
        int,
        Field(ge=64 * 1024, le=1 << 40, description="A file that has reached this is closed."),
    ] = 64 * 1024 * 1024
    rotate_s: Annotated[
        float,
        Field(ge=60, le=366 * 86_400, description="A file that is this old is closed."),
    ] = 86_400.0
    keep_files: Annotated[
        int | None,
        Field(ge=2, le=1_000_000, description="The oldest files beyond so many are deleted."),
    ] = None
    keep_s: Annotated[
        float | None,
        Field(
            ge=3600,
            le=100 * 366 * 86_400,
            description="Files to which nothing was written for so long are deleted.",
        ),
    ] = None
    patience_s: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            description="An answer waits so long for its record; then the record fails, and calls "
            "go on without it unless their tool demands it.",
        ),
    ] = 5.0
