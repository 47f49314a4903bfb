"""Keys of this server's own: made, hashed, checked.

A key is ``mts_ID_SECRET``: who holds it can be found by its id, so that one hash is compared and
not all of them; and a scanner for leaked secrets can tell what it is. The secret is 32 random
bytes, so a plain SHA-256 is enough: there is nothing to guess that stretching would slow down.
"""

import base64
import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from app.auth.caller import Caller, Seal
from app.auth.problems import Expired, Refused, UnusableFile
from app.settings import ApiKeySettings

ISSUER: Final = "api-key"
"""``Principal.issuer`` of who holds a key."""
PREFIX: Final = b"mts_"
SECRET_BYTES: Final = 32

MAX_KEY: Final = 80

_KEY: Final = re.compile(rb"mts_([a-z0-9][a-z0-9-]{0,31})_[A-Za-z0-9_-]{43}\Z")
_DUMMY: Final = "sha256:" + "0" * 64
_UNKNOWN: Final = "The API key is not known."


def make_key(key_id: str) -> str:
    """A new key. It cannot be had again."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).rstrip(b"=")
    return f"mts_{key_id}_{secret.decode('ascii')}"


def hash_key(key: str | bytes) -> str:
    """What the settings hold of a key."""
    data = key.encode("utf-8") if isinstance(key, str) else key
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_key(text: bytes) -> bool:
    """Whether a text has the form of a key."""
    return len(text) <= MAX_KEY and _KEY.match(text) is not None


class ApiKeys:
    """The keys that count.

    Args:
        previous: Those before a change of the settings; who holds a key with the same hash goes
            on counting.

    Attributes:
        by_id: Hash and principal of each.
    """

    def __init__(
        self,
        keys: Iterable[ApiKeySettings],
        revoked: Iterable[str] = (),
        previous: "ApiKeys | None" = None,
    ) -> None:
        gone = frozenset(revoked)
        before = previous.by_id if previous is not None else {}
        self.by_id: dict[str, tuple[str, Caller]] = {}
        for key in keys:
            if key.id not in gone:
                old = before.get(key.id)
                seal = old[1].seal if old is not None and old[0] == key.hash else Seal()
                self.by_id[key.id] = (key.hash, _caller(key, seal))

    def check(self, text: bytes, now: float) -> Caller:
        """Who holds a key.

        Args:
            now: POSIX time.

        Raises:
            Refused: It is no key, not known or expired.
        """
        if len(text) > MAX_KEY:
            raise Refused(_UNKNOWN)
        match = _KEY.match(text)
        # An id is no secret, and whether it is known shows nowhere but in the answer to the right
        # key; so an unknown one takes the same steps.
        key_id = match.group(1).decode("ascii") if match else ""
        expected, caller = self.by_id.get(key_id, (_DUMMY, None))
        if not hmac.compare_digest(hash_key(text), expected) or caller is None:
            raise Refused(_UNKNOWN)
        if caller.expires_at is not None and caller.expires_at <= now:
            raise Expired("The API key has expired.")
        return caller

    def renewed(self, caller: Caller) -> Caller | None:
        """The principal of the same key as it is now, or None if it is no longer there."""
        current = self.by_id.get(caller.subject or "")
        return current[1] if current is not None and current[1].seal is caller.seal else None


def _caller(key: ApiKeySettings, seal: Seal) -> Caller:
    return Caller(
        issuer=ISSUER,
        subject=key.id,
        scopes=frozenset(key.scopes),
        roles=frozenset(key.roles),
        clearance=key.clearance,
        tenant=key.tenant,
        approvals=frozenset(key.approvals),
        credential_id=key.id,
        expires_at=key.expires_at.timestamp() if key.expires_at is not None else None,
        seal=seal,
    )


def read_api_keys(file: Path) -> tuple[ApiKeySettings, ...]:
    """The keys of a TOML file with ``[[api_keys]]`` tables.

    Raises:
        UnusableFile: It cannot be read, or holds something else.
    """
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UnusableFile(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError:  # its message may quote the line
        raise UnusableFile(f"{file}: not valid TOML") from None
    unknown = ", ".join(sorted(document.keys() - {"api_keys"}))
    if unknown:
        raise UnusableFile(f"{file}: has {unknown}, but only [[api_keys]] tables belong there")
    tables = document.get("api_keys", [])
    if not isinstance(tables, list):
        raise UnusableFile(f"{file}: api_keys must be tables: write [[api_keys]] above each key")
    keys = [_read_table(file, number, table) for number, table in enumerate(tables, 1)]
    _refuse_twins(file, keys)
    return tuple(keys)


def all_api_keys(
    own: Iterable[ApiKeySettings], file: Path | None, clearances: Iterable[str]
) -> tuple[ApiKeySettings, ...]:
    """The keys of the settings and those of ``api_keys_file``.

    Raises:
        UnusableFile: The file cannot be used, alone or beside the settings.
    """
    if file is None:
        return tuple(own)
    more = read_api_keys(file)
    known = tuple(clearances)
    for key in more:
        if key.clearance is not None and key.clearance not in known:
            raise UnusableFile(
                f"{file}: the clearance of the API key {key.id} is none of {', '.join(known)}"
            )
    both = (*own, *more)
    _refuse_twins(file, both)
    return both


def _read_table(file: Path, number: int, table: Any) -> ApiKeySettings:
    try:
        return ApiKeySettings.model_validate(table)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = table.get("id") if isinstance(table, Mapping) else None
        which = f"the key {name!r}" if isinstance(name, str) and len(name) < 64 else f"no. {number}"
        key = ".".join(str(step) for step in detail["loc"]) or "the table"
        raise UnusableFile(f"{file}: {which}: {key}: {_sentence(key, detail['msg'])}") from None


def _sentence(key: str, message: str) -> str:
    match key:
        case "hash":
            return (
                "must be sha256: and 64 hexadecimal digits; `mcp-tool-server keys create` and "
                "`keys hash` print it"
            )
        case "id":
            return "must be 1 to 32 lower-case letters, digits and hyphens"
        case _:
            return message[0].lower() + message[1:]


def _refuse_twins(file: Path, keys: Iterable[ApiKeySettings]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key.id in seen:
            raise UnusableFile(f"{file}: there is a second API key with the id {key.id!r}")
        seen.add(key.id)
