"""Recordings for people: found by id or file, opened, exported."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from app.recording.folder import Entry, Folder, Gone, read_file
from app.recording.recording import Recording, Unusable, decode
from app.recording.vault import Vault, is_sealed

LEAST_PREFIX: Final = 4
"""Characters that a shortened id must have."""


class Library:
    """What can be found.

    Args:
        folder: None: there is no directory of recordings here.
    """

    def __init__(self, folder: Folder | None, vault: Vault) -> None:
        self._folder = folder
        self._vault = vault

    def entries(self) -> Sequence[Entry]:
        """What the directory holds, oldest first.

        Raises:
            Unusable: There is none, or it cannot be read.
        """
        if self._folder is None:
            raise Unusable("[recording] directory is not configured, so there is none")
        try:
            return self._folder.entries()
        except OSError as error:
            raise Unusable(f"{self._folder.path} cannot be read: {error.strerror}") from None

    def opened(self) -> Iterator[tuple[Entry, Recording | Unusable]]:
        """Each recording of the directory, or why it cannot be used; oldest first.

        One that has gone meanwhile is left out: a server tidies up when it likes.

        Raises:
            Unusable: The directory cannot be read.
        """
        for entry in self.entries():
            try:
                yield entry, self.open(entry)
            except Gone:
                continue
            except Unusable as error:
                yield entry, error

    def open(self, entry: Entry) -> Recording:
        """The recording in a file of the directory.

        Raises:
            Unusable: It cannot be opened, or is not the one that its name says.
        """
        assert self._folder is not None
        recording = decode(self._vault.open(self._folder.read(entry)))
        if recording.id != entry.id:
            raise Unusable("it is another recording than its name says: the file was renamed")
        return recording

    def find(self, name: str) -> Recording:
        """A recording by its id, by the beginning of one, or by the path of a file.

        Raises:
            Unusable: There is none, there are several, or it cannot be used.
        """
        path = Path(name)
        if os.sep in name or path.is_file():
            return self._of_file(path)
        found = [each for each in self.entries() if each.id.startswith(name)]
        if len(name) < LEAST_PREFIX or not found:
            raise Unusable("there is no such file, and no recording with this id")
        if len({each.id for each in found}) > 1:
            raise Unusable(f"{len(found)} recordings have ids that begin so")
        return self.open(found[0])

    def _of_file(self, path: Path) -> Recording:
        data = read_file(path)
        return decode(self._vault.open(data) if is_sealed(data) else data)
