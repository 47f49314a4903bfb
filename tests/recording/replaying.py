"""Calls that are made in this process, recorded as a server would, and replayed against others."""

import itertools
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from app.execution.execution import Execution
from app.methods.answers import Reply, Sender
from app.methods.record import outcome_of
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call
from app.protocol.jsonrpc import dumps
from app.protocol.schema import RequestMeta
from app.recording.gathering import Finished
from app.recording.recording import Recording, Refusal, decode
from app.recording.replay import Replayed, Replayer
from app.service import Service
from app.settings import Settings
from tests.recording.making import AT, gatherer
from tests.support.toolfiles import write

_numbers: Final = itertools.count(1)


class Bench:
    """A service whose rules look at an instant that is set."""

    def __init__(self, settings: Settings) -> None:
        self.now = AT
        self.service = Service(
            settings, pages=False, log_problems=False, replays_at=lambda: self.now
        )

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any] | None = None,
        who: Principal = ANONYMOUS,
        *,
        address: str | None = None,
        answers: dict[str, Any] | None = None,
        at: float = AT,
        changed: dict[str, Any] | None = None,
    ) -> Recording:
        """Call a tool, and record that."""
        self.now = at
        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
        meta = RequestMeta("2026-07-28", capabilities, None, None, None, None, {})
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
        if answers is not None:
            params["inputResponses"] = answers
        call = Call(next(_numbers), "tools/call", params, meta)
        served = self.service.registry.catalog.tools.get(tool)
        made = Finished(
            request_id=call.id,
            tool=tool,
            tool_version=None if served is None else served.version,
            fingerprint=self.service.registry.catalog.fingerprint,
            principal=who,
            address=address,
            began=at,
            duration_s=0.0,
            outcome="ok",
            meta=meta,
            arguments=dumps(arguments or {}),
            answers=dumps(answers or {}),
            capabilities=dumps(capabilities),
        )
        try:
            answer = self.service.call_tool(call, Sender(who, None, address))
            if not isinstance(answer, Reply | Execution):
                answer = await answer
            if isinstance(answer, Execution):
                while not answer.is_over:
                    answer.take_notifications()
                    await answer.wait()
                made = made._replace(error_id=answer.error_id)
            made = made._replace(outcome=answer.outcome, result=answer.result)
        except ProtocolError as error:
            made = made._replace(outcome=outcome_of(error), refusal=Refusal.of(error))
        id = made.error_id or f"{next(_numbers):016x}"
        return decode(gatherer().gather(made._replace(**changed or {}), id))

    async def replay(
        self,
        recording: Recording,
        *,
        at: float | None = None,
        allow_effects: bool = False,
        ignored: Collection[str] = (),
    ) -> Replayed:
        """Run it again here."""
        self.now = recording.called_at.timestamp() if at is None else at
        replayer = Replayer(
            self.service.call_tool,
            lambda: self.service.registry.catalog,
            allow_effects=allow_effects,
            ignored=ignored,
        )
        return await replayer.replay(recording, self.now)


@asynccontextmanager
async def bench(folder: Path, source: str, **sections: Any) -> AsyncIterator[Bench]:
    """A service with the tools of one file, in a folder of its own."""
    tools = folder / f"tools{next(_numbers)}"
    write(tools / "all.py", source)
    base = {
        "tools": {"directory": tools, "reload": False},
        "execution": {"processes": 1, "cache_bytes": 0},
        **sections,
    }
    made = Bench(Settings.model_validate(base))
    await made.service.start()
    try:
        yield made
    finally:
        await made.service.stop()
