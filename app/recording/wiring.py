"""Recorders and libraries as settings describe them."""

import time
from collections.abc import Callable

from app.protocol.sealed import KeyRing
from app.recording.folder import Folder
from app.recording.gathering import Gatherer
from app.recording.library import Library
from app.recording.observer import RecordingObserver
from app.recording.recorder import Recorder
from app.recording.vault import OVERHEAD_BYTES, Vault
from app.registry.catalog import Catalog
from app.settings import Settings
from app.version import server_version


def folder_of(settings: Settings) -> Folder | None:
    """The directory of recordings; None: nothing is recorded."""
    recording = settings.recording
    if recording.directory is None:
        return None
    return Folder(
        recording.directory,
        max_recordings=recording.max_recordings,
        max_bytes=recording.max_bytes,
        max_age_s=recording.max_age_s,
        clock=time.time,
    )


def recording_of(
    settings: Settings, catalog: Callable[[], Catalog]
) -> tuple[RecordingObserver, ...]:
    """What keeps the calls of a server; nothing where there is no directory."""
    folder, recording = folder_of(settings), settings.recording
    if folder is None:
        return ()
    gatherer = Gatherer(
        recording.redact,
        locales=settings.logging.locales,
        max_bytes=recording.max_recording_bytes - OVERHEAD_BYTES,
        release=server_version(),
    )
    return (RecordingObserver(Recorder(folder, _vault(settings), gatherer), catalog),)


def library_of(settings: Settings) -> Library:
    """What people find."""
    return Library(folder_of(settings), _vault(settings))


def _vault(settings: Settings) -> Vault:
    keys = settings.secrets.encoded
    return Vault(KeyRing(keys) if keys else None)
