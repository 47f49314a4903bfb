"""``[recording]``: calls that are kept so that they can be run again."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from app.settings.base import Section

Record = Literal["errors", "all", "none"]


class RecordingSettings(Section):
    directory: Annotated[
        Path | None,
        Field(description="Where recordings are kept, encrypted; none: nothing is recorded."),
    ] = None
    record: Annotated[
        Record, Field(description="What is recorded of tools that do not say it themselves.")
    ] = "none"
    max_recordings: Annotated[
        int,
        Field(ge=1, le=10_000, description="How many are kept; then the oldest go."),
    ] = 1000
    max_bytes: Annotated[
        int, Field(ge=64 * 1024, le=1 << 40, description="How many bytes they may take together.")
    ] = 64 * 1024 * 1024
    max_age_s: Annotated[
        float, Field(ge=60, le=10 * 365 * 86_400, description="How long one is kept, in seconds.")
    ] = 7 * 86_400.0
    max_recording_bytes: Annotated[
        int,
        Field(
            ge=16 * 1024,
            le=1 << 30,
            description="Largest recording; of a larger one the result is left out, then the "
            "arguments.",
        ),
    ] = 128 * 1024
    redact: Annotated[
        tuple[Literal["email", "phone", "card", "national_id", "secret"], ...],
        Field(description="What is masked in recordings; `secret` is always among it."),
    ] = ("email", "phone", "card", "national_id", "secret")

    @field_validator("redact")
    @classmethod
    def _secrets_are_masked(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "secret" not in value:
            raise ValueError('"secret" must be in the list: no secret is ever recorded')
        return value

    @model_validator(mode="after")
    def _can_be_kept(self) -> "RecordingSettings":
        if self.record != "none" and self.directory is None:
            raise ValueError(f'record = "{self.record}" needs a directory to keep recordings in')
        if self.max_recording_bytes > self.max_bytes:
            raise ValueError("max_recording_bytes must not be above max_bytes")
        return self
