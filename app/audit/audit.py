"""Puts each call on record before its answer leaves. Implements ``Observer`` and ``Intents``."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from app.audit.chain import KEYED, PLAIN, Chain, key_id
from app.audit.files import open_directory, writer_name
from app.audit.records import Instants, Recorder
from app.audit.sink import FileSink, Sink
from app.audit.writer import Writer
from app.methods.answers import Sender
from app.methods.observing import Ended
from app.protocol.errors import Unavailable
from app.protocol.inbound import Call
from app.protocol.sealed import KeyRing
from app.registry.tool import Tool
from app.settings import Settings
from app.version import server_version

CHAIN_PURPOSE: Final = "audit chain 1"
DIGEST_PURPOSE: Final = "audit arguments 1"
RETRY_AFTER_S: Final = 5

_Noted = bytes | tuple[Ended, float, int | None]
"""A record, or a call that has ended: how, when (POSIX time), and the number of its intent."""


class AuditUnusable(Exception):
    """Nothing can be put on record; the text is for the operator."""


class Audit:
    """The record of one process.

    Args:
        replica: Id of this server.
        sink: Default: the files that the settings name.
        clock: Gives POSIX time.

    Attributes:
        writer: Counts what is not on record; None before ``start``.
    """

    needs_arguments = True

    def __init__(
        self,
        settings: Settings,
        *,
        replica: str = "server",
        sink: Sink | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        chain_key, digest_key = keys_of(settings)
        self._clock = clock
        self._directory = settings.audit.directory
        self._patience_s = settings.audit.patience_s
        self._recorder = Recorder(digest_key)
        self._chain = Chain(chain_key)
        self._sink = sink or _files(settings, replica, clock, chain_key, digest_key)
        self._links: dict[int, int] = {}
        self._last_link = 0
        self.writer: Writer[_Noted] | None = None

    def start(self) -> None:
        """Begin.

        Raises:
            AuditUnusable: Nothing can be written.
        """
        try:
            self._sink.open(self._chain)
        except OSError as error:
            raise AuditUnusable(unusable(self._directory, error)) from error
        self.writer = Writer(
            self._sink, make=self._made, gap=self._gap, patience_s=self._patience_s
        )

    async def stop(self) -> None:
        """Write what waits, and end."""
        if self.writer is not None:
            await self.writer.stop()

    def ended(self, ended: Ended) -> asyncio.Future[bool] | None:
        """As of ``Observer``."""
        link = self._links.pop(id(ended.call), None) if self._links else None
        tool, writer = ended.tool, self.writer
        if writer is None or (tool is not None and tool.audit == "off"):
            return None
        return writer.put((ended, self._clock(), link))

    # Of tools that must not run without a record.

    def admit(self) -> None:
        """As of ``Intents``."""
        if self.writer is None or self.writer.is_failing:
            raise _failing()

    async def note(self, tool: Tool, call: Call, sender: Sender, rule: str) -> None:
        """As of ``Intents``."""
        self.admit()
        assert self.writer is not None
        self._last_link += 1
        # The call is kept by whoever waits here, and told of once when it ends.
        self._links[id(call)] = self._last_link
        record = self._recorder.intent(
            tool, call, sender, rule=rule, now=self._clock(), link=self._last_link
        )
        written = self.writer.put(record)
        if written is not None:
            await asyncio.wait([written])
        if written is None or not written.result():
            raise _failing()

    def _made(self, what: _Noted) -> bytes:
        return what if isinstance(what, bytes) else self._recorder.call(*what)

    def _gap(self, lost: int) -> bytes:
        return self._recorder.gap(self._clock(), lost)


def keys_of(settings: Settings) -> tuple[bytes | None, bytes]:
    """The keys of the chain and of the digests of arguments.

    Without ``[secrets] keys`` the chain has none, and the other one lives as long as the process.
    """
    configured = settings.secrets.encoded
    if not configured:
        return None, secrets.token_bytes(32)
    ring = KeyRing(configured)
    return ring.derived(CHAIN_PURPOSE)[0], ring.derived(DIGEST_PURPOSE)[0]


def check(settings: Settings) -> None:
    """Whether the record can be written, before anything else is started.

    Raises:
        AuditUnusable: It cannot.
    """
    directory = settings.audit.directory
    if directory is not None:
        try:
            os.close(open_directory(directory))
        except OSError as error:
            raise AuditUnusable(unusable(directory, error)) from error


def unusable(directory: Path | None, error: OSError) -> str:
    """What is wrong, in a sentence."""
    return f"[audit] directory: {directory} cannot be written: {error.strerror or error}"


def _failing() -> Unavailable:
    return Unavailable(
        "This tool runs only while its calls can be put on record, which fails at the moment.",
        retry_after_s=RETRY_AFTER_S,
        setting="audit",
    )


def _files(
    settings: Settings,
    replica: str,
    clock: Callable[[], float],
    chain_key: bytes | None,
    digest_key: bytes,
) -> FileSink:
    directory = settings.audit.directory
    assert directory is not None
    instants = Instants()  # of its own: it is used in another thread
    pid = os.getpid()
    about: dict[str, Any] = {
        "replica": replica[:64],
        "pid": pid,
        "server": server_version(),
        "chain": PLAIN if chain_key is None else KEYED,
        "key": None if chain_key is None else key_id(chain_key),
        "arguments_key": key_id(digest_key),
    }
    return FileSink(
        directory,
        settings.audit,
        writer_name(replica, pid, clock(), secrets.token_hex(2)),
        about,
        instant=lambda: instants.encoded(clock()).decode(),
        clock=clock,
    )
