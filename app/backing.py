"""What outlives a request: the stores and the bus of one server or of a fleet."""

import copy
import secrets
from typing import Final

from app.observability.spans import Spans
from app.observability.stores import TracedStore
from app.protocol.sealed import KeyRing
from app.settings import Settings
from app.state.interface import Bus, Store
from app.state.local_bus import LocalBus
from app.state.memory import MemoryStore

STORES: Final = ("limits", "kept", "outcomes", "sessions", "ended", "replays", "control")


class State:
    """What outlives a request, in the memory of this process.

    Stores of their own, so that what callers may fill pushes out nothing else.

    Attributes:
        control: What administrators have decided, and nothing that callers can fill.
    """

    is_shared = False
    """Whether other servers see it, and it survives this one."""

    is_required = False
    """Whether requests should go elsewhere while it cannot be used."""

    def __init__(self) -> None:
        self.limits: Store = MemoryStore()
        self.kept: Store = MemoryStore()
        self.outcomes: Store = MemoryStore()
        self.sessions: Store = MemoryStore()
        self.ended: Store = MemoryStore()
        self.replays: Store = MemoryStore()
        self.control: Store = MemoryStore()
        self.bus: Bus = LocalBus()

    @property
    def problem(self) -> str | None:
        """Why it cannot be used now, in words for the log; None: it can."""
        return None

    async def start(self) -> None:
        """Connect, as far as that is possible now: what cannot be reached yet is tried again."""

    async def close(self) -> None:
        """Let go of it. What the servers of a fleet share stays for the others."""


def traced(state: State, spans: Spans | None) -> State:
    """The same state, whose answers are spans of the requests that wait for them.

    Args:
        spans: Makes them; None: there are none. State in memory is as it was in either case.
    """
    if spans is None or not state.is_shared:
        return state
    view = copy.copy(state)
    for name in STORES:
        setattr(view, name, TracedStore(getattr(state, name), name, spans))
    return view


def key_ring(settings: Settings) -> KeyRing:
    """The configured keys, or one that lives as long as the process."""
    return KeyRing(settings.secrets.encoded or [secrets.token_bytes(32)])
