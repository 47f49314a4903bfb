"""Whom this process calls for: the credential in its environment (Authorization, stdio)."""

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from app.protocol.headers import HeaderMap

API_KEY: Final = "MCP_API_KEY"
ACCESS_TOKEN: Final = "MCP_ACCESS_TOKEN"  # noqa: S105  # the name of a variable
MAX_FILE_BYTES: Final = 4096


class UnusableCredential(Exception):
    """What the environment or the file holds cannot be a credential."""


def take_credential(environ: MutableMapping[str, str], key_file: Path | None) -> HeaderMap:
    """The credential as a request over HTTP would show it; without headers if there is none.

    It is taken out of the environment, where tools and their children would find it.

    Args:
        key_file: A file with an API key, in place of the environment.

    Raises:
        UnusableCredential: With the reason.
    """
    given = {
        name: value
        for name in (API_KEY, ACCESS_TOKEN)
        if (value := environ.pop(name, None)) is not None
    }
    if key_file is not None:
        given["--api-key-file"] = _read(key_file)
    if len(given) > 1:
        raise UnusableCredential(f"{' and '.join(given)} are two credentials; one is needed")
    for name, value in given.items():
        credential = os.fsencode(value.strip())
        if not credential:
            raise UnusableCredential(f"{name} is empty")
        if name == ACCESS_TOKEN:
            return HeaderMap([(b"authorization", b"Bearer " + credential)])
        return HeaderMap([(b"x-api-key", credential)])
    return HeaderMap(())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(MAX_FILE_BYTES))
    except OSError as error:
        raise UnusableCredential(f"--api-key-file {path}: {error.strerror}") from None
