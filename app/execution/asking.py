"""Asking back: the rounds of a call, and the state that ties them together.

A tool that asks is left by way of ``Pause``; its call ends with the questions. The client comes
back with the answers and with ``requestState``: sealed, it holds the answers of earlier rounds,
what ``once`` remembers, and which questions were asked. Nothing is kept here between the rounds.
"""

import asyncio
import contextlib
import hashlib
import inspect
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from app.execution.pages import Pages, pages_url
from app.execution.paging import elicit_page
from app.execution.questions import (
    Question,
    form_question,
    roots_question,
    sampling_messages,
    url_question,
)
from app.execution.sampling import sample
from app.principal import Principal
from app.protocol.asking import BadAnswer, Retry
from app.protocol.capabilities import has_capability, missing_capabilities
from app.protocol.errors import InvalidParams, Unavailable
from app.protocol.jsonrpc import canonical, dumps, loads
from app.protocol.sealed import CLOCKS_DIFFER_S, KeyRing, Sealer, Unopened
from app.settings import Settings
from app.state.interface import Store, StoreUnavailable
from app.toolkit import ElicitResult, Root, SampleResult, SamplingTool, ToolError
from app.toolkit.asking import F, Message, Pause

MAX_STATE_CHARACTERS: Final = 32 * 1024
"""Of ``requestState``. It is sent twice in each round."""

MAX_ROUNDS: Final = 25
"""A tool whose question changes each time would ask for ever."""

TURNS: Final = 4
"""Turns of the event loop in which further questions join the first: tasks inside tasks."""

PURPOSE: Final = "requestState 1"


class State(NamedTuple):
    """What ``requestState`` holds.

    Attributes:
        rounds: How often the call has asked.
        asked: Digests of the questions that wait for an answer, by key.
        answers: Digest of the question, and the answer, by key.
        once: What ``once`` remembers, by key.
        pages: Handles of the pages that the user was sent to, by key.
    """

    rounds: int
    asked: dict[str, str]
    answers: dict[str, tuple[str, dict[str, Any]]]
    once: dict[str, Any]
    pages: Mapping[str, str] = MappingProxyType({})


class Desk:
    """Opens and seals the state of calls that ask, for one server.

    Args:
        ask_ttl_s: How long a client may take for a round.
        pages_url: Gives the URL of a caller's pages, or raises ``ToolError``.
        needs_state: False takes answers without ``requestState`` from every tool: for calls that
            are run again.
        clock: Gives POSIX time.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        keys: KeyRing,
        store: Store,
        *,
        ask_ttl_s: float,
        pages_url: Callable[[Principal], str] = lambda principal: pages_url(Settings(), principal),
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
        needs_state: bool = True,
    ) -> None:
        self.store = store
        self._needs_state = needs_state
        self.pages = Pages(keys, store, ttl_s=ask_ttl_s, clock=clock, random=random)
        self.pages_url = pages_url
        self._sealer = Sealer(keys, purpose=PURPOSE, max_characters=MAX_STATE_CHARACTERS)
        self._ask_ttl_s = ask_ttl_s
        self._clock = clock
        self._random = random

    def begin(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        principal: Principal,
        capabilities: Mapping[str, Any],
        retry: Retry | None = None,
        *,
        needs_state: bool = False,
    ) -> "Asking":
        """The questions of a call, with what it brings back from earlier rounds.

        Args:
            tool: Its name.
            arguments: As the client sent them.
            needs_state: Answers without ``requestState`` are not looked at.

        Raises:
            InvalidParams: The state was altered, has expired, or belongs to another caller, tool
                or arguments: the client is not told which.
        """
        bound_to = _binding(tool, arguments, principal)
        asking = partial(
            Asking,
            self,
            tool=tool,
            principal=principal,
            bound_to=bound_to,
            capabilities=capabilities,
        )
        if retry is None:
            return asking(responses={}, state=None)
        if retry.state is None:
            # Multi Round-Trip Requests does not ask for a state; an answer is the user's word,
            # and is checked like an argument.
            is_idle = needs_state and self._needs_state
            return asking(responses={} if is_idle else retry.responses, state=None)
        try:
            opened = self._sealer.open(retry.state, bound_to=bound_to, now=self._clock())
        except Unopened:
            raise bad_state() from None
        return asking(responses=retry.responses, state=State(*loads(opened)))

    async def redeem(self, state: str) -> None:
        """Note that a state was used, for tools whose questions are answered once.

        Raises:
            InvalidParams: It was used before.
            Unavailable: Nobody can say.
        """
        name = _used_name(state)
        try:
            # Kept as long as the state opens anywhere.
            ttl_s = self._ask_ttl_s + CLOCKS_DIFFER_S
            is_first = await self.store.replace(name, None, b"", ttl_s=ttl_s)
        except StoreUnavailable as error:
            raise Unavailable("Answers cannot be taken at the moment.", retry_after_s=2) from error
        if not is_first:
            raise bad_state()

    async def give_back(self, state: str) -> None:
        """The counterpart of ``redeem``, where nothing came of the call after all."""
        with contextlib.suppress(StoreUnavailable):  # then the user is asked again
            await self.store.delete(_used_name(state))

    def seal(self, state: State, bound_to: bytes) -> str:
        """``requestState``.

        Raises:
            ToolError: There is more in it than clients should have to carry.
        """
        token = self._sealer.seal(
            dumps(list(state)),
            bound_to=bound_to,
            expires_at=self._clock() + self._ask_ttl_s,
            nonce=self._random(12),
        )
        if len(token) > MAX_STATE_CHARACTERS:
            raise ToolError(
                f"The answers so far are too long to be carried to the next question: the state "
                f"has {len(token):,} characters, and {MAX_STATE_CHARACTERS:,} are allowed."
            )
        return token


def bad_state() -> InvalidParams:
    """One refusal for every state that does not count, whatever the reason."""
    return InvalidParams(
        "params.requestState is not valid for this call: it has expired, was used or altered, or "
        "was made for another caller, tool or arguments. Send the call again without it."
    )


def _used_name(state: str) -> str:
    return "asked:" + hashlib.sha256(state.encode()).hexdigest()


def _binding(tool: str, arguments: Mapping[str, Any], principal: Principal) -> bytes:
    return hashlib.sha256(canonical([*principal.identity, tool, arguments])).digest()


class Asking:
    """The questions of one run of one tool. Implements ``app.toolkit.asking.Asker``.

    Attributes:
        page_handles: Of the pages that the user is sent to, by key.
        is_paused: Whether the tool was told to leave because its questions have no answer.
        has_asked: Whether the result depends on what was answered, or is to be.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        tool: str,
        principal: Principal,
        bound_to: bytes,
        capabilities: Mapping[str, Any],
        responses: Mapping[str, dict[str, Any]],
        state: State | None,
    ) -> None:
        self.desk, self.tool, self.principal = desk, tool, principal
        self._bound_to = bound_to
        self._capabilities = capabilities
        self._responses = responses
        self._before = state
        self._rounds = 0 if state is None else state.rounds
        self._answers = {} if state is None else dict(state.answers)
        self._once = {} if state is None else dict(state.once)
        self.page_handles = {} if state is None else dict(state.pages)
        self._digests: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[asyncio.Future[None], tuple[Question, str]] = {}
        self._requests: dict[str, tuple[str, dict[str, Any]]] = {}
        self._effects = 0
        self._is_scheduled = False
        self.is_paused = False
        self.has_asked = bool(responses) or state is not None

    # What the executor uses.

    def result(self) -> tuple[dict[str, Any], str]:
        """``inputRequests`` and ``requestState`` of a tool that was paused.

        Raises:
            ToolError: Too many rounds, or too much to carry.
        """
        if self._rounds >= MAX_ROUNDS:
            raise ToolError(f"The tool has asked in {MAX_ROUNDS} rounds and is not done.")
        asked = {key: digest for key, (digest, _) in self._requests.items()}
        state = State(self._rounds + 1, asked, self._answers, self._once, self.page_handles)
        requests = {key: request for key, (_, request) in self._requests.items()}
        return requests, self.desk.seal(state, self._bound_to)

    @property
    def answers(self) -> dict[str, Mapping[str, Any]]:
        """What was answered, in this round and in earlier ones; of pages no more than that."""
        return {**self._responses, **{key: answer for key, (_, answer) in self._answers.items()}}

    # What the tool's Context uses.

    def can_ask(self, what: str) -> bool:
        self.has_asked = True  # the result depends on what the client can do
        return has_capability(self._capabilities, what)

    async def elicit(self, key: str, message: str, model: type[F]) -> ElicitResult[F]:
        answer: ElicitResult[F] = await self.ask(form_question(key, message, model))
        return answer

    async def elicit_url(self, key: str, message: str, url: str) -> ElicitResult[None]:
        answer: ElicitResult[None] = await self.ask(url_question(key, message, url))
        return answer

    async def elicit_page(self, key: str, message: str, model: type[F]) -> ElicitResult[F]:
        return await elicit_page(self, key, message, model)

    async def roots(self, key: str) -> tuple[Root, ...]:
        answer: tuple[Root, ...] = await self.ask(roots_question(key))
        return answer

    async def sample(
        self,
        key: str,
        messages: str | Sequence[Message],
        *,
        max_tokens: int,
        options: Mapping[str, Any],
        tools: Sequence[SamplingTool],
        max_rounds: int,
    ) -> SampleResult:
        return await sample(
            self,
            key,
            sampling_messages(messages),
            max_tokens=max_tokens,
            options=options,
            tools=tools,
            max_rounds=max_rounds,
        )

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._once:
                with self.effect():
                    outcome = function()
                    value = await outcome if inspect.isawaitable(outcome) else outcome
                    self._once[key] = loads(dumps(value))
            return loads(dumps(self._once[key]))  # a copy: what is remembered stays as it was

    @contextmanager
    def effect(self) -> Iterator[None]:
        """Round something that the state is to remember: the pause waits for its end.

        Raises:
            Pause: It could not be remembered any more.
        """
        if self.is_paused:
            raise Pause
        self._effects += 1
        try:
            yield
        finally:
            self._effects -= 1
            self._schedule()

    def require(self, needs: Sequence[str]) -> None:
        """What a client must have declared.

        Raises:
            ToolError: It did not.
        """
        missing = missing_capabilities(self._capabilities, needs)
        if missing:
            raise ToolError(
                "This tool has to ask for something, and the client did not declare that it can "
                f"be asked ({', '.join(missing)})."
            )

    def answered(self, key: str) -> Any:
        """``action`` of what was answered, in this round or an earlier one; None: nothing was."""
        response = self._responses.get(key)
        if response is None and key in self._answers:
            response = self._answers[key][1]
        return response and response.get("action")

    def was_answered(self, key: str) -> bool:
        """Whether an earlier round brought an answer that counted."""
        return key in self._answers

    async def ask(self, question: Question, *, otherwise: Mapping[str, Any] | None = None) -> Any:
        """What the client answered.

        Args:
            otherwise: Counts as the answer where there is none.

        Raises:
            Pause: Nothing that fits yet.
            ToolError: The client did not declare that it can be asked this.
            ValueError: The key names another question of this run.
        """
        if self._digests.setdefault(question.key, question.digest) != question.digest:
            raise ValueError(f"the key {question.key!r} names two different questions of one call")
        self.require(question.needs)
        self.has_asked = True
        try:
            found, value = self._answer_to(question, otherwise)
            reason = ""
        except BadAnswer as bad:
            found, value, reason = False, None, str(bad)
        if found:
            return value
        if not self.is_paused:
            await self._wait(question, reason)
        raise Pause

    def _answer_to(
        self, question: Question, otherwise: Mapping[str, Any] | None
    ) -> tuple[bool, Any]:
        key, before = question.key, self._before
        response: Mapping[str, Any] | None = self._responses.get(key)
        digest, carried = self._answers.get(key, ("", {}))
        # What a user agreed to counts for the question that the user was asked, and an answer
        # of an earlier round cannot be replaced.
        if response is None or (before is not None and before.asked.get(key) != question.digest):
            if digest == question.digest:
                return True, question.read(carried)[0]
            if otherwise is None:
                return False, None
            response = otherwise
        value, kept = question.read(response)
        self._answers[key] = (question.digest, dict(kept))
        return True, value

    # The pause.

    async def _wait(self, question: Question, reason: str) -> None:
        left = asyncio.get_running_loop().create_future()
        self._waiting[left] = question, reason
        self._schedule()
        try:
            await left
        finally:
            self._waiting.pop(left, None)

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn, TURNS)

    def _turn(self, left: int) -> None:
        if not self._waiting or self._effects:
            self._is_scheduled = False  # an effect under way is remembered first
        elif left:
            asyncio.get_running_loop().call_soon(self._turn, left - 1)
        else:
            self._pause()

    def _pause(self) -> None:
        self.is_paused = True
        for waiter, (question, reason) in self._waiting.items():
            request = question.again(reason) if reason else question.request
            self._requests[question.key] = question.digest, request
            if not waiter.done():
                waiter.set_result(None)


def is_pause(error: BaseException) -> bool:
    """Whether a tool ended because of its pause alone, as one or as a group of them."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_pause, error.exceptions))
    return isinstance(error, Pause)


class SwallowedPause(RuntimeError):
    """A tool went on after its question had paused it."""

    public: Final = "The tool asked a question and did not wait for the answer."
