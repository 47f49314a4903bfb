"""``[[hooks]]``: what stands around the calls of which tools."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from app.settings.base import Section
from app.settings.policies import Name


class HookSettings(Section):
    """One hook. All that name a tool run, in the order in which they stand."""

    tools: Annotated[
        tuple[Name, ...],
        Field(
            min_length=1,
            description="Names of tools; `*` and `?` stand for any text and any character.",
        ),
    ]
    use: Annotated[
        Name,
        Field(
            description="`redact` or `injection`, which are built in, or the name of a hook that "
            "is declared in the tools folder."
        ),
    ]
    options: Annotated[Mapping[str, Any], Field(description="What the hook is told.")] = Field(
        default_factory=dict
    )
