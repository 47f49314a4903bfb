"""A system under churn for a while: calls, listeners that come and go, tools that change."""

import asyncio
import random
import shutil
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.chaos.crowd import GOODBYE_S, Figures
from tests.chaos.scenarios import pause
from tests.chaos.system import TOOLS, System
from tests.support.client import modern_request
from tests.support.server import ServerProcess
from tests.support.waiting import eventually

LISTENERS: Final = 60
STAYS_S: Final = (0.2, 2.0)
CHANGE_EVERY_S: Final = 2.0
SAMPLE_EVERY_S: Final = 0.5
MIB: Final = 1024 * 1024

CHANGING: Final = '''"""A tool that is edited while it is served."""

from app import tool


@tool
def edited() -> str:
    """Say which edit this is: {edit}."""
    return "{edit}"
'''


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process holds: memory in bytes, open descriptors, threads."""

    memory: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, server: ServerProcess) -> "Sample":
        """Now."""
        status = Path(f"/proc/{server.pid}/status").read_text("ascii")
        (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        counts = (len(list(Path(f"/proc/{server.pid}/{of}").iterdir())) for of in ("fd", "task"))
        return cls(int(kib) * 1024, *counts)


@dataclass(slots=True)
class Soaked:
    """What was seen.

    Attributes:
        before: Of each replica, before the churn began.
        during: Of each replica, all through it.
        after: Of each replica, when it was over.
        keys: In the store at the end.
        heard: Notifications that the listeners got.
    """

    figures: Figures
    before: list[Sample]
    during: list[list[Sample]]
    after: list[Sample]
    keys: int
    edits: int
    opened: int
    heard: int

    def growth_bytes(self, replica: int) -> float:
        """Memory of the last quarter beyond that of the second one: the first fills caches."""
        memory = [sample.memory for sample in self.during[replica]]
        quarter = len(memory) // 4
        return statistics.median(memory[-quarter:]) - statistics.median(
            memory[quarter : 2 * quarter]
        )


@dataclass
class Listeners:
    """Streams through the load balancer, each of which is soon followed by another one."""

    system: System
    opened: int = 0
    heard: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    async def _run(self) -> None:
        limits = httpx2.Limits(max_connections=2 * LISTENERS)
        context = self.system.context()
        async with (
            httpx2.AsyncClient(
                timeout=30, limits=limits, trust_env=False, verify=context
            ) as client,
            asyncio.TaskGroup() as streams,
        ):
            for _ in range(LISTENERS):
                streams.create_task(self._listen(client))
        await asyncio.sleep(GOODBYE_S)

    async def _listen(self, client: httpx2.AsyncClient) -> None:
        request = modern_request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        headers = {name: str(value) for name, value in request.headers if name != "Host"}
        url = self.system.balancer.url
        while not self._stop.is_set():
            try:
                async with (
                    asyncio.timeout(random.uniform(*STAYS_S)),  # noqa: S311  # no secret
                    client.stream("POST", url, content=request.body, headers=headers) as response,
                ):
                    async for line in response.aiter_lines():
                        self.opened += "acknowledged" in line
                        self.heard += "list_changed" in line
            except (TimeoutError, httpx2.HTTPError):
                continue

    @contextmanager
    def listening(self) -> Iterator[None]:
        """They come and go, until the end of the block."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(30)
            assert not thread.is_alive()


def system_for_soak(folder: Path, **how: Any) -> System:
    """A system whose replicas notice edits of tools."""
    tools = folder / "tools"
    shutil.copytree(TOOLS, tools, ignore=shutil.ignore_patterns("__pycache__"))
    edit(tools, 0)
    return System(folder, {"tools": {"reload": True}}, tools=tools, **how)


def edit(tools: Path, number: int) -> None:
    """Change a tool, as an editor does that saves in one step."""
    draft = tools / "changing.draft"
    draft.write_text(CHANGING.format(edit=number), "utf-8")
    draft.replace(tools / "changing.py")


def soak(system: System, *, seconds: float, rate: float) -> Soaked:
    """Let it all go on for a while; then let it come to rest."""
    replicas = system.replicas
    listeners = Listeners(system)
    with system.crowd(rate=rate):
        pause(1.0)  # pools and caches have their first size
    before = [Sample.of(replica) for replica in replicas]
    during: list[list[Sample]] = [[] for _ in replicas]
    edits = 0
    with listeners.listening(), system.crowd(rate=rate) as crowd:
        for step in range(int(seconds / SAMPLE_EVERY_S)):
            pause(SAMPLE_EVERY_S)
            if step % int(CHANGE_EVERY_S / SAMPLE_EVERY_S) == 0:
                edits += 1
                edit(system.tools, edits)
            for replica, samples in zip(replicas, during, strict=True):
                samples.append(Sample.of(replica))
    for replica, sample in zip(replicas, before, strict=True):
        eventually(
            lambda r=replica, s=sample: Sample.of(r).descriptors <= s.descriptors + 3,  # type: ignore[misc]
            "as many sockets as before",
            30.0,
        )
    return Soaked(
        figures=crowd.figures(),
        before=before,
        during=during,
        after=[Sample.of(replica) for replica in replicas],
        keys=len(system.store.keys()),
        edits=edits,
        opened=listeners.opened,
        heard=listeners.heard,
    )
