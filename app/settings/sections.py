"""The smaller sections: tools, execution, secrets, logging, overrides."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator
from pydantic.types import SecretStr

from app.settings.base import MAX_DEADLINE_S, DeadlineSeconds, Seconds, Section
from app.settings.limits import RateLimit
from app.settings.recording import Record

MIN_KEY_CHARACTERS: Final = 32


class ToolsSettings(Section):
    directory: Annotated[Path, Field(description="Folder of the tools.")] = Path("tools")
    page_size: Annotated[
        int, Field(ge=1, le=10_000, description="Tools on one page of tools/list.")
    ] = 250
    list_ttl_ms: Annotated[
        int,
        Field(ge=0, le=86_400_000, description="How long clients may keep a list; 0: always ask."),
    ] = 0
    reload: Annotated[
        bool,
        Field(description="Watch the folder and the configuration file, and tell listeners."),
    ] = True
    separator: Annotated[
        Literal[".", "_", "-", "__"],
        Field(description="Stands between a sub-folder's name and the tool's."),
    ] = "."
    unknown_arguments: Annotated[
        Literal["refuse", "ignore"],
        Field(description="What happens to arguments that a tool does not have."),
    ] = "refuse"


class ExecutionSettings(Section):
    timeout_s: Annotated[
        DeadlineSeconds, Field(description="Deadline of one tools/call in seconds.")
    ] = 30.0
    max_result_bytes: Annotated[
        int, Field(ge=1024, le=1 << 30, description="Largest encoded result of a call.")
    ] = 900 * 1024
    clean_text: Annotated[
        bool,
        Field(
            description="Take invisible and bidirectional characters and terminal escapes out of "
            "what tools return and say."
        ),
    ] = True
    cache_bytes: Annotated[
        int,
        Field(
            ge=0,
            le=1 << 40,
            description="Memory for results of tools with `cache_ttl_s`; 0: none is kept.",
        ),
    ] = 64 * 1024 * 1024
    idempotency_ttl_s: Annotated[
        float,
        Field(
            ge=60,
            le=30 * 86_400,
            description="How long the outcome of a call with an idempotency key is kept.",
        ),
    ] = 86_400.0
    silence_s: Annotated[
        Seconds, Field(description="A call that says nothing for this long becomes a stream.")
    ] = 10.0
    keep_alive_s: Annotated[
        Seconds, Field(description="A quiet stream gets a comment this often.")
    ] = 15.0
    threads: Annotated[
        int, Field(ge=1, le=10_000, description="Synchronous tools that run at once.")
    ] = 40
    max_abandoned_threads: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="Threads past their deadline that may still run; then calls get 503.",
        ),
    ] = 200
    ask_ttl_s: Annotated[
        Seconds,
        Field(description="How long a client may take to come back with what a tool asked for."),
    ] = 600.0
    processes: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description='Worker processes, if a tool has `isolation="process"`; calls that run '
            "there at once.",
        ),
    ] = 4
    process_memory_bytes: Annotated[
        int,
        Field(
            ge=16 * 1024 * 1024,
            le=1 << 44,
            description="Memory that a call may take in its process, beyond what the process had "
            "when it was ready.",
        ),
    ] = 512 * 1024 * 1024
    process_cpu_s: Annotated[
        DeadlineSeconds,
        Field(description="Processor time of a call in its process, kept to a second."),
    ] = 30.0
    process_output_bytes: Annotated[
        int,
        Field(
            ge=1024,
            le=1 << 30,
            description="What a call in a process may print and log; it goes to the log.",
        ),
    ] = 1024 * 1024


class SecretsSettings(Section):
    keys: Annotated[
        tuple[SecretStr, ...],
        Field(description="Keys for what clients hand back, newest first; 32 characters or more."),
    ] = ()
    keys_file: Annotated[
        Path | None,
        Field(
            description="File with these keys instead, one on each line, such as a secret of "
            "Docker; read at the start."
        ),
    ] = None

    @field_validator("keys")
    @classmethod
    def _keys_are_long(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(len(key.get_secret_value()) < MIN_KEY_CHARACTERS for key in value):
            raise ValueError(
                f"each key needs at least {MIN_KEY_CHARACTERS} characters; make one with "
                "`openssl rand -base64 32`"
            )
        return value

    @property
    def encoded(self) -> list[bytes]:
        """The keys as bytes, newest first."""
        return [key.get_secret_value().encode() for key in self.keys]


REDACTED_LOCALES: Final = (
    *("ar", "at", "au", "be", "bg", "br", "ca", "ch", "cl", "cn", "cz", "de", "dk", "ee", "es"),
    *("fi", "fr", "gb", "gr", "hr", "id", "ie", "il", "in", "is", "it", "jp", "kr", "lt", "lv"),
    *("mx", "my", "nl", "no", "pl", "pt", "ro", "ru", "se", "si", "sk", "th", "tr", "ua", "us"),
    "za",
)
"""Countries whose national ids the redaction knows."""


class LoggingSettings(Section):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Mildest level written.")
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "pretty"],
        Field(description="JSON lines, or coloured text; auto: pretty on a terminal."),
    ] = "auto"
    redact: Annotated[
        tuple[Literal["email", "phone", "card", "national_id", "secret"], ...],
        Field(description="What is masked in log lines; an empty list masks nothing."),
    ] = ("email", "phone", "card", "national_id", "secret")
    locales: Annotated[
        tuple[str, ...],
        Field(
            description="Countries (ISO 3166, two small letters) whose national ids, and whose "
            "phone numbers without a country code, are masked too."
        ),
    ] = ()

    @field_validator("locales")
    @classmethod
    def _locales_are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for locale in value:
            if locale not in REDACTED_LOCALES:
                raise ValueError(
                    f"{locale!r} is not a country that is known; known: "
                    f"{', '.join(REDACTED_LOCALES)}"
                )
        return value


ENVIRONMENT_TOOL: Final = "environment:"
"""Stands before a tool's name among the overrides when it comes from the environment, where names
have no case and no ``.`` or ``-``: what is meant for one tool must not reach another."""


class ToolOverride(Section):
    """``[overrides."name"]``: changes one tool without touching its file."""

    enabled: Annotated[bool, Field(description="False takes the tool off the list.")] = True
    title: Annotated[str | None, Field(description="Replaces the title.")] = None
    description: Annotated[str | None, Field(description="Replaces the description.")] = None
    timeout_s: Annotated[
        float | None,
        Field(gt=0, le=MAX_DEADLINE_S, description="Replaces the deadline in seconds."),
    ] = None
    rate_limit: Annotated[
        RateLimit | None,
        Field(description="Replaces the tool's own rate limit; those of [[limits.rates]] stay."),
    ] = None
    max_concurrent: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Replaces how many calls of it may run at once."),
    ] = None
    cache_ttl_s: Annotated[
        float | None,
        Field(
            ge=0,
            le=86_400,
            description="Replaces how long results are kept, in seconds; 0: they are not.",
        ),
    ] = None
    audit: Annotated[
        Literal["on", "off", "required"] | None,
        Field(description="Replaces whether calls of it are put on the audit record."),
    ] = None
    record: Annotated[
        Record | None, Field(description="Replaces which calls of it are recorded.")
    ] = None
    log_arguments: Annotated[
        bool | None,
        Field(description="Whether the log shows its arguments, masked and bounded."),
    ] = None
    settings: Annotated[
        Mapping[str, Any], Field(description="What the tool reads as ctx.settings.")
    ] = Field(default_factory=dict)
