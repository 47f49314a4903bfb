"""What every client is put through, for the drivers that are written in Python.

A driver reads a job on standard input and writes one JSON line for each scenario:
`{"scenario": ..., "ok": true, false or null, "detail": ...}`; null: the client has no means for it.
Only the standard library is needed: each driver runs where nothing but its client is installed.
`scenarios.mjs` is the same for Node.js.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TextIO

SCENARIO_S: Final = 15.0
USER: Final = {"name": "octocat"}
"""What the user fills into the form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Which server to talk to, and how.

    Attributes:
        era: `modern`: as clients of 2026-07-28 do; `legacy`: with `initialize`.
        revision: That must be asked for; empty: the client chooses.
        url: Of a server over HTTP.
        command: That starts a server over stdio, with its arguments.
        log: Where such a server's standard error goes.
        tools: The names of all tools, in order.
    """

    transport: Literal["http", "stdio"]
    era: Literal["modern", "legacy"]
    revision: str = ""
    url: str = ""
    command: Sequence[str] = ()
    cwd: str = ""
    log: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    tools: Sequence[str] = ()

    def open_log(self) -> TextIO:
        """The file for what a server over stdio writes to standard error."""
        return Path(self.log).open("w", encoding="utf-8")


class Answer(NamedTuple):
    """The result of a call."""

    text: str
    structured: Any
    is_error: bool


class NoMeans(Exception):
    """The client has no means for a scenario; the text says what is missing."""


class Client(Protocol):
    """A connected client; each driver wraps its own.

    Attributes:
        revision: The protocol revision that was agreed on.
        asked: What the user was asked.
    """

    revision: str
    asked: list[str]

    async def list_tools(self) -> list[dict[str, Any]]:
        """All pages, asked for anew."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        heard: Callable[[float], None] | None = None,
    ) -> Answer:
        """Call a tool. `heard` gets the progress."""
        ...

    def changes(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """Listen for `list_changed`; what it gives waits for one."""
        ...

    async def give_up(self, name: str, begun: Callable[[], Awaitable[Answer]]) -> None:
        """Call a tool and cancel the call as soon as `begun` has answered."""
        ...


def expect(found: Any, wanted: Any) -> None:
    """Fail unless two things are equal."""
    if found != wanted:
        raise AssertionError(f"expected {wanted!r}, got {found!r}")


async def connect(client: Client, job: Job) -> str:
    """The revision is of the era that was asked for."""
    expect(client.revision == "2026-07-28", job.era == "modern")
    return client.revision


async def list_tools(client: Client, job: Job) -> None:
    """A listed tool says what its author wrote."""
    (found,) = (tool for tool in await client.list_tools() if tool["name"] == "divide")
    expect(found["description"], "Divide one whole number by another.")
    expect(found["inputSchema"]["required"], ["dividend", "divisor"])


async def paginate(client: Client, job: Job) -> None:
    """The pages hold every tool once, in order."""
    expect([tool["name"] for tool in await client.list_tools()], list(job.tools))


async def call(client: Client, job: Job) -> None:
    """Arguments arrive as they were, one of them in a header too where the revision has that."""
    arguments = {"region": "Zürich", "query": "SELECT 1"}
    answer = await client.call("execute_sql", arguments)
    expect((json.loads(answer.text), answer.is_error), ({**arguments, "tenant": None}, False))


async def structured(client: Client, job: Job) -> None:
    """Structured results, an object and a list; older revisions have the list in an object."""
    answer = await client.call("divide", {"dividend": 17, "divisor": 5})
    expect(answer.structured, {"quotient": 3, "remainder": 2})
    primes = await client.call("primes", {"below": 8})
    expect(primes.structured, [2, 3, 5, 7] if job.era == "modern" else {"result": [2, 3, 5, 7]})


async def progress(client: Client, job: Job) -> None:
    """Progress is heard while the tool runs: it goes on when it is told to."""
    heard: asyncio.Queue[float] = asyncio.Queue()
    climbing = asyncio.ensure_future(client.call("climb", {"steps": 3}, heard.put_nowait))
    for step in (1, 2, 3):
        hearing = asyncio.ensure_future(heard.get())
        await asyncio.wait({climbing, hearing}, return_when=asyncio.FIRST_COMPLETED)
        if climbing.done():
            climbing.result()  # tells why
        expect(await hearing, step)
        await client.call("take_step")
    expect((await climbing).text, "3 steps")


async def elicitation(client: Client, job: Job) -> None:
    """A user fills in a form."""
    expect((await client.call("greet")).text, "Hello, octocat!")
    expect(client.asked, ["Who is there?"])


async def cancellation(client: Client, job: Job) -> None:
    """A call that is given up is stopped in the server."""
    await client.give_up("hold", lambda: client.call("await_hold", {"state": "started"}))
    expect((await client.call("await_hold", {"state": "cancelled"})).text, "cancelled")


async def tool_error(client: Client, job: Job) -> None:
    """A tool says what went wrong."""
    answer = await client.call("divide", {"dividend": 1, "divisor": 0})
    expect((answer.is_error, answer.text), (True, "divisor must not be zero"))


async def bad_arguments(client: Client, job: Job) -> None:
    """Wrong arguments are a result that the model can act on."""
    answer = await client.call("divide", {"dividend": "many", "divisor": 1})
    expect((answer.is_error, "dividend" in answer.text), (True, True))


async def list_changed(client: Client, job: Job) -> None:
    """A tool that comes while the client listens is told of, listed and called."""
    async with client.changes() as changed:
        await client.call("invite")
        await changed()
    names = [tool["name"] for tool in await client.list_tools()]
    expect(names, sorted([*job.tools, "newcomer"]))
    expect((await client.call("newcomer")).text, "hello")


Scenario = Callable[[Client, Job], Awaitable[str | None]]
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "connect": connect,
    "list": list_tools,
    "paginate": paginate,
    "call": call,
    "structured": structured,
    "error": tool_error,
    "bad arguments": bad_arguments,
    "progress": progress,
    "elicitation": elicitation,
    "cancellation": cancellation,
    "list_changed": list_changed,  # the last: the tools are others from then on
}


def say(scenario: str, ok: bool | None, detail: str) -> None:
    """Report one scenario."""
    line = json.dumps({"scenario": scenario, "ok": ok, "detail": detail})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def told(error: BaseException) -> str:
    """An error in one line; of a group, the first that it holds."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def run(client: Client, job: Job) -> None:
    """Put a client through every scenario."""
    for name, scenario in SCENARIOS.items():
        try:
            async with asyncio.timeout(SCENARIO_S):
                detail = await scenario(client, job)
        except NoMeans as missing:
            say(name, None, str(missing))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the finding
            say(name, False, told(error))
        else:
            say(name, True, detail or "")


def main(connected: Callable[[Job], AbstractAsyncContextManager[Client]]) -> None:
    """Drive a client as the job on standard input says."""

    async def drive() -> None:
        job = Job(**json.load(sys.stdin))
        try:
            async with connected(job) as client:
                await run(client, job)
        except Exception as error:  # noqa: BLE001  # likewise
            say("connect", False, told(error))

    asyncio.run(drive())
