"""Asking clients of the ``initialize`` era: a request on the stream of the call, and its answer.

The answer comes as a POST of its own and may reach another replica, so it goes over the bus to
whoever waits. The tool waits where it asked; it is not run again.
"""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from app.execution.asking import Asking, Desk
from app.execution.execution import Execution
from app.execution.executor import Executor
from app.execution.pages import Page
from app.execution.questions import PAGE_NEEDS, Question, url_question
from app.legacy.asking import Refused, Unaskable, answer, question, request, withdrawn
from app.principal import Principal
from app.protocol.asking import BadAnswer
from app.protocol.errors import Unavailable
from app.protocol.jsonrpc import dumps, loads_encoded
from app.registry.forms import form_of, refuse_links
from app.sessions.tokens import Session
from app.state.interface import Bus, StoreUnavailable
from app.toolkit import ElicitResult, ToolError
from app.toolkit.asking import F

TOPIC: Final = "legacy-answers"
MAX_ROUNDS: Final = 5
"""How often a question is asked again whose answer does not fit."""

NOBODY: Final = "The server is about to stop, so nobody can be asked. Try again in a moment."

LOOK_S: Final = 0.5
"""How often a page is looked at that its user fills in."""

_ID: Final = re.compile(r"ask-[0-9a-f]{32}")
"""Ids of questions: nothing else that a client answers is told to the fleet."""

Say = Callable[[bytes], None]


class Dialogues:
    """The questions of one process that wait for an answer.

    Args:
        timeout_s: How long a question may wait.
    """

    def __init__(self, bus: Bus, executor: Executor, desk: Desk, *, timeout_s: float) -> None:
        self._bus = bus
        self.executor = executor
        self.desk = desk
        self.timeout_s = timeout_s
        self._waiting: dict[str, tuple[str, asyncio.Future[dict[str, Any] | None]]] = {}
        self.asks_nobody = False
        self._unsubscribe = bus.subscribe(TOPIC, self._hear)

    def close(self) -> None:
        """Hear no more."""
        self._unsubscribe()

    def ask_nobody(self) -> None:
        """The server is about to stop: whoever waits for an answer is told that none comes.

        A person takes longer than what runs is given to end; and whoever answered meanwhile might
        have answered for nothing.
        """
        self.asks_nobody = True
        for _, future in self._waiting.values():
            if not future.done():
                future.set_result(None)

    async def answered(self, session: Session, response: Mapping[str, Any]) -> None:
        """A client has answered something: tell whoever waits for it, on whichever replica.

        An answer to nothing, or to somebody else's question, is nobody's.

        Raises:
            Unavailable: It could not be told; the client may say it again.
        """
        id = response.get("id")
        if isinstance(id, str) and _ID.fullmatch(id):
            try:
                await self._bus.publish(TOPIC, dumps([id, session.id, dict(response)]))
            except StoreUnavailable as error:
                text = "The answer cannot be passed on now."
                raise Unavailable(text, retry_after_s=1) from error

    async def ask(
        self, session: Session, asked: Mapping[str, Any], say: Say, *, withdraw: Say
    ) -> dict[str, Any]:
        """Send a request and wait for the response.

        Args:
            withdraw: Sends that nobody waits any more, where there was none.

        Raises:
            ToolError: None came in time, or the server is about to stop.
        """
        if self.asks_nobody:
            raise ToolError(NOBODY)
        id = f"ask-{secrets.token_hex(16)}"  # unguessable: who knows it could answer
        future: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._waiting[id] = session.id, future
        try:
            say(request(id, asked))
            async with asyncio.timeout(self.timeout_s):
                response = await future
        except TimeoutError:
            withdraw(withdrawn(id, "Nobody has answered in time."))
            raise ToolError("Nobody has answered the tool's question in time.") from None
        except asyncio.CancelledError:
            withdraw(withdrawn(id, "Nobody waits for the answer any more."))
            raise
        finally:
            del self._waiting[id]
        if response is None:
            withdraw(withdrawn(id, "The server is about to stop."))
            raise ToolError(NOBODY)
        return response

    def _hear(self, message: bytes) -> None:
        try:
            id, session_id, response = loads_encoded(message)  # it may be deeper than a body by now
            waiting = self._waiting.get(id) if isinstance(response, dict) else None
        except (ValueError, TypeError, RecursionError):
            return  # no server has said this: others may write to the bus
        if waiting is not None and waiting[0] == session_id and not waiting[1].done():
            waiting[1].set_result(response)


class LiveAsking(Asking):
    """The questions of one call of a tool, each of which waits for its answer.

    Args:
        withdraw: Sends that a question is over; None: as long as the call is not.
    """

    def __init__(
        self,
        dialogues: Dialogues,
        session: Session,
        principal: Principal,
        execution: Execution,
        *,
        withdraw: Say | None = None,
    ) -> None:
        super().__init__(
            dialogues.desk,
            tool=execution.tool.name,
            principal=principal,
            bound_to=b"",
            capabilities=session.capabilities,
            responses={},
            state=None,
        )
        self._execution = execution
        self._withdraw = withdraw or execution.ask
        self._dialogues = dialogues
        self._session = session
        self._values: dict[str, Any] = {}

    async def ask(
        self,
        question: Question,
        *,
        otherwise: Mapping[str, Any] | None = None,  # noqa: ARG002  # of questions in results
    ) -> Any:
        if self._digests.setdefault(question.key, question.digest) != question.digest:
            raise ValueError(f"the key {question.key!r} names two different questions of one call")
        self.require(question.needs)
        self.has_asked = True
        async with self._locks.setdefault(f"ask {question.key}", asyncio.Lock()):
            if question.key in self._values:
                return self._values[question.key]
            reason = ""
            for _ in range(MAX_ROUNDS):
                sent = question.again(reason) if reason else question.request
                response = await self._send(sent)
                try:
                    value, kept = question.read(response)
                except BadAnswer as bad:
                    reason = str(bad)
                    continue
                self._values[question.key] = value
                self._answers[question.key] = question.digest, dict(kept)
                return value
        raise ToolError(f"The client's answers do not fit the question: {reason}")

    async def elicit_page(self, key: str, message: str, model: type[F]) -> ElicitResult[F]:
        refuse_links(message, "the message")
        form = form_of(model, on_page=True)
        self.require(PAGE_NEEDS)
        url = self.desk.pages_url(self.principal)
        pages = self.desk.pages
        async with self._locks.setdefault(f"page {key}", asyncio.Lock()):
            handle = self.page_handles.get(key) or pages.new_handle()
            try:
                if key not in self.page_handles:
                    await pages.open(handle, self._page(message, form.schema), model)
                    self.page_handles[key] = handle
                said = await self.ask(url_question(key, message, f"{url}/{handle}"))
                if said.action != "accept":
                    await pages.close(handle)
                    return ElicitResult(said.action)
                entered = await self._entered(handle)
                return ElicitResult("accept", form.read(entered)[0])
            except (TimeoutError, BadAnswer, ToolError) as error:
                # What is entered now, or was, would reach nobody; who asks again begins anew.
                for of_key in (self.page_handles, self._values, self._digests):
                    of_key.pop(key, None)
                with contextlib.suppress(StoreUnavailable):
                    await pages.close(handle)
                if isinstance(error, ToolError):
                    raise
                if isinstance(error, BadAnswer):
                    text = f"What was entered on the page does not fit: {error}"
                    raise ToolError(text) from None
                raise ToolError("The page has not been completed in time.") from None
            except StoreUnavailable as error:
                text = "The page cannot be reached at the moment; try again later."
                raise ToolError(text) from error

    async def _entered(self, handle: str) -> dict[str, Any]:
        """What the user enters on a page. Consent is not completion: it is filled in now.

        Raises:
            TimeoutError: Nothing was entered.
            ToolError: The server is about to stop.
        """
        async with self._rest(), asyncio.timeout(self._dialogues.timeout_s):
            # Looked at, not waited for: another replica may have taken what was entered.
            entered = await self.desk.pages.entered(handle, self.principal)
            while entered is None:
                if self._dialogues.asks_nobody:
                    raise ToolError(NOBODY)
                await asyncio.sleep(LOOK_S)
                entered = await self.desk.pages.entered(handle, self.principal)
        return entered

    async def _send(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        try:
            asked = question(sent, self._session.revision, elicitation_id=secrets.token_hex(16))
            async with self._rest():
                response = await self._dialogues.ask(
                    self._session, asked, self._execution.ask, withdraw=self._withdraw
                )
            return answer(sent["method"], response)
        except (Unaskable, Refused) as error:
            raise ToolError(str(error)) from None

    @contextlib.asynccontextmanager
    async def _rest(self) -> AsyncIterator[None]:
        """While a person thinks, the call takes neither time nor room."""
        executor = self._dialogues.executor
        executor.pause(self._execution)
        try:
            yield
        finally:
            executor.resume(self._execution)

    def _page(self, message: str, schema: dict[str, Any]) -> Page:
        principal = self.principal
        return Page(str(principal.issuer), str(principal.subject), self.tool, message, schema)
