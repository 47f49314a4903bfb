"""Whether worker processes can be started for tools: for ``check``."""

from collections.abc import Iterable, Sequence

from app.execution.endings import Endings
from app.execution.processes.pool import Processes
from app.execution.results import ResultEncoder
from app.protocol.messages import ServerMessages
from app.registry.problems import Problem
from app.registry.tool import Tool
from app.settings import Settings


async def problems_of_start(tools: Iterable[Tool], settings: Settings) -> Sequence[Problem]:
    """What would keep a server's workers from getting ready. No ``lifespan()`` is entered."""
    encoder = ResultEncoder(ServerMessages({}), max_bytes=settings.execution.max_result_bytes)
    one = settings.execution.model_copy(update={"processes": 1})
    endings = Endings(encoder, end=lambda _: None)
    processes = Processes(one, endings, log_level="error", lifespans=False)
    try:
        return await processes.prepare(tools, settings)
    finally:
        await processes.stop()
