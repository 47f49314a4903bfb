"""``Context``: the call that a tool answers."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, overload

from app.observability.propagation import outgoing_headers
from app.principal import Principal
from app.protocol.schema import Implementation
from app.protocol.trace_context import TraceContext
from app.toolkit.asking import Asker, ElicitResult, F, M, Message, Root, SampleResult, SamplingTool
from app.toolkit.handles import Handles


class Finished(Awaitable[None]):
    """Done already; ``await`` lets other work run once. Returned where awaiting is optional."""

    def __await__(self) -> Generator[None, None, None]:
        yield


FINISHED: Final = Finished()


class CallChannel(Protocol):
    """What a running call offers to its Context (see ``app.execution``)."""

    @property
    def is_over(self) -> bool: ...
    @property
    def remaining_s(self) -> float: ...
    def progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def log(self, level: str, data: Any, logger: str | None) -> None: ...
    def asker(self) -> Asker: ...
    def handles(self) -> Handles: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The call that a tool answers. Declare a parameter of this type to get it.

    Attributes:
        tool_name: The tool's name as served.
        request_id: JSON-RPC id of the request; unique only to its sender.
        principal: Who calls.
        protocol_version: Revision of the request.
        client: What the client says it is; for display only.
        meta: The request's ``_meta`` object.
        settings: ``[overrides."<tool>".settings]`` and their environment variables.
        lifespan: What the module's ``lifespan()`` yielded, else None.
        trace: Where the request hangs in its caller's trace; see ``trace_headers``.
    """

    tool_name: str
    request_id: str | int
    principal: Principal
    protocol_version: str
    client: Implementation | None
    meta: Mapping[str, Any]
    settings: Mapping[str, Any]
    lifespan: Any
    channel: CallChannel = field(repr=False)
    trace: TraceContext | None = None

    def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Tell the client how far the call is. From the event loop and from threads alike.

        Values that do not increase are dropped, floods are thinned out, and nothing is sent to
        a client that did not ask for progress. Awaiting the returned object is optional.

        Raises:
            TypeError, ValueError: Not a finite number, or the message is not text.
        """
        self.channel.progress(done, total, message)
        return FINISHED

    def log(self, level: str, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client if it asked for this level.

        The protocol has deprecated this feature; prefer progress, results and your own logs.

        Raises:
            ValueError: The level is not one of the eight of RFC 5424, or a number is not finite.
            TypeError: The data has no JSON form.
        """
        self.channel.log(level, data, logger)
        return FINISHED

    @property
    def cancelled(self) -> bool:
        """Whether the caller has gone or the deadline has passed. For threads to look at."""
        return self.channel.is_over

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; never negative."""
        return self.channel.remaining_s

    def trace_headers(self) -> dict[str, str]:
        """Headers that put a request to another service into the trace of this call.

        Returns:
            ``traceparent``, and where there are any ``tracestate`` and ``baggage``: of the span
            that is current, while spans are made (``[tracing]``), else the caller's own. Empty
            where the caller sent none.
        """
        return outgoing_headers(self.trace)

    # Asking back, for async tools. Called in a thread, each of these raises RuntimeError.

    def can_ask(self, what: str) -> bool:
        """Whether the client declared what asking this needs; one of ``@tool(asks=...)``."""
        return self.channel.asker().can_ask(what)

    def elicit(
        self, key: str, message: str, model: type[F]
    ) -> Coroutine[Any, Any, ElicitResult[F]]:
        """Ask the user to fill in a form.

        The call ends with the question; when the answer comes, the tool is run again from its
        start, and here goes on with the answer. An answer that does not fit is asked for again.

        Args:
            key: Names the question; each question of a tool has its own.
            message: Says what for, in plain words and without links. It must be the same each
                time: what a user agreed to counts for the question that the user was asked.
            model: A flat pydantic model: the form (Elicitation, "Requested Schema").

        Raises:
            ToolError: The client cannot ask users this.
            ValueError: The model is no form, the message has a link, or the key was used for
                another question.
        """
        return self.channel.asker().elicit(key, message, model)

    def elicit_url(
        self, key: str, message: str, url: str
    ) -> Coroutine[Any, Any, ElicitResult[None]]:
        """Ask the user to open a page of another server, for what must not pass the client.

        Where a form will do, ``elicit_page`` is the shorter way: the page is there.

        ``accept`` means that the user agreed to open it, not that anything was done there: the
        page keeps what it learns, and the tool looks for it. The page must find out by itself
        that who opens it is the user who was asked (Elicitation, "Phishing").

        Args:
            url: https, or http on loopback; without user data and not opening anything by itself.

        Raises:
            ToolError, ValueError: As ``elicit``.
        """
        return self.channel.asker().elicit_url(key, message, url)

    def elicit_page(
        self, key: str, message: str, model: type[F]
    ) -> Coroutine[Any, Any, ElicitResult[F]]:
        """Ask the user to fill in a form on a page of this server: for passwords, keys, tokens.

        Nothing of it passes through the client. The page lets in the user of this call alone, who
        logs in at the issuer (``[auth.issuers.browser]``). What is entered is kept for
        ``[execution] ask_ttl_s``, sealed; put it away for good, if you need it for longer.

        Args:
            key: As ``elicit``.
            message: As ``elicit``.
            model: A flat pydantic model, which may have secrets.

        Raises:
            ToolError: The client cannot send users to a URL, or the caller has no user who could
                log in to a page.
            ValueError: As ``elicit``.
        """
        return self.channel.asker().elicit_page(key, message, model)

    def sample(
        self,
        key: str,
        messages: str | Sequence[Message],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] = (),
        model_preferences: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: Sequence[SamplingTool] = (),
        max_rounds: int = 5,
    ) -> Coroutine[Any, Any, SampleResult]:
        """Ask the client's model. The protocol has deprecated this feature.

        Args:
            messages: One text of the user, or a whole conversation.
            tools: What the model may use. Each round of uses is a round of the call.
            max_rounds: How often it may; after that it must answer without.

        Raises:
            ToolError: The client has no model for servers, or no tools for it; or the model uses
                tools after all its rounds.
            ValueError: As ``elicit``; or tool uses and results of the messages do not match.
        """
        options = {
            "systemPrompt": system_prompt,
            "temperature": temperature,
            "stopSequences": list(stop_sequences) or None,
            "modelPreferences": model_preferences,
            "metadata": metadata,
        }
        return self.channel.asker().sample(
            key,
            messages,
            max_tokens=max_tokens,
            options={name: value for name, value in options.items() if value is not None},
            tools=tools,
            max_rounds=max_rounds,
        )

    def roots(self, key: str = "roots") -> Coroutine[Any, Any, tuple[Root, ...]]:
        """Ask which folders and files to work on. The protocol has deprecated this feature.

        Raises:
            ToolError: The client has no roots.
        """
        return self.channel.asker().roots(key)

    @overload
    def once(self, key: str, function: Callable[[], Awaitable[M]]) -> Coroutine[Any, Any, M]: ...

    @overload
    def once(self, key: str, function: Callable[[], M]) -> Coroutine[Any, Any, M]: ...

    def once(self, key: str, function: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Call a function in the first round of a call and remember what it returned.

        For effects that must not be repeated when the tool is run again with answers. What is
        remembered travels with the question, so a client that drops it begins from the start.

        Args:
            function: Without parameters, may be ``async``. It returns data with a JSON form,
                which comes back as plain data.

        Raises:
            TypeError: What it returned has no JSON form.
        """
        return self.channel.asker().once(key, function)

    @property
    def handles(self) -> Handles:
        """Values that are kept for this caller under names that go from call to call.

        Raises:
            RuntimeError: In a thread.
        """
        return self.channel.handles()
