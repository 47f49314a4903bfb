"""Asking back: what a tool can ask the client, and what comes back (Multi Round-Trip Requests).

A call that asks ends with its questions and is run again from its start when the answers come. So
``await`` either gives the answer or does not return: it leaves the tool by way of ``Pause``.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

from app.content import Audio, Image, Text

M = TypeVar("M")
F = TypeVar("F", bound=BaseModel)

Message = Mapping[str, Any]
"""A ``SamplingMessage``: ``role``, and ``content`` as text, block, or list of blocks."""


class Pause(BaseException):
    """Leaves a tool whose question is not answered yet. Let it pass.

    ``finally`` blocks run as ever. A tool that catches it and goes on is told so, and its call
    fails.
    """


@dataclass(frozen=True, slots=True)
class ElicitResult(Generic[M]):
    """What a user said to a question.

    Attributes:
        action: ``accept``; ``decline``: an explicit no; ``cancel``: dismissed without a choice.
        data: What was filled in; None unless a form or a page of this server was.
    """

    action: Literal["accept", "decline", "cancel"]
    data: M | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file that the client says a server may work on.

    Attributes:
        uri: Begins with ``file://``.
        name: For people; empty where there is none.
    """

    uri: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What the client's model answered.

    Attributes:
        content: Blocks of text, image and audio, in their wire form.
        model: Name of the model, as the client tells it.
        stop_reason: Such as ``endTurn`` or ``maxTokens``; empty where the client did not say.
    """

    content: Sequence[Mapping[str, Any]]
    model: str
    stop_reason: str = ""

    @property
    def text(self) -> str:
        """All text of it."""
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingTool:
    """What the client's model may use while it answers.

    Attributes:
        input_schema: A JSON Schema with ``"type": "object"``.
        function: Called with an input that satisfies the schema; may be ``async``. What it returns
            goes to the model as text, or as JSON where it is no text; a ``ToolError`` as an error.
            An effect of it happens once, however often the tool that asks is run again.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[[dict[str, Any]], Any]


class Asker(Protocol):
    """What a running call offers to ``Context`` for its questions (see ``app.execution``)."""

    def can_ask(self, what: str) -> bool: ...
    def elicit(
        self, key: str, message: str, model: type[F]
    ) -> Coroutine[Any, Any, ElicitResult[F]]: ...
    def elicit_url(
        self, key: str, message: str, url: str
    ) -> Coroutine[Any, Any, ElicitResult[None]]: ...
    def elicit_page(
        self, key: str, message: str, model: type[F]
    ) -> Coroutine[Any, Any, ElicitResult[F]]: ...
    def sample(
        self,
        key: str,
        messages: "str | Sequence[Message]",
        *,
        max_tokens: int,
        options: Mapping[str, Any],
        tools: Sequence[SamplingTool],
        max_rounds: int,
    ) -> Coroutine[Any, Any, SampleResult]: ...
    def roots(self, key: str) -> Coroutine[Any, Any, tuple[Root, ...]]: ...
    def once(self, key: str, function: Callable[[], Any]) -> Coroutine[Any, Any, Any]: ...


SAMPLED_BLOCKS = (Text, Image, Audio)
"""Blocks that a message for sampling may hold."""
